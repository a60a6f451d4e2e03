"""Exactly once to Kafka: transactions of one transactional id, with a distinct error for each way to fail.

- *Fenced*: a newer producer has the id. This one can't write any more.
- *OutcomeUnknown*: the answer to the commit was lost. It may or may not have happened, and Kafka's older
  protocol can even apply a delayed commit to a later transaction. So this producer must never be used again:
  close it, open a new one (which ends transactions in flight) and read what is there.
- anything else: the transaction was aborted, nothing of it will be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas.errors import Code, EnvironmentProblem, Fenced, OutcomeUnknown
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.errors import ErrorWatch, translate, translated

_RETRY_PAUSE_S = 0.05


class TransactionalProducer:
    """Opening it fences the predecessor with the same id and ends its open transaction.

    `over` are further settings of the producer, under librdkafka's names.

    Raises: EnvironmentProblem(BROKER_UNREACHABLE, AUTH_FAILED, ...) if the broker does not answer, or refuses.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        **over: object,
    ) -> None:
        self._settings, self._id = settings, transactional_id
        watch = ErrorWatch()
        over = {"error_cb": watch, **over}
        try:
            self._producer = self._initialised(timeout_ms, over)
        except KafkaException as raised:
            raise translate(watch.refused or raised.args[0], settings, what=transactional_id) from None

    def _initialised(self, timeout_ms: int, over: Mapping[str, object]) -> Producer:
        """A producer that has the id. A broker that allows no timeout as long as this gets the usual one."""
        settings = self._settings
        producer = Producer(settings.transactional(self._id, timeout_ms=timeout_ms, **over))
        try:
            # Without an open connection librdkafka searches the coordinator again after 0.5 s. With this and a
            # short reconnect backoff the opening takes 20 ms in the median, 60 ms at most; 60 and 540 ms without.
            producer.list_topics(topic="", timeout=settings.wait_s)
            producer.init_transactions(settings.wait_s)
        except KafkaException as raised:
            producer.poll(0)
            refused = raised.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
            if refused and timeout_ms > TRANSACTION_TIMEOUT_MS:
                return self._initialised(TRANSACTION_TIMEOUT_MS, over)
            raise
        return producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def producer(self) -> Producer:
        """The client itself, for use outside a transaction."""
        return self._producer

    def close(self) -> None:
        """Drop the producer and whatever it has not sent; an open transaction is left to the broker."""
        # A client with a fatal error raises it again here, instead of the error under way.
        with suppress(KafkaException):
            self._producer.purge(blocking=False)
            self._producer.flush(0)

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """One transaction: committed when the block ends, aborted when it raises.

        Raises: Fenced; OutcomeUnknown (never use this object again); EnvironmentProblem when it was aborted.
        """
        with translated(self._settings, what=self._id):
            self._producer.begin_transaction()
            try:
                yield self._producer
            except BaseException as raised:
                fenced = self._abort()
                if fenced is not None and isinstance(raised, KafkaException | EnvironmentProblem):
                    raise fenced from raised
                raise
        self._commit()

    def _abort(self) -> Fenced | None:
        """Abort. Returns the error when that turns out to be a newer instance's doing.

        A producer that found itself fenced refuses records with `_FATAL`, without a reason; its abort has the reason.
        For one that can't abort, fenced or dead, the broker aborts.
        """
        try:
            self._producer.abort_transaction(self._settings.wait_s)
        except KafkaException as raised:
            ours = translate(raised.args[0], self._settings, what=self._id)
            return ours if isinstance(ours, Fenced) else None
        return None

    def _commit(self) -> None:
        deadline = time.monotonic() + self._settings.wait_s
        while True:
            try:
                self._producer.commit_transaction(max(0.1, deadline - time.monotonic()))
                return
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort():
                    self._abort()
                    raise translate(error, self._settings, what=self._id) from None
                if not (error.retriable() and time.monotonic() < deadline):
                    ours = translate(error, self._settings, what=self._id)
                    raise (ours if isinstance(ours, Fenced) else self._unknown(error.name())) from None
                time.sleep(_RETRY_PAUSE_S)  # only this commit may be repeated

    def _unknown(self, reason: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            Code.OUTCOME_UNKNOWN, where=self._id, found=f"a commit without an answer ({reason})"
        )

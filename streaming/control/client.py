"""Sends control requests to a running service, and waits until they have taken effect.

    request ──▶ control topic ──▶ the injector puts it on the next barrier ──▶ the batch that ends with or after it

Nothing is assumed about the service: the barrier is read where the upstream has its barriers, the outcome from the
journal, from which every reader computes the same (`streaming.core.jobs`). So any injector, anywhere, will do.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.errors import Code, ConfigError, EnvironmentProblem, TopicError
from schemas.job import JobDefinition
from schemas.mutations import BRANCHES, named
from schemas.records import Add, Barrier, Mutation
from schemas.settings.config import ServiceConfig
from schemas.topics import UpstreamTopics
from state.values.plan import JobState
from streaming.control.state_view import JobView, StateReader
from streaming.core.jobs import MutationReport, apply_mutation
from streaming.kafka.barriers import barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.errors import translated
from streaming.source.barriers.injecting.control_requests import (
    MAX_REQUEST_BYTES,
    ControlRequest,
    SuspendedAction,
    decode_request,
    encode_request,
    encode_suspended,
)
from streaming.source.barriers.injecting.control_topic import claim_on, create_control_topic, injector_id

_POLL_S = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Applied:
    """A mutation that took effect: the barrier that carried it, and how long that took."""

    barrier: Barrier
    report: MutationReport
    elapsed_s: float


REQUEST_TIMEOUT_S = 30.0
"""The greatest age of a request when a barrier takes it, unless another one is asked for."""


def send_request(
    kafka: KafkaSettings, topic: str, mutation: Mutation, *, timeout_s: float = REQUEST_TIMEOUT_S
) -> str:
    """Put a request into a control topic and wait until it is there; its id. Raises: EnvironmentProblem.

    A barrier takes it within `timeout_s`, or it is refused. Raises: ConfigError(USAGE) for one that is too long.
    """
    request = ControlRequest(uuid.uuid4().hex, mutation, max(round(timeout_s * 1_000), 1))
    value = encode_request(request)
    if len(value) > MAX_REQUEST_BYTES:
        raise ConfigError(
            Code.USAGE,
            found=f"a request of {len(value):,} bytes",
            expected=f"at most {MAX_REQUEST_BYTES:,}",
            next_step="write it into the service's configuration, and start that again",
        )
    _produce(kafka, topic, value)
    return request.id


def send_suspended(kafka: KafkaSettings, topic: str, action: SuspendedAction) -> tuple[str, int]:
    """Put a request to a suspended service into its control topic; its id and offset. Raises: EnvironmentProblem."""
    request_id = uuid.uuid4().hex
    return request_id, _produce(kafka, topic, encode_suspended(request_id, action))


def _produce(kafka: KafkaSettings, topic: str, value: bytes) -> int:
    """Write a record, and wait until it is there; its offset."""
    create_control_topic(kafka, topic)
    sent: list[Message] = []
    producer = Producer(kafka.producer())
    with translated(kafka, what=topic):
        # An idempotent producer asks for its id when it is made, and half a second later if no connection is up yet.
        producer.list_topics(topic, timeout=kafka.wait_s)
        producer.produce(topic, value, partition=0, on_delivery=lambda _error, message: sent.append(message))
        if producer.flush(kafka.wait_s):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        [message] = sent
        if (error := message.error()) is not None:
            raise KafkaException(error)
    return located(message)[1]


class ControlClient:
    """Sends requests to the service of one upstream. Use it as a context.

    `timeout_s` bounds the wait for a barrier, which no later one takes, and then for its batch.
    """

    def __init__(
        self, kafka: KafkaSettings, topics: UpstreamTopics, state_reader: StateReader, *, timeout_s: float
    ) -> None:
        self._kafka, self._topics, self._state_reader = kafka, topics, state_reader
        self._timeout_s = timeout_s
        self._reader = RangeReader(kafka)

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def send(self, mutation: Mutation) -> str:
        """Raises: EnvironmentProblem(NOT_SERVED), see `refuse_former`."""
        refuse_former(self._kafka, self._topics, mutation)
        return send_request(self._kafka, self._topics.control, mutation, timeout_s=self._timeout_s)

    def apply(self, mutation: Mutation) -> Applied:
        """Send a request and wait until it took effect.

        Raises:
            ConfigError: JOB_UNKNOWN, JOB_EXISTS, JOB_INVALID as the service refused it.
            EnvironmentProblem: NOT_SERVED when no barrier carries it, or no batch handles that, within the timeout.
        """
        began = time.monotonic()
        begin = _stable_end(self._reader, self._topics)
        self.send(mutation)
        as_sent = decode_request(encode_request(ControlRequest("as sent", mutation))).mutation
        search = _Search(self._reader, self._topics, begin, as_sent)
        barrier = self._await(
            search, "a barrier with it", "a request that none has taken by now is refused", _NO_INJECTOR
        )
        report = self._await(
            lambda: self._state_reader.report_on(barrier.curr),
            f"the batch of barrier {barrier.curr}, which has it",
            "it is carried out when that batch ends",
        )
        if report.refused is not None:
            raise refused(report)
        return Applied(barrier, report, time.monotonic() - began)

    def await_job(self, name: str) -> JobState:
        """A requested job, once its start barrier is in its output.

        Raises: TopicError(OUTPUT_TOPIC_MISMATCH) when its output topic turned out to be incompatible.
        """

        def opened() -> JobState | bool | None:
            seen = next((job for job in self._state_reader.jobs() if job.name == name), None)
            if seen is None:
                return False
            return seen if seen.opened else None

        found = self._await(opened, f"the first barrier of {name}", "the job is there, and begins with it")
        if isinstance(found, JobState):
            return found
        raise TopicError(
            Code.OUTPUT_TOPIC_MISMATCH,
            found=f"no job {name} any more: its output topic was found incompatible, or its schemas were refused",
            expected="a topic of that many partitions, and empty",
            next_step="see the service's log line `mutation`; create the job with another output",
        )

    def _await(self, read: Callable[[], _T | None], what: str, then: str, next_step: str | None = None) -> _T:
        deadline = time.monotonic() + self._timeout_s
        while (found := read()) is None:
            if time.monotonic() >= deadline:
                raise EnvironmentProblem(
                    Code.NOT_SERVED,
                    where=self._topics.data,
                    found=f"no sign of {what} within {self._timeout_s:g} s; {then}",
                    next_step=next_step,
                )
            time.sleep(_POLL_S)
        return found


def refuse(
    mutation: Mutation,
    epoch: int,
    jobs: Sequence[JobView],
    *,
    lanes: int,
    config: ServiceConfig,
    partitions: int | None,
) -> None:
    """Raises: ConfigError for a mutation that the service would refuse, the jobs being these at a barrier.

    `config` has the table in its version by now; `partitions` as in `apply_mutation`.
    """
    outcome = apply_mutation(
        mutation,
        epoch,
        tuple(job.state for job in jobs),
        lanes=lanes,
        start=epoch,
        table=config.table,
        partitions=partitions,
        read=[(job.name, job.state.start) for job in jobs if job.is_read],
    )
    for report in outcome.reports:
        if report.refused is not None:
            raise refused(report)
    if isinstance(mutation, Add):
        job = JobDefinition.from_json(mutation.job, config.table)
        if reason := job.scan.incompatibility_with_format(config.upstream_format):
            raise ConfigError(Code.JOB_INVALID, where=f"job {job.name}", found=reason)


def refuse_former(kafka: KafkaSettings, topics: UpstreamTopics, mutation: Mutation) -> None:
    """Refuse what travels under its name, where the claim on the upstream is of a version that knows no such ones.

    Raises: EnvironmentProblem(NOT_SERVED).
    """
    name = named(mutation)[0]
    if name in BRANCHES:
        return
    create_control_topic(kafka, topics.control)
    claim = claim_on(kafka, topics, injector_id(topics))
    if claim is not None and not claim.by_name:
        raise EnvironmentProblem(
            Code.NOT_SERVED,
            where=topics.data,
            found=f"barriers by {claim.who}, whose version knows no {name}; nothing was sent",
            next_step="update what writes the barriers, and every service that reads them before it; try again",
        )


def refused(report: MutationReport) -> ConfigError:
    """The error for a mutation that does not fit the jobs there are."""
    assert report.refused is not None
    return ConfigError(report.refused, found=report.text)


_NO_INJECTOR = "start the service (`backfill run`) or, with `barriers: embedded`, `backfill barriers`"


def _stable_end(reader: RangeReader, topics: UpstreamTopics) -> int:
    """Stable end of partition 0 of the topic with barriers; 0 for a barrier topic that is not created yet."""
    try:
        return reader.watermarks(topics.with_barriers)[0].stable
    except TopicError as error:
        if error.code is Code.TOPIC_MISSING and topics.barriers is not None:
            return 0
        raise


class _Search:
    """Searches the barriers of partition 0, as they come, for one with this mutation."""

    def __init__(self, reader: RangeReader, topics: UpstreamTopics, begin: int, mutation: Mutation) -> None:
        self._reader, self._topics, self._next, self._mutation = reader, topics, begin, mutation

    def __call__(self) -> Barrier | None:
        topic = self._topics.with_barriers
        end = _stable_end(self._reader, self._topics)
        begin, self._next = self._next, max(self._next, end)
        for chunk in self._reader.read(topic, {0: (begin, end)}):
            for message in chunk:
                barrier = barrier_in(message, beside=self._topics.barriers is not None)
                if barrier is not None and barrier.mutation == self._mutation:
                    return barrier
        return None

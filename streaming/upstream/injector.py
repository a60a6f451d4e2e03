"""The barrier injector: at each interval one barrier into every partition, in one transaction.

All copies of a barrier become visible together, so no two partitions disagree on the order of barriers. The
topic itself is the only memory: a new injector fences the one before, finds the last barrier at the ends of
the partitions, however much data follows it, and goes on from there.

What may fail, and what follows:

- *fenced*: another injector took over; this one is done. Unless its owner knows better (`is_ours`): an instance that
  was taken over from, and has yet to notice it, may still fence the one in its place.
- *outcome unknown*: open anew, look whether the barrier is there, and send one only if it is not.
- *broker away*: keep trying; the first barrier after the gap closes a long interval, nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

import structlog
from confluent_kafka import KafkaError, Message

from schemas.codec import barrier_header, decode_barrier, encode_barrier
from schemas.errors import Code, EnvironmentProblem, Fenced, InputError, OutcomeUnknown, TopicError
from schemas.records import BARRIER_HEADER, Barrier, Mutation
from state.plan import AlignedBarrier
from streaming.runtime import failpoints
from streaming.runtime.consumer import RangeReader, header_of, located, place
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.kafka import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.runtime.topics import require_topic
from streaming.runtime.transactions import TransactionalProducer
from streaming.upstream.inbox import Inbox
from streaming.upstream.schedule import next_barrier, next_due_ms

_OTHERS_TRANSACTIONS_S = TRANSACTION_TIMEOUT_MS / 1000 + 15
_ATTEMPTS = 3
_log = structlog.get_logger(__name__)


def unix_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def injector_id(upstream: str) -> str:
    """Transactional id, and consumer group on the control topic, of an upstream's one injector."""
    return f"{upstream}.barriers"


Places = frozenset[tuple[int, int]]
"""Records of a topic as (partition, offset)."""


def find_last_barrier(
    reader: RangeReader, topic: str, partitions: int, left_out: Places = frozenset()
) -> Barrier | None:
    """The barrier that was injected last, None for a topic without any; those `left_out` don't count.

    Raises:
        TopicError: PARTITIONS_CHANGED, the topic has other partitions than the barrier went to.
        InputError: BARRIER_DISAGREE, partitions end with different barriers; BARRIER_MALFORMED.
    """
    found = [_last_in(reader, topic, partition, left_out) for partition in range(partitions)]
    barriers = {barrier.curr: barrier for barrier in found if barrier is not None}
    if not barriers:
        return None
    last = barriers[max(barriers)]
    if last.partitions != partitions:
        raise TopicError(
            Code.PARTITIONS_CHANGED,
            where=topic,
            found=f"{partitions} partitions",
            expected=f"{last.partitions}, the number that the last barrier ({last.curr}) went to",
            next_step="a topic can't gain partitions while it is read: make a new topic and produce to it",
        )
    for partition, barrier in enumerate(found):
        if barrier is None or barrier.curr != last.curr:
            raise InputError(
                Code.BARRIER_DISAGREE,
                where=f"{topic}-{partition}",
                found=f"{barrier.curr if barrier else 'none'} as its last barrier",
                expected=f"{last.curr}, as in another partition",
                next_step="find what else wrote or removed barriers here; the topic can't be gone on with",
            )
    return last


def _last_in(reader: RangeReader, topic: str, partition: int, left_out: Places) -> Barrier | None:
    def is_barrier(record: Message) -> bool:
        return header_of(record, BARRIER_HEADER) is not None and located(record) not in left_out

    message = reader.last(topic, partition, is_barrier)
    if message is None:
        return None
    return decode_barrier(header_of(message, BARRIER_HEADER), message.value(), where=place(message))


class _Session:
    """One life of the transactional id: from the fencing of the predecessor to the first failure."""

    def __init__(self, settings: KafkaSettings, upstream: str, left_out: Places) -> None:
        self._upstream = upstream
        self._partitions = require_topic(settings, upstream)
        self._producer = TransactionalProducer(settings, injector_id(upstream))
        with RangeReader(settings) as reader:
            reader.await_stable(upstream, timeout_s=_OTHERS_TRANSACTIONS_S)
            self.last = find_last_barrier(reader, upstream, self._partitions, left_out)
        self._inbox = Inbox(settings, upstream, injector_id(upstream))

    def close(self) -> None:
        self._inbox.close()
        self._producer.close()

    def next_barrier(self, mutation: Mutation | None, now_ms: int) -> Barrier:
        """What to send next. Without a mutation of its own it takes the next wish."""
        if mutation is None:
            wish = self._inbox.take()
            mutation = wish.mutation if wish else None
        return next_barrier(self.last, partitions=self._partitions, now_ms=now_ms, mutation=mutation)

    def send(self, barrier: Barrier) -> AlignedBarrier:
        value, header = encode_barrier(barrier), barrier_header(barrier)
        offsets: dict[int, int] = {}

        def delivered(error: KafkaError | None, copy: Message) -> None:
            if error is None:  # otherwise the commit tells
                partition, offset = located(copy)
                offsets[partition] = offset

        with self._producer.transaction() as producer:
            for partition in range(self._partitions):
                producer.produce(
                    self._upstream,
                    value,
                    partition=partition,
                    headers=[(BARRIER_HEADER, header)],
                    on_delivery=delivered,
                )
            self._inbox.commit_with(producer)
            failpoints.reach(Failpoint.BARRIER_SENT)
        self.last = barrier
        failpoints.reach(Failpoint.BARRIER_COMMITTED)
        return AlignedBarrier(barrier, tuple(offsets[partition] for partition in range(self._partitions)))


def _not_ours(upstream: str) -> Fenced:
    return Fenced(
        Code.FENCED,
        where=injector_id(upstream),
        found="a newer instance of the service",
        expected="to be the only one",
        next_step="nothing: the newer instance injects the barriers",
    )


class BarrierInjector:
    """Injects barriers from a thread of its own (`start`, `stop`) or one by one (`inject_one`).

    Only one injector of an upstream is alive at a time: one that opens fences the one before, which then
    ends with `failure` set to Fenced. `clock` tells Unix milliseconds, for epochs and `injected_at`. `left_out`
    are records of the topic that look like barriers and are none. `is_ours`, asked after each take-over and each time
    that the thread was fenced, tells whether this injector is the one to go on. `on_barrier` hears of each barrier
    that is committed and where its copies are, but for one whose commit was left without an answer.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        upstream: str,
        interval_ms: int,
        *,
        clock: Callable[[], int] = unix_ms,
        left_out: Places = frozenset(),
        is_ours: Callable[[], bool] | None = None,
        on_barrier: Callable[[AlignedBarrier], None] = lambda barrier: None,
    ) -> None:
        self._settings, self._upstream = settings, upstream
        self._interval_ms, self._clock, self._left_out = interval_ms, clock, left_out
        self._is_ours, self._on_barrier = is_ours, on_barrier
        self._session: _Session | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_barrier: Barrier | None = None
        """The last barrier known to be in the topic: found there or sent."""
        self.failure: Exception | None = None
        """Why the thread ended by itself; a BackfillError unless it is a fault of ours."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take over, then inject a barrier at once and one at each interval, until `stop`.

        The first barrier is in the topic when this returns, unless what hindered it may pass.

        Raises what shows at once: TopicError, InputError, EnvironmentProblem. Later trouble is in `failure`.
        """
        with self._lock:
            self._open()
        self._inject_unless_hindered()
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="barrier-injector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a barrier under way is finished. Idempotent, also without a thread."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            self._close()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the thread has ended, by `stop` or by itself, within the time."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def check(self) -> None:
        """Raise what ended the thread, if something did."""
        if self.failure is not None:
            raise self.failure

    def inject_one(self, mutation: Mutation | None = None) -> Barrier:
        """Send the next barrier now and return it once it is committed.

        It carries `mutation`, or without one the oldest wish of the control topic.

        Raises: Fenced; EnvironmentProblem when the broker can't be reached; OutcomeUnknown only if the broker
            keeps losing its answers.
        """
        with self._lock:
            return self._inject(mutation)

    def _inject(self, mutation: Mutation | None) -> Barrier:
        sent: Barrier | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            session = self._open()
            if sent is not None and session.last is not None and session.last.curr == sent.curr:
                return sent  # the commit whose answer was lost did happen
            try:
                sent = session.next_barrier(mutation, self._clock())
                placed = session.send(sent)
            except OutcomeUnknown:
                self._close()
                if attempt == _ATTEMPTS:
                    raise
            except BaseException:
                self._close()
                raise
            else:
                self.last_barrier = sent
                self._on_barrier(placed)
                return sent
        raise AssertionError("the last attempt returned or raised")

    def _open(self) -> _Session:
        if self._session is None:
            self._session = _Session(self._settings, self._upstream, self._left_out)
            self.last_barrier = self._session.last
            if self._is_ours is not None and not self._is_ours():
                self._close()
                raise _not_ours(self._upstream)
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _run(self) -> None:
        due_ms = time.monotonic_ns() // 1_000_000 + self._interval_ms
        while not self._ending.wait(max(0, due_ms - time.monotonic_ns() // 1_000_000) / 1000):
            try:
                self._inject_unless_hindered()
            except Exception as failure:  # noqa: BLE001  # its owner has to learn of it, whatever it is
                _log.error("barriers_ended", upstream=self._upstream, reason=type(failure).__name__)
                self.failure = failure
                return
            due_ms = next_due_ms(due_ms, time.monotonic_ns() // 1_000_000, self._interval_ms)

    def _inject_unless_hindered(self) -> None:
        try:
            self.inject_one()
        except (EnvironmentProblem, OutcomeUnknown, Fenced) as trouble:
            if isinstance(trouble, Fenced) and (self._is_ours is None or not self._is_ours()):
                raise
            _log.warning("barrier_delayed", upstream=self._upstream, code=str(trouble.code))

"""The barrier injector: at each interval one barrier for every partition, in one transaction.

A control request does not wait for its turn, nor does a service that asks for a barrier (`hasten`): one is sent at
once, and the interval begins anew.

All copies of a barrier become visible together, so no two partitions disagree on the order of barriers. The
topic itself is the only memory: a new injector fences the one before, finds the last barrier at the ends of
the partitions, however much data follows it, and goes on from there.

What may fail, and what follows:

- *another owner*: a topic has the barriers of one state (`claim`); a living owner is left alone.
- *fenced*: another injector took over; this one is done. Unless the state is still this instance's (`is_ours`): one
  that it has taken over from, and that has yet to notice, may still fence it.
- *outcome unknown*: open anew, look whether the barrier is there, and send one only if it is not.
- *broker away*: keep trying, with new clients: an old one may ask nothing any more once a stalled broker is back. The
  first barrier after the gap closes a long interval, nothing else.

Epochs are made from the wall clock, and the schedule runs on a monotonic one: a clock that is set back makes epochs
follow each other closely, never a barrier early or late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Self

import structlog

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.errors import BackfillError, Code, EnvironmentProblem, Fenced, OutcomeUnknown, TopicError
from schemas.records import Barrier, BarrierKind, Mutation
from schemas.settings.config import MIN_BARRIER_INTERVAL_MS
from state.values.aligned import AlignedBarrier
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import admin, partitions_of
from streaming.kafka.transactions import TransactionalProducer
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.timing import monotonic_ms
from streaming.source.barriers.injecting.claim import ALONE, BarrierWatch, Claim, outlive, taken, who
from streaming.source.barriers.injecting.control_topic import ControlTopic, claim_on, injector_id, other_than
from streaming.source.barriers.injecting.target import BarrierTarget

_OTHERS_TRANSACTIONS_S = TRANSACTION_TIMEOUT_MS / 1000 + 15
_ATTEMPTS = 3
_END_WITHIN_S = 5.0
_LOOK_EVERY_MS = 50

_log = structlog.get_logger(__name__)


def next_barrier(last: Barrier | None, *, partitions: int, now_ms: int, mutation: Mutation | None) -> Barrier:
    """The barrier after `last` (None: the topic has none) at the wall-clock instant `now_ms`.

    A topic's first barrier is INITIAL and has prev 0. All others are CHECKPOINT: the service makes each
    barrier durable, so there is nothing for the kind BARRIER to say.
    """
    prev = NO_EPOCH if last is None else last.curr
    return Barrier(
        curr=next_epoch(prev, now_ms),
        prev=prev,
        kind=BarrierKind.INITIAL if last is None else BarrierKind.CHECKPOINT,
        partitions=partitions,
        injected_at_ms=now_ms,
        mutation=mutation,
    )


def is_wanted(after: int | None, last: Barrier | None) -> bool:
    """True if a barrier behind the epoch `after` (None: not wanted) has yet to be sent, `last` being the newest.

    One that came while its batch ran is enough. Were another one sent, each change would wait for two batches before
    its own, not for one: a backfill with a latency budget of 2 s had a median of 1.5 to 1.7 s, not of 1.4 s.
    """
    return after is not None and (last is None or last.curr <= after)


def next_due_ms(due_ms: int, now_ms: int, interval_ms: int) -> int:
    """The time, in milliseconds, at which the barrier after the one that was due at `due_ms` is due.

    Always a whole number of intervals after it, so the schedule does not drift; and never in the past, so a
    stall is followed by one barrier, not by one for each that was missed.
    """
    return due_ms + max(1, -((due_ms - now_ms) // interval_ms)) * interval_ms


def unix_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


class _Session:
    """One life of the transactional id: from the fencing of the predecessor to the first failure."""

    def __init__(
        self,
        settings: KafkaSettings,
        target: BarrierTarget,
        claim: Claim,
        clock: Callable[[], int],
    ) -> None:
        self._settings, self._target, topics = settings, target, target.topics
        self._partitions = target.open(settings)
        self._admin = admin(settings)
        name = injector_id(topics)
        with ExitStack() as opening, RangeReader(settings) as reader:
            self._control_topic = opening.enter_context(closing(ControlTopic(settings, topics, name, claim)))
            other, seen = other_than(claim, claim_on(settings, topics, name)), None
            if other is not None:
                newer = BarrierWatch(reader, topics.with_barriers)
                seen = target.last_near(reader)
                outlive(other, topics.with_barriers, seen, newer, clock())
            self._producer = opening.enter_context(TransactionalProducer(settings, name))
            reader.await_stable(topics.with_barriers, timeout_s=_OTHERS_TRANSACTIONS_S)
            self.last = target.last(reader, self._partitions)
            # Decisive: no other injector can have claimed it since this one has fenced them.
            now = self._control_topic.open(self.last)
            if now is not None and (now != other or seen != self.last):
                raise taken(now, topics.with_barriers)
            opening.pop_all()

    def close(self) -> None:
        self._control_topic.close()
        self._producer.close()

    def has_partitions(self) -> bool:
        """False once the data has gained partitions. Asked before each barrier, which may close records in them."""
        found = partitions_of(self._settings, self._target.topics.data, client=self._admin)
        return found is None or found <= self._partitions

    def next_barrier(self, mutation: Mutation | None, now_ms: int) -> Barrier:
        """The barrier to send next. Without a `mutation` it takes the next request."""
        if mutation is None:
            request = self._control_topic.take(now_ms)
            mutation = request.mutation if request else None
        barrier = next_barrier(self.last, partitions=self._partitions, now_ms=now_ms, mutation=mutation)
        # In a topic of their own all of an upstream's barriers are full: they have no progress that could be missing.
        return replace(barrier, full=self._target.topics.barriers is not None)

    def await_request(self, timeout_s: float) -> bool:
        return self._control_topic.await_request(timeout_s)

    def send(self, barrier: Barrier) -> AlignedBarrier:
        with self._producer.transaction() as producer:
            ends = self._target.send(producer, barrier)
            self._control_topic.commit_with(producer)
            failpoints.reach(Failpoint.BARRIER_SENT)
        self.last = barrier
        failpoints.reach(Failpoint.BARRIER_COMMITTED)
        return AlignedBarrier(barrier, ends(), in_data=self._target.topics.barriers is None)


class BarrierInjector:
    """Injects barriers from a thread of its own (`start`, `stop`) or one by one (`inject_one`).

    Only one injector of a target is alive at a time: one that opens fences the one before, which then ends with
    `failure` set to Fenced. `clock` gives Unix milliseconds, for epochs and `injected_at`. `is_ours` is asked after
    each take-over and each time that the thread was fenced: whether this injector may go on. `on_barrier` is called
    with each barrier that is committed, but for one whose commit was left without an answer. `owner` is the id of the
    state that it injects for, by which its successors know it.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        target: BarrierTarget,
        interval_ms: int,
        *,
        clock: Callable[[], int] = unix_ms,
        is_ours: Callable[[], bool] | None = None,
        on_barrier: Callable[[AlignedBarrier], None] = lambda barrier: None,
        owner: str = ALONE,
    ) -> None:
        self._settings, self._target = settings, target
        self._interval_ms, self._clock = interval_ms, clock
        self._is_ours, self._on_barrier = is_ours, on_barrier
        self._claim = Claim(owner, interval_ms, who())
        self._session: _Session | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._wanted_after: int | None = None
        self._thread: threading.Thread | None = None
        self.last_barrier: Barrier | None = None
        """The last barrier known to be in the topic: found there or sent."""
        self.failure: Exception | None = None
        """The error that ended the thread; a BackfillError unless it is a bug of ours."""
        self.problem: BackfillError | None = None
        """A transient problem that keeps the thread from injecting; None without."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take over, then inject a barrier at once and one at each interval, until `stop`.

        The first barrier is in the topic when this returns, unless a transient problem prevented it (`problem`).

        Raises, for what shows at once: TopicError (BARRIERS_TAKEN when another owner's injector lives), InputError,
            EnvironmentProblem. Later trouble is in `failure`.
        """
        with self._lock:
            self._open()
        self._inject_unless_hindered()
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="barrier-injector", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a barrier under way is finished, if that takes no more than some seconds.

        Idempotent, also without a thread.
        """
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_END_WITHIN_S)
            if self._thread.is_alive():
                return  # it asks a broker that is away, and closes what it has opened when it is through
            self._thread = None
        with self._lock:
            self._close()

    def hasten(self, after: int) -> None:
        """Have the thread send its next barrier at once, unless one behind the epoch `after` is there, or under way.

        Called by any thread.
        """
        self._wanted_after = after

    def wait(self, timeout_s: float | None = None) -> bool:
        """True if the thread ends, by `stop` or by itself, within the time."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def inject_one(self, mutation: Mutation | None = None) -> Barrier:
        """Send the next barrier now and return it once it is committed.

        It carries `mutation`, or without one the oldest request of the control topic.

        Raises: Fenced; EnvironmentProblem when the broker can't be reached; OutcomeUnknown only if the broker
            keeps losing its answers.
        """
        with self._lock:
            return self._inject(mutation)

    def _inject(self, mutation: Mutation | None) -> Barrier:
        sent: Barrier | None = None
        for attempt in range(1, _ATTEMPTS + 1):
            session = self._open()
            try:
                if not session.has_partitions():
                    self._close()
                    session = self._open()
                if sent is not None and session.last is not None and session.last.curr == sent.curr:
                    return sent  # the commit whose answer was lost did happen
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
            self._session = _Session(self._settings, self._target, self._claim, self._clock)
            self.last_barrier = self._session.last
            if self._is_ours is not None and not self._is_ours():
                self._close()
                where, found = injector_id(self._target.topics), "a newer instance of the service"
                raise Fenced(Code.FENCED, where=where, found=found)
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _run(self) -> None:
        self._inject_at_each_interval()
        with self._lock:
            if self._ending.is_set():
                self._close()

    def _inject_at_each_interval(self) -> None:
        due_ms = monotonic_ms() + self._interval_ms
        try:
            while (turn_ms := self._await_turn(due_ms)) is not None:
                self._inject_unless_hindered()
                due_ms = next_due_ms(turn_ms, monotonic_ms(), self._interval_ms)
        except Exception as failure:  # noqa: BLE001  # its owner has to learn of it, whatever it is
            _log.error("barriers_ended", upstream=self._target.topics.data, reason=type(failure).__name__)
            self.failure = failure

    def _await_turn(self, due_ms: int) -> int | None:
        """Wait until a barrier is due, or asked for: from when on the next interval counts. None: it is to end."""
        asked, least_ms = False, monotonic_ms() + MIN_BARRIER_INTERVAL_MS
        while not self._ending.is_set() and (left_ms := due_ms - monotonic_ms()) > 0:
            look_s = min(left_ms, _LOOK_EVERY_MS) / 1_000
            asked = asked or is_wanted(self._wanted_after, self.last_barrier)
            if self._session is None or asked:
                self._ending.wait(look_s)
            else:
                asked = self._session.await_request(look_s)
            if asked and monotonic_ms() >= least_ms:
                break
        self._wanted_after = None
        return None if self._ending.is_set() else min(due_ms, monotonic_ms())

    def _inject_unless_hindered(self) -> None:
        try:
            self.inject_one()
        except (EnvironmentProblem, OutcomeUnknown, Fenced, TopicError) as trouble:
            if isinstance(trouble, Fenced) and (self._is_ours is None or not self._is_ours()):
                raise
            if isinstance(trouble, TopicError) and trouble.code is not Code.BARRIER_STALLED:
                raise
            self.problem = trouble
            _log.warning(
                "barrier_delayed",
                upstream=self._target.topics.data,
                code=trouble.code,
                found=trouble.found,
                next_step=trouble.next_step,
            )
        else:
            self.problem = None

"""The door for sinks: what a service asks of whatever its jobs write to.

A job names the kind of its sink (`schemas.kinds.sinks`); `streaming.sink.kinds` has what carries it out. Two parts:

    Sink, in the driver     check ──▶ fence ──▶ tails, begins, endings ──▶ refuse_used ──▶ open
                            a start   a take-over   a recovery             before a plan   once it is in the journal
    Writer, in a worker     open_writer ──▶ already_sent ──▶ rows, changes, barrier, letter in a transaction ──▶ ends
                            a lane, a batch

An output has as many partitions as its job says, and keeps the order of what is written to each. What committed readers
see of a partition ends with a barrier; a transaction of a lane adds to it as a whole, up to the batch's last barrier,
or not at all. Exactly once is made from three promises of a sink: a writer that is open has fenced those before it with
its id; what a fenced writer had not committed is never seen; and `already_sent` sees what was committed, also by a
writer whose result was lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from schemas.errors import Code, StateError, TopicError
from schemas.job import JobDefinition
from schemas.records import Barrier
from streaming.kafka.barriers import BarrierCut
from streaming.sink.columns import Output, OutputChanges, SinkPartition, SnapshotRows
from streaming.sink.dead_letters import DeadLetter

Mark = tuple[int, ...]
"""How far a partition is filled. Only the sink that made it reads it; to all others it is opaque."""


class Writer(Protocol):
    """Takes what one lane sends for one batch. Inherit from it: methods that are not abstract are optional.

    All calls come from one thread. Opened anew for every attempt, and never used after an error.
    """

    @abstractmethod
    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        """Whether the batch that ends with barrier `epoch` is in these partitions, all of the lane's in this sink.

        Called once, before all else; what is under way from a fenced writer is decided by then. `before` says with
        which barrier each ends if it is not (None: it is empty): there is no third, see `is_sent`. `known_ends` is what
        `ends` gave for the last batch, as far as that is known: a partition that still ends there holds nothing new.

        Raises: StateError(OUTPUT_OUT_OF_STEP) for a third end; TopicError(FOREIGN_RECORDS) for what is no lane's;
        TopicError(OUTPUT_TOPIC_MISSING) for an output that is gone, or emptied; EnvironmentProblem.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """The one transaction, at most one: committed when its block ends, aborted when it raises.

        Raises: Fenced; OutcomeUnknown when it may have been committed; EnvironmentProblem when it was aborted.
        """

    @abstractmethod
    def rows(self, rows: SnapshotRows) -> None:
        """Write rows of a snapshot read, in this order. In the transaction, like all that follows."""

    @abstractmethod
    def changes(self, run: OutputChanges) -> None:
        """Write changes, those of a partition in this order."""

    @abstractmethod
    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        """Write a barrier behind all that was written to its partition."""

    @abstractmethod
    def letter(self, output: Output, letter: DeadLetter) -> None:
        """Write a dead letter to those of the output's job; `Sink.open_letters` was called for it."""

    def ends(self) -> Mapping[SinkPartition, Mark]:
        """Where the partitions end once the transaction is committed, or if there was none. No request is made.

        The driver passes it to the writers of the next batch, as `known_ends`, even if partitions have moved to other
        lanes. Leave it empty in a sink whose `already_sent` does not need it.
        """
        return {}


OpenWriter = Callable[[str, int], AbstractContextManager[Writer]]
"""Opens a writer with an id, which fences all writers before it with that id and ends what these left open.

The second argument is how long its transaction may take, in milliseconds: a sink may abort it then. It goes to the
lanes by pickle, for every batch. Raises: Fenced, OutcomeUnknown, EnvironmentProblem.
"""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a partition of an output ends: its last barrier (None: it is empty), and those that carry progress."""

    last: int | None = None
    reported: tuple[Barrier, ...] = ()


class Sink(Protocol):
    """The driver's side; each call is about one job. Inherit from it: methods that are not abstract are optional.

    A sink holds no state of its own: it may be created again at any time, in other processes too. Methods marked
    "Read-only" may be called any number of times from any thread, also by commands and the API; the others only by the
    driver's one thread.
    """

    @property
    @abstractmethod
    def open_writer(self) -> OpenWriter:
        """What lanes open their writers with."""

    def check(self, job: JobDefinition) -> None:
        """At a start: whether the output, if it exists, is what the job says. Read-only. Raises: TopicError."""
        return

    @abstractmethod
    def refuse_used(self, job: JobDefinition) -> None:
        """Before the plan that opens a job: its topics must not exist yet, or be fit and empty. Read-only.

        Aborted records do not count. Raises: TopicError, such as SAME_TOPIC and OUTPUT_TOPIC_MISMATCH.
        """

    def open(self, job: JobDefinition) -> None:
        """Create what a job writes to; the journal has the plan that opens it. Idempotent: what exists stays as it is.

        An output with records is no error: the plan's lanes may have sent them before a crash. Raises: TopicError, and
        the plan goes on without the job.
        """
        return

    def record_bytes(self, job: JobDefinition) -> int | None:
        """Key and value that a record of its output may have at most; None if that is not known. Read-only.

        Raises: EnvironmentProblem.
        """
        return None

    def open_letters(self, job: JobDefinition) -> None:
        """Create the place for the job's dead letters, before lanes write any. Idempotent. Raises: TopicError."""
        return

    def fence(self, writer_ids: Sequence[str]) -> None:
        """After a take-over: fence the writers with these ids, and abort or commit what they left open."""
        for writer_id in writer_ids:
            with self.open_writer(writer_id, FENCE_TIMEOUT_MS):
                pass

    def delete_barriers(self, job: JobDefinition, cut: BarrierCut) -> int:
        """Delete what lies before the newest full barrier within the cut, by partition, where barriers stand apart.

        Called by a thread of its own, behind a finished batch. Returns how much is gone; 0 in a sink that keeps all.
        Raises: EnvironmentProblem, TopicError when it is refused, which is no fault.
        """
        return 0

    # By these a state that is older than its outputs is brought forward (`streaming.protocol.recovery`). They are
    # read-only, and read what committed readers see, once no transaction there is open. A sink without them refuses
    # such a state, by `already_sent`.

    def tails(self, job: JobDefinition) -> Sequence[Barrier | None] | None:
        """The last barrier of each partition (None: it is empty). None if the output does not exist.

        Raises: TopicError(FOREIGN_RECORDS) when a partition ends with no barrier.
        """
        return None

    def begins(self, job: JobDefinition) -> Sequence[Barrier | None]:
        """Each partition's first barrier (None: it is empty). () if there is no output of this service.

        It is the one that the job starts with, unless those before a full one were deleted.
        """
        return ()

    def endings(self, job: JobDefinition, after: int) -> Sequence[Ending]:
        """The end of each partition, with its barriers after this epoch that carry progress; 0 reads all of it.

        () if the output does not exist. Raises: as `tails`.
        """
        return ()


FENCE_TIMEOUT_MS = 60_000
SinkOf = Callable[[JobDefinition], Sink]
"""The sink of a job, see `streaming.sink.kinds.Sinks`."""


def is_sent(
    tails: Mapping[SinkPartition, int | None], before: Mapping[SinkPartition, int | None], epoch: int
) -> bool:
    """Whether partitions with these last barriers hold the batch up to `epoch`: the answer of `Writer.already_sent`.

    None stands for an empty partition. Raises: StateError(OUTPUT_OUT_OF_STEP) for a third barrier;
    TopicError(FOREIGN_RECORDS) when partitions that are written together differ.
    """
    for place, tail in tails.items():
        if tail not in (before[place], epoch):
            raise StateError(
                Code.OUTPUT_OUT_OF_STEP,
                where=f"{place.topic}-{place.partition}",
                found=f"a partition that ends with barrier {tail}",
                expected=f"{before[place]} or {epoch}, as the state says",
            )
    sent = {tail == epoch for tail in tails.values()}
    if len(sent) > 1:
        raise foreign_records(
            next(iter(tails)).topic, "partitions of one transaction that end with different barriers"
        )
    return sent == {True}


def output_missing(topic: str, found: str) -> TopicError:
    """The error for an output that is gone. It is never created again: it would lack what was in it."""
    return TopicError(Code.OUTPUT_TOPIC_MISSING, where=topic, found=found)


def foreign_records(where: str, found: str) -> TopicError:
    """The error for records in an output that this service has not written."""
    return TopicError(Code.FOREIGN_RECORDS, where=where, found=found)

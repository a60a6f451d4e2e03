"""The contract of a sink, to which jobs write.

A job names the kind of its sink (`schemas.kinds.configs`); `streaming.sink.kinds` has the implementations. Two parts:

    Sink, in the driver     check ──▶ fence ──▶ tails, begins, endings ──▶ refuse_used ──▶ open
                            a start   a take-over   a recovery             before a plan   once it is in the journal
    Writer, in a worker     open_writer ──▶ already_sent ──▶ rows, changes, barrier, letter in a transaction ──▶ ends
                            a lane, a batch

An output has the number of partitions in its job, and keeps the order of writes to each. The committed part of a
partition ends with a barrier; a transaction of a lane adds to it as a whole, up to the batch's last barrier, or not at
all. Exactly once is made from three promises of a sink: an open writer has fenced those before it with its id;
uncommitted writes of a fenced writer are never visible; and `already_sent` sees committed writes, also those of a
writer whose result was lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from schemas.errors import BackfillError, Code, ConfigError, StateError, TopicError
from schemas.job import JobDefinition
from schemas.kinds.configs import SinkConfig
from schemas.records import Barrier
from streaming.kafka.barriers import BarrierCut
from streaming.sink.columns import OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.output import Output, SinkPartition

Mark = tuple[int, ...]
"""The end of a partition, opaque to all but the sink that made it."""


def is_of_job(error: BackfillError, job: JobDefinition) -> bool:
    """True for an error of a job or of its topics, such as a right that is missing there, and not of the broker."""
    lacks_right = error.code is Code.AUTH_FAILED and error.where in job.topics
    return lacks_right or isinstance(error, ConfigError | TopicError)


class Writer(Protocol):
    """Writes the data of one lane for one batch. Inherit from it: methods that are not abstract are optional.

    For one thread. Opened anew for every attempt, and never used after an error.
    """

    @abstractmethod
    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        """True if the batch that ends with barrier `epoch` is in these partitions, all of the lane's in this sink.

        Called once, before all else; transactions of fenced writers are decided by then. `before` has the last barrier
        of each if it is not (None: empty); any third one is an error, see `is_sent`. `known_ends` are the results of
        `ends` for the last batch, as far as they are known: a partition that still ends there holds nothing new.

        Raises: StateError(OUTPUT_OUT_OF_STEP) for a third end; TopicError(FOREIGN_RECORDS) for records of others;
        TopicError(OUTPUT_TOPIC_MISSING) for an output that is gone, or emptied; EnvironmentProblem.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[object]:
        """The one transaction, at most one: committed when its block ends, aborted when it raises.

        Raises: Fenced; OutcomeUnknown when it may have been committed; EnvironmentProblem when it was aborted.
        """

    @abstractmethod
    def rows(self, rows: SnapshotRows) -> None:
        """Write rows of a snapshot read, in this order, in the transaction."""

    @abstractmethod
    def changes(self, run: OutputChanges) -> None:
        """Write changes in the transaction, those of a partition in this order."""

    @abstractmethod
    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        """Write a barrier in the transaction, behind everything written to its partition."""

    @abstractmethod
    def letter(self, output: Output, letter: DeadLetter) -> None:
        """Write a dead letter of the output's job in the transaction; `Sink.open_letters` was called for it."""

    def ends(self) -> Mapping[SinkPartition, Mark]:
        """The ends of the partitions once the transaction is committed, or if there was none. No request is made.

        The driver passes it to the writers of the next batch, as `known_ends`, even if partitions have moved to other
        lanes. Leave it empty in a sink whose `already_sent` does not need it.
        """
        return {}


OpenWriter = Callable[[str, int], AbstractContextManager[Writer]]
"""Opens a writer with an id, which fences all writers before it with that id and ends their open transactions.

The second argument is the timeout of its transaction in milliseconds: a sink may abort it then. It is pickled to the
lanes for every batch. Raises: Fenced, OutcomeUnknown, EnvironmentProblem.
"""


class NullWriter(Writer):
    """Discards everything: a repeated batch still has to count its rows, though its sink has it already."""

    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        return True

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def rows(self, rows: SnapshotRows) -> None:
        pass

    def changes(self, run: OutputChanges) -> None:
        pass

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        pass

    def letter(self, output: Output, letter: DeadLetter) -> None:
        pass


class LaneWriters:
    """The open writers of one lane, by sink. Call `already_sent` first: it decides which sinks are written to.

    Each sink has a transaction of its own, so a crash can leave a batch in some of them. The lane's next run finds it
    there and sends the rest; with the same plan that is the same batch.
    """

    def __init__(self, opened: Mapping[SinkConfig, Writer]) -> None:
        self._opened = opened
        self._writing: dict[SinkConfig, Writer] = dict(opened)

    def already_sent(
        self,
        before: Mapping[SinkConfig, Mapping[SinkPartition, int | None]],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> list[bool]:
        """True for each sink that has the batch, as `Writer.already_sent`; nothing more is written to those."""
        found = {
            sink: writer.already_sent(before[sink], epoch, known_ends)
            for sink, writer in self._opened.items()
        }
        self._writing |= {sink: NullWriter() for sink, has_batch in found.items() if has_batch}
        return list(found.values())

    def writer_for(self, output: Output) -> Writer:
        """The writer of an output's sink."""
        return self._writing[output.definition.sink]

    def lacks(self, output: Output) -> bool:
        """True if an output's sink lacks the batch, so that writes to it are sent."""
        return not isinstance(self.writer_for(output), NullWriter)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction in each sink that lacks the batch. They commit one after another, not atomically."""
        with ExitStack() as stack:
            for writer in self._writing.values():
                stack.enter_context(writer.transaction())
            yield

    def ends(self) -> dict[SinkPartition, Mark]:
        """The marks of all sinks' partitions, as `Writer.ends`."""
        return {target: end for writer in self._opened.values() for target, end in writer.ends().items()}


@contextmanager
def open_writers(
    openers: Mapping[SinkConfig, OpenWriter], sinks: Iterable[SinkConfig], writer_id: str, timeout_ms: int
) -> Iterator[LaneWriters]:
    """Writers for these sinks. Raises: as `OpenWriter`."""
    with ExitStack() as stack:
        yield LaneWriters(
            {sink: stack.enter_context(openers[sink](writer_id, timeout_ms)) for sink in dict.fromkeys(sinks)}
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a partition: the epoch of its last barrier (None: empty), and barriers with progress or columns."""

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
        """The opener of this sink's writers."""

    def check(self, job: JobDefinition, *, gains: bool = False) -> None:
        """At a start: check that the output, if it exists, matches the job. Read-only. Raises: TopicError.

        One that `gains` partitions with its next batch may have fewer.
        """
        return

    @abstractmethod
    def refuse_used(self, job: JobDefinition) -> None:
        """Before the plan that opens a job: check that its topics do not exist, or match it and are empty. Read-only.

        Aborted records do not count. Raises: TopicError, such as SAME_TOPIC and OUTPUT_TOPIC_MISMATCH.
        """

    def open(self, job: JobDefinition) -> None:
        """Create a job's output; the journal has the plan that opens it. Idempotent: an existing output stays as it is.

        An output with the upstream's partitions gains those that it lacks.

        An output with records is no error: the plan's lanes may have sent them before a crash. Raises: TopicError, and
        the plan goes on without the job.
        """
        return

    def record_bytes(self, job: JobDefinition) -> int | None:
        """The limit of a record's key and value together, in bytes; None if it is not known. Read-only.

        Raises: EnvironmentProblem.
        """
        return None

    def open_letters(self, job: JobDefinition) -> None:
        """Create the destination of the job's dead letters, before lanes write any. Idempotent. Raises: TopicError."""
        return

    def fence(self, writer_ids: Sequence[str]) -> None:
        """After a take-over: fence the writers with these ids, and end their open transactions."""
        for writer_id in writer_ids:
            with self.open_writer(writer_id, FENCE_TIMEOUT_MS):
                pass

    def delete_barriers(self, job: JobDefinition, cut: BarrierCut) -> int:
        """Delete the barriers of a separate topic before the newest full one within the cut, by partition.

        Called by a thread of its own, behind a finished batch. Returns the number of deleted offsets; 0 in a sink that
        keeps all. Raises: EnvironmentProblem; TopicError when it is refused.
        """
        return 0

    # With these a state that is older than its outputs is brought forward (`streaming.protocol.recovery`). They are
    # read-only, and read committed data once no transaction is open. A sink without them refuses such a state in
    # `already_sent`.

    def tails(self, job: JobDefinition) -> Sequence[Barrier | None] | None:
        """The last barrier of each partition (None: it is empty). None if the output does not exist.

        Raises: TopicError(FOREIGN_RECORDS) when a partition ends with no barrier.
        """
        return None

    def begins(self, job: JobDefinition) -> Sequence[Barrier | None]:
        """Each partition's first barrier (None: it is empty). () if there is no output of this service.

        It is the job's start barrier, unless those before a full one were deleted.
        """
        return ()

    def endings(self, job: JobDefinition, after: int) -> Sequence[Ending]:
        """The end of each partition, with its barriers after this epoch that have progress or columns; 0 reads all.

        () if the output does not exist. Raises: as `tails`.
        """
        return ()


FENCE_TIMEOUT_MS = 60_000
SinkOf = Callable[[JobDefinition], Sink]
"""The sink of a job, see `streaming.sink.kinds.Sinks`."""


def is_sent(
    tails: Mapping[SinkPartition, int | None], before: Mapping[SinkPartition, int | None], epoch: int
) -> bool:
    """True if partitions with these last barriers hold the batch up to `epoch`: the result of `Writer.already_sent`.

    None stands for an empty partition. Raises: StateError(OUTPUT_OUT_OF_STEP) for a third barrier;
    TopicError(FOREIGN_RECORDS) when partitions that are written together differ.
    """
    for target, tail in tails.items():
        if tail not in (before[target], epoch):
            raise StateError(
                Code.OUTPUT_OUT_OF_STEP,
                where=f"{target.topic}-{target.partition}",
                found=f"a partition that ends with barrier {tail}",
                expected=f"{before[target]} or {epoch}, as the state says",
            )
    sent = {tail == epoch for tail in tails.values()}
    if len(sent) > 1:
        raise foreign_records(
            next(iter(tails)).topic, "partitions of one transaction that end with different barriers"
        )
    return sent == {True}


def output_missing(topic: str, found: str) -> TopicError:
    """The error for an output that is gone. It is never created again, because it would lack its records."""
    return TopicError(Code.OUTPUT_TOPIC_MISSING, where=topic, found=found)


def foreign_records(where: str, found: str) -> TopicError:
    """The error for records in an output that others have written."""
    return TopicError(Code.FOREIGN_RECORDS, where=where, found=found)

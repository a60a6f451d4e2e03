"""The writers of a lane, one for each sink of its jobs.

Each sink has a transaction of its own, so a crash can leave a batch in some of them. The lane's next run finds it there
and sends the rest; with the same plan that is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from schemas.kinds.sinks import SinkConfig
from schemas.records import Barrier
from streaming.sink.columns import OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Mark, OpenWriter, Writer


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
    """The open writers of one lane, by sink. Call `already_sent` first: it decides which sinks are written to."""

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

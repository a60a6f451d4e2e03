"""The writers of a lane, one for each sink that its jobs have, as one.

Each sink has a transaction of its own, so a crash can leave a batch in some of them. The lane's next run finds it there
and sends the rest; with the same plan that is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from schemas.kinds.sinks import SinkConfig
from schemas.records import Barrier
from streaming.sink.columns import Output, OutputPartition, Rows, Run
from streaming.sink.dead_letters import Letter
from streaming.sink.protocol import Mark, OpenWriter, Writer


class NullWriter(Writer):
    """Writes nothing: a batch that is run again still has to count its rows."""

    def already_sent(
        self,
        before: Mapping[OutputPartition, int | None],
        epoch: int,
        known_ends: Mapping[OutputPartition, Mark],
    ) -> bool:
        """It takes a batch for sent."""
        return True

    def transaction(self) -> AbstractContextManager[object]:
        """Of nothing."""
        return nullcontext()

    def rows(self, rows: Rows) -> None:
        """Nothing."""

    def changes(self, run: Run) -> None:
        """Nothing."""

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        """Nothing."""

    def letter(self, output: Output, letter: Letter) -> None:
        """Nothing."""


class LaneWriters:
    """See `open_writers`. Before `look` nothing is written."""

    def __init__(self, opened: Mapping[SinkConfig, Writer]) -> None:
        self._opened = opened
        self._writing: dict[SinkConfig, Writer] = dict(opened)

    def look(
        self,
        before: Mapping[SinkConfig, Mapping[OutputPartition, int | None]],
        epoch: int,
        known_ends: Mapping[OutputPartition, Mark],
    ) -> list[bool]:
        """Whether the batch is in each of the sinks, as `Writer.already_sent`; it isn't written to those any more."""
        found = {
            sink: writer.already_sent(before[sink], epoch, known_ends)
            for sink, writer in self._opened.items()
        }
        self._writing |= {sink: NullWriter() for sink, already_sent in found.items() if already_sent}
        return list(found.values())

    def of(self, output: Output) -> Writer:
        """Where an output's columns go."""
        return self._writing[output.definition.sink]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Those of all sinks that have not got the batch."""
        with ExitStack() as stack:
            for writer in self._writing.values():
                stack.enter_context(writer.transaction())
            yield

    def ends(self) -> dict[OutputPartition, Mark]:
        """Of all partitions, as `Writer.ends`."""
        return {place: end for writer in self._opened.values() for place, end in writer.ends().items()}


@contextmanager
def open_writers(
    openers: Mapping[SinkConfig, OpenWriter], sinks: Iterable[SinkConfig], writer_id: str, timeout_ms: int
) -> Iterator[LaneWriters]:
    """Writers for these sinks. Raises: as `OpenWriter`."""
    with ExitStack() as stack:
        yield LaneWriters(
            {sink: stack.enter_context(openers[sink](writer_id, timeout_ms)) for sink in dict.fromkeys(sinks)}
        )

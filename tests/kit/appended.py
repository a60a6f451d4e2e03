"""An upstream of rows without identity in memory: what `Upstream` is for a table's changes."""

from __future__ import annotations

from schemas.records import Change, Op, Row
from tests.kit.upstream import Upstream


class RowsUpstream(Upstream):
    """Rows with any key, each in the partition that its writer chooses. `nothing` are the places of null values."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.nothing: list[tuple[int, int]] = []

    def append(self, row: Row, key: bytes | None, partition: int) -> None:
        """One row."""
        self.topic.append(partition, key, self._changes.encode(Change(Op.INSERT, None, row)))

    def append_nothing(self, key: bytes | None, partition: int) -> None:
        """A record with a null value."""
        self.topic.append(partition, key, None)
        self.nothing.append((partition, self.topic.partitions[partition][-1].offset))

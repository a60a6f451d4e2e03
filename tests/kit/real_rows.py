"""An upstream of rows without identity on a real topic."""

from __future__ import annotations

from typing import Any, ClassVar

from schemas.records import Row
from tests.kit.real import RealUpstream, json_of


class AppendUpstream(RealUpstream):
    """Rows as JSON. Without a topic for barriers they are in the data."""

    form: ClassVar[dict[str, str]] = {"format": "append"}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = {"barrier_topic": self.topics.with_barriers}

    def append(self, row: Row, key: bytes | None = None, partition: int = 0) -> None:
        """A row with any key."""
        value = json_of(dict(zip(self.table.column_names, row, strict=True)))
        self._producer.produce(self.name, value, key, partition)
        self._producer.poll(0)

"""Where a table starts, as the state remembers it: what was declared, and what was decided by it once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from schemas.kinds.initial import DeltaStart

KEY = "initial"
"""In what a state is bound to, the journal's `table`."""


@dataclass(frozen=True, slots=True)
class Start:
    """`offsets[p]` is the first record of partition p that is read; `rows` are the table's, None where unknown."""

    declared: DeltaStart
    offsets: tuple[int, ...]
    rows: int | None

    def bound(self) -> dict[str, Any]:
        """As a key of the binding, with JSON values."""
        return {KEY: {**self.declared.to_dict(), "from": list(self.offsets), "rows": self.rows}}

    @classmethod
    def of(cls, binding: str) -> Start | None:
        """That of a state with this binding, None for one that starts with the topic's first record."""
        raw = json.loads(binding).get(KEY)
        if raw is None:
            return None
        return cls(DeltaStart.from_dict(raw), tuple(raw["from"]), raw["rows"])

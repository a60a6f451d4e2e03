"""Where a table starts, as kept in the state's binding: what was declared, and what was decided from it once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from schemas.json.debezium_values import TimeMode
from schemas.kinds.initial import DeltaStart
from schemas.table import TableSchema
from state.initial.survey import Identity, Survey

KEY = "initial"
"""The key in a state's binding, which is the journal's `table`."""
_KIND = "kind"
_POSTGRES: Literal["postgres"] = "postgres"
_TOPIC: Literal["topic"] = "topic"


@dataclass(frozen=True, slots=True)
class Start:
    """A start from a Delta table.

    `offsets[p]` is the first record of partition p that is read; `rows` are the table's, None where unknown.
    """

    declared: DeltaStart
    offsets: tuple[int, ...]
    rows: int | None

    def bound(self) -> dict[str, Any]:
        """As a key of the binding, with JSON values."""
        return {KEY: {**self.declared.to_dict(), "from": list(self.offsets), "rows": self.rows}}

    @classmethod
    def of(cls, binding: str) -> Start | None:
        """That of a state with this binding, None for one that starts elsewhere."""
        raw = json.loads(binding).get(KEY)
        if raw is None or _KIND in raw:
            return None
        return cls(DeltaStart.from_dict(raw), tuple(raw["from"]), raw["rows"])


@dataclass(frozen=True, slots=True)
class TopicStart:
    """A start of rows without identity from the earliest records that a topic has, where older ones are gone.

    `offsets[p]` is the first record of partition p that is read.
    """

    offsets: tuple[int, ...]

    def bound(self) -> dict[str, Any]:
        """As a key of the binding, with JSON values."""
        return {KEY: {_KIND: _TOPIC, "from": list(self.offsets)}}

    @classmethod
    def of(cls, binding: str) -> TopicStart | None:
        """That of a state with this binding, None for one that starts elsewhere."""
        raw = json.loads(binding).get(KEY)
        return None if raw is None or raw.get(_KIND) != _TOPIC else cls(tuple(raw["from"]))

    def __str__(self) -> str:
        return f"the earliest records that the topic had, from offsets {', '.join(map(str, self.offsets))}"


@dataclass(frozen=True, slots=True)
class DatabaseStart:
    """A start from a table of PostgreSQL.

    `declared` is what the state is bound to (`PostgresStart.to_dict`). `time` and `publication` are the connector's,
    None where it was not asked or does not say.
    """

    declared: dict[str, Any]
    offsets: tuple[int, ...]
    identity: Identity
    survey: Survey
    time: TimeMode | None = None
    publication: str | None = None

    def bound(self) -> dict[str, Any]:
        """As a key of the binding, with JSON values."""
        return {
            KEY: {
                _KIND: _POSTGRES,
                "declared": self.declared,
                "from": list(self.offsets),
                "identity": self.identity.to_dict(),
                "survey": self.survey.to_dict(),
                "time": self.time,
                "publication": self.publication,
            }
        }

    @classmethod
    def of(cls, binding: str, table: TableSchema) -> DatabaseStart | None:
        """That of a state with this binding, None for one that starts elsewhere."""
        raw = json.loads(binding).get(KEY)
        if raw is None or raw.get(_KIND) != _POSTGRES:
            return None
        return cls(
            raw["declared"],
            tuple(raw["from"]),
            Identity.from_dict(raw["identity"]),
            Survey.from_dict(raw["survey"], table.key_columns),
            raw["time"],
            raw["publication"],
        )

    def __str__(self) -> str:
        return f"table {self.declared['table']} of PostgreSQL and slot {self.declared['slot']}"


AnyStart = Start | DatabaseStart | TopicStart
"""Where a table starts, if not at the first record of its topic."""

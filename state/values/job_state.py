"""The state of a job, as plans have it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.avro.registered import SchemaIds
from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.table import TableSchema
from state.values.progress import AllDone, Parts

_TELLING = 2
"""Batches whose barriers tell new columns: one that was open may be in some partitions already, the next is in none."""
_OWN = ("start", "opened", "paused", "rate_limit")
_ALSO = ("paused_by", "ended", "tells", "columns_refused")
"""Fields that are written where they are not the default, so that older versions can read the rest."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at an aligned barrier.

    `start`: epoch of the barrier at which it starts, the first record of its output. `opened`: that record was sent.
    `paused` and `rate_limit` (rows/s, None for any number) are those of the last mutation, which wins over any file.
    `paused_by` is the error for which the service has paused it, None once resumed. `ended`: nothing more is sent.
    `tells`: the barriers of so many batches tell its new columns. `columns_refused` is why it gets none from then on,
    and None as long as it may.
    """

    definition: JobDefinition
    start: int
    opened: bool = False
    paused: bool = False
    rate_limit: int | None = None
    paused_by: str | None = None
    ended: bool = False
    tells: int = 0
    columns_refused: Code | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def first_progress(self) -> Parts:
        """The progress at the barrier that it starts with, which says so if there is any.

        A job that begins now has nothing to read.
        """
        return Parts(AllDone(self.definition.part_count) if self.definition.from_now else None)

    @property
    def may_read(self) -> bool:
        """True if it may read its snapshot now."""
        return not self.paused and self.rate_limit != 0

    def with_partitions(self, upstream: int, before: int) -> JobState:
        """This job, whose output has the partitions that the upstream has by now, if it had those `before`."""
        definition = self.definition
        has_them = definition.parts_are_partitions and (self.opened or definition.output_partitions == before)
        if self.ended or not has_them or definition.output_partitions >= upstream:
            return self
        return replace(self, definition=replace(definition, output_partitions=upstream))

    def grown(self, table: TableSchema) -> JobState:
        """This job with all columns of a version of the table, if it gets them; its barriers tell the new ones."""
        job = self.definition
        if not job.sends_new or self.ended or self.columns_refused or len(job.columns) >= len(table.columns):
            return self
        return replace(self, definition=job.with_all(table), tells=_TELLING)

    def having_got(self, names: Collection[str]) -> JobState:
        """This job, whose output has got its columns of these names since it began."""
        job = self.definition
        first = next((at for at, column in enumerate(job.columns) if column.name in names), job.first_width)
        return replace(self, definition=replace(job, first_width=first))

    def behind_batch(self) -> JobState:
        """The job once a batch was sent to its output."""
        return replace(self, opened=True, tells=max(self.tells - 1, 0))

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads back."""
        job, ids = self.definition, self.definition.format.ids
        own = {name: getattr(self, name) for name in _OWN}
        named = {} if ids is None else {"schema_ids": [ids.key, ids.value, *ids.earlier]}
        names = [column.name for column in job.columns]
        columns = {"columns": names, "first_width": job.first_width} if job.sends_new else {}
        also = {name: value for name in _ALSO if (value := getattr(self, name))}
        return {"definition": json.loads(job.to_json()), **named, **columns, **own, **also}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], table: TableSchema) -> JobState:
        """Read what `to_dict` gave. Raises: ConfigError for a definition that no longer fits the table."""
        definition = JobDefinition.from_json(json.dumps(raw["definition"]), table)
        if "columns" in raw:
            definition = definition.with_columns(raw["columns"], raw["first_width"])
        if "schema_ids" in raw:
            key, value, *earlier = raw["schema_ids"]
            definition = definition.with_ids(SchemaIds(key, value, tuple((w, each) for w, each in earlier)))
        state = cls(definition, **{name: raw[name] for name in (*_OWN, *_ALSO) if name in raw})
        refused = state.columns_refused
        return state if refused is None else replace(state, columns_refused=Code(refused))

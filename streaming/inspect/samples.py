"""Samples of a topic's records: their JSON values, and the possible types of their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.avro.registered import framed_id
from schemas.json.placeholder import placeholder
from schemas.records import BARRIER_HEADER


class Sample(NamedTuple):
    """A record: its bytes, and the names of its headers."""

    key: bytes | None
    value: bytes | None
    headers: tuple[str, ...] = ()

    @property
    def is_barrier(self) -> bool:
        return BARRIER_HEADER in self.headers


NOTHING = object()
"""Stands for bytes that are no JSON."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}Z?")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})")
_SECONDS = range(946_684_800, 4_102_444_800)
"""Seconds from 2000 to 2100: a number in this range is likely a time."""
_DAY_S = 86_400
_LAST_YEAR = range(253_370_764_800, 253_402_300_800)
_MOST = 0.5
_TICK_NS = 100
"""Resolution of SQL Server's datetime2, the finest that a connector writes."""
_PLACEHOLDERS = placeholder().texts
"""Placeholders of unchanged values, which show nothing of their column."""
_UNITS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def as_json(data: bytes | None) -> Any:
    """The JSON value of bytes; `NOTHING` for any other bytes."""
    try:
        return NOTHING if data is None else json.loads(data)
    except ValueError:
        return NOTHING


def schema_ids(data: Iterable[bytes | None]) -> list[int]:
    """The ids in front of some bytes, if all that are not null have one."""
    ids = {None if each is None else framed_id(each) for each in data} - {None} if data else set()
    return sorted(each for each in ids if each is not None)


@dataclass
class Field:
    """Observations of a field: a type that fits all its values, and notes on doubts."""

    name: str
    kind: str = ""
    notes: list[str] = field(default_factory=list)
    nulls: int = 0
    units: dict[str, str] = field(default_factory=dict)
    """Keys of the column's declaration besides the type: `time`, `decimal`, `unsigned`."""
    times_in: str | None = None
    """The unit in which its numbers would be times of this century."""
    has_negative: bool = False
    """True if some of its numbers are negative."""
    is_nested: bool = False
    """True if its schema has no single value for a column, as a list or a record."""


def fields_of(rows: Iterable[Mapping[str, Any]]) -> list[Field]:
    """The fields of rows, in the order of their first row, each with the narrowest of our types that fits."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return [_field(name, found) for name, found in values.items()]


def _field(name: str, values: list[Any]) -> Field:
    known = [value for value in values if value is not None and not _is_placeholder(value)]
    made = Field(name, nulls=len(values) - len(known))
    made.kind = _kind(known)
    if not known:
        made.notes.append("only nulls were seen")
    elif made.kind == "bigint":
        made.has_negative = min(known) < 0
        made.times_in = next((unit for unit, per_s in _UNITS.items() if _are_times(known, per_s)), None)
        if made.times_in is not None:
            made.notes.append(f"a time in {made.times_in}?")
    elif made.kind == "double":
        made.notes.append("or decimal(p,s), if it has to be exact")
    elif any(isinstance(value, dict | list) for value in known):
        made.notes.append("an object or a list, taken as its JSON text")
    return made


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and value in _PLACEHOLDERS


def _kind(values: list[Any]) -> str:
    if not values:
        return "string"
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return "bigint"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "double"
    if all(isinstance(value, str) for value in values):
        if all(_DATE.fullmatch(value) for value in values):
            return "date"
        if all(_INSTANT.fullmatch(value) for value in values):
            return "timestamp"
    return "string"


def _are_times(values: list[int], per_s: int) -> bool:
    if per_s == _UNITS["nanoseconds"] and any(value % _TICK_NS for value in values):
        return False  # ids that are made of a time have such sizes, and no database such a clock
    known = [value for value in values if not _is_special(value // per_s)]
    # Infinity and other special times are written as numbers that are no times.

    return bool(known) and sum(value // per_s in _SECONDS for value in known) > _MOST * len(known)


def _is_special(second: int) -> bool:
    """True for 1970-01-01, the day before and the year 9999, which people write for a missing time."""
    return abs(second) <= _DAY_S or second in _LAST_YEAR

"""The commands that lead on from a suspended table."""

from __future__ import annotations

import re
import shlex

from schemas.errors import Code
from schemas.kinds.columns import IDENTIFIER, lost_column_in, new_field_in
from schemas.records import record_at
from state.values.last_end import FaultReport

_SKIP = "--skip-record"
_NO_ROOM = re.compile(
    r"a(?:n int| (?P<decimal>decimal)\([\d,]+\)) out of range in column (?P<column>\w+)"
    r"|field (?P<field>\w+) is long, its column int"
)


def skippable(fault: FaultReport) -> str | None:
    """The record, PARTITION@OFFSET, that may be left out; None for a fault that is not about one record."""
    return record_at(fault.where) if _SKIP in fault.next_step else None


def new_field(fault: FaultReport) -> str | None:
    """The field of records that the table waits for; None for another fault."""
    return new_field_in(fault.found) if fault.code is Code.SCHEMA_WAITS else None


def ways_on(fault: FaultReport, table: str) -> tuple[str, ...]:
    """Commands for this fault, the likeliest first. The last one tries again, once the cause is repaired."""
    again = f"backfill resume --table {shlex.quote(table)}"
    if (field := new_field(fault)) is not None:
        return (*_alterations(field), again)
    if (column := lost_column_in(fault.found)) is not None:
        return f"backfill alter --retire {column}", again
    if fault.code is Code.LOG_WENT_BACK:
        return f"{again} --accept-log-reset", again
    record = skippable(fault)
    skipping = () if record is None else (f"{again} {_SKIP} {record}",)
    return (*_widening(fault), *skipping, again)


def _widening(fault: FaultReport) -> tuple[str, ...]:
    """The wider type for a column whose value had no room, if its type can be wider."""
    if (full := _NO_ROOM.search(fault.found)) is None:
        return ()
    column, kind = full["column"] or full["field"], "TYPE" if full["decimal"] else "bigint"
    return (f"backfill alter --widen {shlex.quote(f'{column}: {kind}')}",)


def _alterations(field: str) -> tuple[str, str]:
    """With the type left open, which a record alone does not say."""
    column = f"{field}: TYPE" if IDENTIFIER.fullmatch(field) else f"NAME: {{type: TYPE, field: {field!r}}}"
    return f"backfill alter --add {shlex.quote(column)}", f"backfill alter --ignore {shlex.quote(field)}"

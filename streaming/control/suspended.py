"""Requests to a suspended table: the commands that lead on, and the errors for requests at the wrong time."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable

from schemas.errors import Code, ConfigError, EnvironmentProblem, InputError
from schemas.kinds.columns import IDENTIFIER, lost_column_in, new_field_in
from schemas.records import record_at
from state.values.last_end import FaultReport, LastEnd

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


_MEANINGS = {
    _SKIP: "without the record",
    "--add": "with the field as a column",
    "--ignore": "without the field, from now on",
    "--widen": "with room for the value",
    "--retire": "the column was dropped, and that is right",
    "--accept-log-reset": "the log began anew, and that is right",
}
"""The outcome of a command that leads on, by its option."""


def meaning_of(way: str) -> str:
    """The words for one of `ways_on`, to stand before it."""
    found = (words for option, words in _MEANINGS.items() if f" {option}" in way)
    return next(found, "once the cause is repaired")


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


_POLL_S = 0.5


def suspended(table: str, end: LastEnd | None) -> ConfigError:
    """The error for a request that has to wait until the table goes on."""
    fault = None if end is None else end.fault
    return ConfigError(
        Code.TABLE_SUSPENDED,
        where=table,
        found="a table that is suspended" + (f" by {fault.code} at {fault.where}" if fault else ""),
        way=f"backfill resume --table {table}" if fault is None else ways_on(fault, table)[0],
    )


def suspended_again(table: str, end: LastEnd) -> InputError:
    """The error for a table that met a fault when it went on."""
    assert end.fault is not None
    fault = end.fault
    return InputError(
        fault.code,
        where=fault.where,
        found=f"{fault.found} (suspended again, {end.times} times in a row)",
        expected=fault.expected,
        next_step=f"{fault.next_step}; then {ways_on(fault, table)[0]}",
    )


def not_suspended(table: str) -> ConfigError:
    """The error for a decision that nothing waits for."""
    return ConfigError(Code.NOT_SUSPENDED, where=table, found="a table that is not suspended")


def await_outcome(last_end: Callable[[], LastEnd | None], offset: int, timeout_s: float) -> LastEnd | None:
    """Wait for what comes of the decision at `offset`: None once a batch is finished, else the end that came of it.

    A service that starts meanwhile may suspend the table once more before it reads the decision.

    Raises: EnvironmentProblem(NOT_SERVED) when nothing comes within the time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        end = last_end()
        if end is None or not end.is_suspended or end.requests_from > offset:
            return end
        if time.monotonic() >= deadline:
            raise EnvironmentProblem(
                Code.NOT_SERVED,
                found=f"no sign of the service within {timeout_s:g} s; the request is in the control topic",
                next_step="see `backfill status`; a service that is started later finds the request",
            )
        time.sleep(_POLL_S)

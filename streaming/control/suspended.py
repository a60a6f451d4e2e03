"""Requests to a suspended table, and the errors for requests at the wrong time."""

from __future__ import annotations

import time
from collections.abc import Callable

from schemas.errors import Code, ConfigError, EnvironmentProblem, InputError
from state.values.last_end import LastEnd
from streaming.control.ways_on import ways_on

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

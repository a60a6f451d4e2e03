"""Checks of the first records, for a state that has no finished batch."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.errors import BackfillError
from schemas.formats.names.seen import LEAST_ROWS, MOST_NAMED, SeenNames, refuse_absent
from streaming.service.checks.declared import invalid_record, unlikely_units
from streaming.service.checks.findings import Finding
from streaming.service.checks.surroundings import Surroundings


def findings(found: Surroundings) -> Iterator[Finding]:
    """A line for each check, up to the first error. Read once."""
    for subject, look in {"columns": _columns, "logs": _logs, "records": _values}.items():
        try:
            yield from look(found)
        except BackfillError as error:
            yield Finding.of(subject, error)
            return


def _columns(found: Surroundings) -> Iterator[Finding]:
    """Look for the declared columns. Raises: ConfigError(COLUMN_ABSENT)."""
    if found.first_records.names is None:
        return
    seen = found.first_records.names
    refuse_absent(seen, found.declared.upstream)
    yield Finding.ok("columns", _columns_text(seen))


def _columns_text(seen: SeenNames) -> str:
    if seen.rows < LEAST_ROWS:
        return "too few rows in the topic to look for them"
    others = seen.undeclared
    more = f", which have {len(others):,} fields that are not declared: " if others else ""
    return f"each is in some of {seen.rows:,} first rows{more}{', '.join(others[:MOST_NAMED])}"


def _logs(found: Surroundings) -> Iterator[Finding]:
    """Look for two databases under one name. Raises: ConfigError(LOG_SHARED)."""
    if found.first_records.logs is None:
        return
    first = found.first_records
    first.refuse_shared_logs()
    yield Finding.ok(
        "logs", f"{first.log_count:,} in the first records, each of one database by its positions"
    )


def _values(found: Surroundings) -> Iterator[Finding]:
    """Decode with the declared table. Raises: InputError, unless invalid records are parked."""
    first, config = found.first_records, found.config
    error = invalid_record(first, config)
    if error is not None and config.on_bad_record == "park":
        text = f"{error.code} at {error.where}: {error.found}"
        yield Finding.warning("records", f"{text}; they are parked", error.next_step)
    elif error is not None:
        raise error
    for unit in unlikely_units(first, config):
        yield Finding.warning("records", unit.found, f"where {unit.declared} is wrong, correct {unit.line}")
    if error is None:
        text = f"{first.count:,} first ones can be decoded" if first.count else "none in the topic yet"
        yield Finding.ok("records", text)

"""Checks of the first records, for a state that has no finished batch.

Errors of invalid ones name the configuration: what it declares, what the records have, the line to change. A
record that nothing valid stands beside is the configuration's error until shown otherwise; where others can be decoded,
it is the record's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from schemas.errors import BackfillError, Code, InputError
from schemas.formats.change import ChangeFormat
from schemas.formats.row_names import LEAST_ROWS, MOST_NAMED, SeenNames, refuse_absent
from schemas.settings.config import ServiceConfig
from schemas.table import Column
from schemas.types import TypeName
from streaming.inspect.guess import Guess, guess
from streaming.inspect.samples import Field, as_json
from streaming.lane.faults import Fault
from streaming.registry.client import AskedSchemas, Registry
from streaming.service.checks.first_records import FirstRecords
from streaming.service.checks.surroundings import Finding, Surroundings

_COLUMN = re.compile(r"\bcolumn (\S+)$")
_OF_KEY = (Code.KEY_MISMATCH, Code.PK_NULL)
_NUMBERS = {TypeName.INT, TypeName.BIGINT, TypeName.FLOAT, TypeName.DOUBLE, TypeName.DECIMAL}
_TIMES = {TypeName.DATE, TypeName.TIMESTAMP}
_KINDS = {"bigint": _NUMBERS, "double": _NUMBERS, "boolean": {TypeName.BOOLEAN}, "date": {TypeName.DATE}}
"""Types of columns that values of a guessed kind may have."""
_UNITS = "milliseconds, microseconds, nanoseconds"


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


class Difference(NamedTuple):
    """A line of the configuration, what it declares, and what the records have."""

    line: str
    declared: str
    found: str
    column: str | None = None
    """The column that it is about, if it is about one alone."""


def invalid_record(first: FirstRecords, config: ServiceConfig) -> InputError | None:
    """The error of the first invalid record, None without one."""
    if not first.faults:
        return None
    fault, count = first.faults[0], len(first.faults)
    expected, others = fault.expected, first.count - count
    every = "the only record" if count == 1 else f"each of the first {count:,} records"
    found = f"{fault.found}, in {every}"
    if others:
        found, step = f"{fault.found}, in {count:,} of the first {first.count:,} records", _remedy(fault)
    elif about := [each for each in _differences(first, config) if _is_about(each, fault)]:
        found += f": {'; '.join(each.found for each in about)}"
        expected = f"what is declared, {'; '.join(each.declared for each in about)}"
        step = f"correct {' and '.join(each.line for each in about)}, or see `{_inspect(config)}`"
    else:
        step = _compare(config) + (f"; {_remedy(fault)}" if count == 1 else "")
    where = f"{first.topic}-{fault.partition}@{fault.offset}"
    return InputError(fault.code, where=where, found=found, expected=expected, next_step=step)


def unlikely_units(first: FirstRecords, config: ServiceConfig) -> list[Difference]:
    """Columns of times whose numbers would be times of this century in another unit than the declared one."""
    # It has one unit, and its bytes would be taken for ids of schemas.
    if isinstance(config.upstream_format, ChangeFormat):
        return []
    found = _guessed(first, config)
    return [
        difference
        for column in config.table.columns
        if column.type.name is TypeName.TIMESTAMP
        and (field := _field_of(column, found)) is not None
        and (difference := _of_unit(column, field, config)) is not None
    ]


def _field_of(column: Column, found: Guess) -> Field | None:
    fields = {each.name: each for each in found.fields}
    return next((fields[name] for name in column.names_in_records if name in fields), None)


def _is_about(difference: Difference, fault: Fault) -> bool:
    """True if a difference may be the reason of the fault."""
    named = _COLUMN.search(fault.found) or _COLUMN.search(fault.expected)
    if difference.column is not None:
        return named is not None and difference.column == named[1]
    if difference.line in ("table.primary_key", "upstream.key"):
        return fault.code in _OF_KEY
    return True


def _compare(config: ServiceConfig) -> str:
    if isinstance(config.upstream_format, ChangeFormat):
        return (
            "compare table.columns, in their order and with their types, and table.primary_key with what writes this "
            f"topic; if it isn't of format change: `{_inspect(config)}`"
        )
    return f"compare upstream and table with `{_inspect(config)}`"


def _remedy(fault: Fault) -> str:
    place = f"{fault.partition}@{fault.offset}"
    return f"correct the producer; to leave this record out, start with --skip-record {place}"


def _inspect(config: ServiceConfig) -> str:
    return f"backfill inspect {config.upstream}"


def _guessed(first: FirstRecords, config: ServiceConfig) -> Guess:
    schemas = None if config.registry.url is None else AskedSchemas(Registry(config.registry))
    return guess(first.samples, schemas)


def _differences(first: FirstRecords, config: ServiceConfig) -> Iterator[Difference]:
    found = _guessed(first, config)
    of_format = list(_of_format(found, config))
    yield from of_format
    if of_format:
        return
    yield from _of_key(found, first, config)
    for column in config.table.columns:
        field = _field_of(column, found)
        if field is not None and (difference := _of_column(column, field, config)) is not None:
            yield difference


def _of_format(found: Guess, config: ServiceConfig) -> Iterator[Difference]:
    declared = config.upstream_format
    for key in ("format", "encoding"):
        of_records, own = found.upstream.get(key), getattr(declared, key, None)
        if of_records is not None and own is not None and of_records != own:
            seen = f"they look like {key}: {of_records}"
            yield Difference(f"upstream.{key}", f"`{key}: {own}`", seen)
            return


def _of_key(found: Guess, first: FirstRecords, config: ServiceConfig) -> Iterator[Difference]:
    own = [column.in_records.name for column in config.table.key_columns]
    form = getattr(config.upstream_format, "key", None)
    of_records = found.upstream.get("key", "record")
    if form is not None and of_records != form and not (form == "avro" or config.upstream_format.framed.key):
        yield Difference("upstream.key", f"`key: {form}`", f"they have keys of the form {of_records}")
    elif of_records == "record" and _has_named_keys(found, first) and set(found.primary_key) != set(own):
        declared = f"`primary_key: [{', '.join(config.table.primary_key)}]`"
        seen = f"records have the key {{{', '.join(found.primary_key)}}}"
        yield Difference("table.primary_key", declared, seen)


def _has_named_keys(found: Guess, first: FirstRecords) -> bool:
    """True if keys are objects or records, whose fields have names."""
    keys = [as_json(sample.key) for sample in first.samples if sample.key]
    return bool(found.primary_key) and (
        found.upstream.get("encoding") == "avro-registry" or any(isinstance(key, dict) for key in keys)
    )


def _of_column(column: Column, field: Field, config: ServiceConfig) -> Difference | None:
    if column.type.name is TypeName.TIMESTAMP:
        difference = _of_unit(column, field, config)
        if difference is not None:
            return difference
    may_be = _KINDS.get(field.kind)
    if may_be is None or column.type.name in may_be or (column.type.name in _TIMES and field.times_in):
        return None
    line = f"table.columns.{column.name}"
    return Difference(
        line, f"`{column.name}: {column.type}`", f"its values look like {field.kind}", column.name
    )


def _of_unit(column: Column, field: Field, config: ServiceConfig) -> Difference | None:
    """The unit of a column of times, where its numbers are likely in another one."""
    declared = column.time or getattr(config.upstream_format, "time", None)
    likely = field.times_in or (field.units.get("time") if field.units else None)
    means = {"connect": "milliseconds"}.get(str(declared), declared)
    if declared in (None, "adaptive") or likely is None or likely == means:
        return None
    where = f"table.columns.{column.name}" if column.time else f"upstream.time or table.columns.{column.name}"
    seen = f"numbers that are times in {likely}" if likely in _UNITS else f"texts, as {likely} has them"
    shown = f"`{column.name}: {{type: {column.type}, time: {likely}}}` (units are {_UNITS})"
    found = f"column {column.name} has {seen}, hence {shown}"
    return Difference(where, f"`time: {declared}`", found, column.name)

"""A backfill job: what it reads, what it keeps, where it sends it.

A definition never changes after the job was created; what mutations change (pause, limit) is state and kept
elsewhere. Its JSON is what an `Add` mutation carries, so its form is stable: all keys, sorted, defaults written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import BackfillError, Code, ConfigError
from schemas.filter.ast import columns_of
from schemas.filter.parse import parse_filter
from schemas.table import Column, TableSchema, nearest

DEFAULT_OUTPUT_PARTITIONS = 4
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KEYS = ("name", "output", "columns", "filter", "output_partitions", "rate_limit", "latency_budget")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def parse_duration(text: object) -> int:
    """Milliseconds of `200ms`, `1s`, `2m`, `1h`. ValueError for anything else, a bare number above all."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a whole number with a unit: ms, s, m or h, as in 200ms")
    return int(match[1]) * _UNIT_MS[match[2]]


def duration_text(ms: int) -> str:
    """The shortest text that `parse_duration` reads back."""
    unit = next(unit for unit in ("h", "m", "s", "ms") if ms % _UNIT_MS[unit] == 0)
    return f"{ms // _UNIT_MS[unit]}{unit}"


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A validated job of one table. Build it with `declare`, which reports every fault at once.

    `columns` are the output's, in this order. `filter` is its canonical text. `rate_limit` is in snapshot rows per
    second (None unlimited, 0 none); `latency_budget_ms` bounds how much a snapshot read delays live changes.
    """

    name: str
    output: str
    columns: tuple[str, ...]
    filter: str | None
    output_partitions: int
    rate_limit: int | None
    latency_budget_ms: int | None
    vnode_count: int

    @classmethod
    def declare(
        cls, declaration: Mapping[str, Any], table: TableSchema, *, where: str = "job"
    ) -> JobDefinition:
        """Check a job as read from YAML or JSON.

        Raises: ConfigError(JOB_INVALID, or JOB_NAME_INVALID if only the name is wrong) with every fault in one message.
        """
        faults = [f"unknown key {key!r}{nearest(str(key), _KEYS)}" for key in declaration if key not in _KEYS]
        name = declaration.get("name")
        name_ok = isinstance(name, str) and _NAME.fullmatch(name) is not None
        output = declaration.get("output")
        if not (isinstance(output, str) and _TOPIC.fullmatch(output) and output not in (".", "..")):
            faults.append(f"output {output!r} is no topic name (letters, digits, '.', '_', '-', 249 at most)")
        columns = _columns(declaration.get("columns"), table, faults)
        condition = _condition(declaration.get("filter"), table, faults)
        partitions = declaration.get("output_partitions", min(DEFAULT_OUTPUT_PARTITIONS, table.vnode_count))
        if type(partitions) is not int or not 1 <= partitions <= table.vnode_count:
            faults.append(
                f"output_partitions {partitions!r} is not in 1..{table.vnode_count} (the vnode_count)"
            )
        limit = declaration.get("rate_limit")
        if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 63):
            faults.append(f"rate_limit {limit!r} is no whole number of rows per second, 0 or more")
        budget = _budget(declaration.get("latency_budget"), faults)
        if not name_ok:
            faults.insert(0, f"name {name!r} is not lower-case letters, digits and '-', 63 at most")
        if faults:
            raise ConfigError(
                Code.JOB_INVALID if name_ok or len(faults) > 1 else Code.JOB_NAME_INVALID,
                where=where,
                found="; ".join(faults),
                expected="a job with name and output and, if wanted, " + ", ".join(_KEYS[2:]),
                next_step="mend the job's definition; nothing was created",
            )
        return cls(str(name), str(output), columns, condition, partitions, limit, budget, table.vnode_count)

    def to_json(self) -> str:
        """The definition as one line of JSON, equal for equal definitions."""
        budget = self.latency_budget_ms
        declaration = {
            "name": self.name,
            "output": self.output,
            "columns": list(self.columns),
            "filter": self.filter,
            "output_partitions": self.output_partitions,
            "rate_limit": self.rate_limit,
            "latency_budget": None if budget is None else duration_text(budget),
        }
        return json.dumps(declaration, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, table: TableSchema) -> JobDefinition:
        """Read a definition back. Raises: ConfigError as `declare`, also for text that is no JSON object."""
        try:
            declaration = json.loads(text)
        except (ValueError, RecursionError):
            declaration = None
        if not isinstance(declaration, dict):
            raise ConfigError(
                Code.JOB_INVALID,
                where="job",
                found="a definition that is no JSON object",
                expected="an object with at least name and output",
                next_step="mend whoever wrote it",
            )
        return cls.declare(declaration, table)

    def differences(self, other: JobDefinition) -> list[str]:
        """What `other` says differently, for a person: `filter was ..., is ...`."""
        ours, theirs = json.loads(self.to_json()), json.loads(other.to_json())
        return [f"{key} was {ours[key]!r}, is {theirs[key]!r}" for key in _KEYS if ours[key] != theirs[key]]

    def partition_of(self, vnode: int) -> int:
        """The output partition in which a vnode lives."""
        return vnode * self.output_partitions // self.vnode_count


def _columns(declared: Any, table: TableSchema, faults: list[str]) -> tuple[str, ...]:
    if declared is None:
        return table.column_names
    if not isinstance(declared, list) or not declared or not all(isinstance(name, str) for name in declared):
        faults.append("columns is not a list of column names")
        return ()
    known = table.column_names
    faults += [
        f"columns names {name!r}, no such column{nearest(name, known)}"
        for name in declared
        if name not in known
    ]
    faults += [
        f"columns names {name!r} twice" for name in sorted({n for n in declared if declared.count(n) > 1})
    ]
    return tuple(declared)


def _condition(declared: Any, table: TableSchema, faults: list[str]) -> str | None:
    if declared is None:
        return None
    if not isinstance(declared, str):
        faults.append("filter is no text")
        return None
    try:
        return str(parse_filter(declared, table))
    except BackfillError as error:
        faults.append(f"filter: {error}")
        return None


def _budget(declared: Any, faults: list[str]) -> int | None:
    if declared is None:
        return None
    try:
        budget = parse_duration(declared)
    except ValueError as error:
        faults.append(f"latency_budget {error}")
        return None
    if budget <= 0:
        faults.append("latency_budget is 0")
    return budget


@dataclass(frozen=True, slots=True)
class JobSchemas:
    """The three schemas of a job (reference/risingwave.md 3.7).

    `upstream`: the table. `read`: what the backfill reads: requested columns, primary key, and the filter's.
    `output`: what it sends, in the job's order.
    """

    upstream: tuple[Column, ...]
    read: tuple[Column, ...]
    output: tuple[Column, ...]

    @classmethod
    def of(cls, job: JobDefinition, table: TableSchema) -> JobSchemas:
        """The schemas of a job of this table."""
        filtered = () if job.filter is None else columns_of(parse_filter(job.filter, table))
        read = dict.fromkeys([*job.columns, *table.primary_key, *filtered])
        return cls(table.columns, table.select(tuple(read)), table.select(job.columns))

"""Every kind of key, and what a projection and a filter make of changes, with slices of a row or two."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest

from schemas.avro.codec import decode_barrier
from schemas.job import JobDefinition
from schemas.position import Key, position_to_text
from schemas.records import Row
from schemas.table import TableSchema
from tests.kit.tables import churn, items, table, vnode_of
from tests.kit.upstream import Upstream
from tests.simulation.without_faults import without_faults
from tests.simulation.world import World

SINGLE_KEYS: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), -7, -1, 0, 1, 2**31 - 1],
    "bigint": [-(2**63), -(2**40), 0, 255, 256, 2**63 - 1],
    "decimal(9,2)": [Decimal(text) for text in ("-1000000.00", "-0.01", "0.00", "0.10", "9.99", "10.00")],
    "decimal(38,4)": [
        Decimal(text) for text in ("-9999999999999999999999999999999999.9999", "-1.0000", "0.0000", "1.0001")
    ]
    + [
        Decimal("9999999999999999999999999999999999.9999"),
        Decimal("1234567890123456789012345678901234.5678"),
    ],
    "date": [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 31, 12, 0, 0, 1, dt.UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    ],
    # UTF-8 and UTF-16 order the last two differently; NUL and the quote need care in positions
    "string": ["", "\x00", 'a"', "A", "Z", "a", "ab", "é", "e\u0301", "\uffff", "\U0001f600"],
}
COMPOSITE_KEYS: dict[str, tuple[dict[str, str], list[Key]]] = {
    "two columns with equal first ones": (
        {"a": "string", "b": "bigint"},
        [(a, b) for a in ("", "x", "y") for b in range(-2, 5)],
    ),
    "four columns with equal first ones": (
        {"a": "int", "b": "boolean", "c": "date", "d": "string"},
        [
            (a, b, c, d)
            for a, b in itertools.product((1, 2), (False, True))
            for c in (dt.date(2026, 1, 1), dt.date(2026, 1, 2))
            for d in ("", "k", "\U0001f600")
        ],
    ),
}


def played(
    schema: TableSchema,
    rows: Iterable[Row],
    keys: list[Key],
    row: Callable[[Key, int], tuple[Any, ...]],
    **job: Any,
) -> World:
    """Some rows are there before the job; then come changes of the keys, a few in each interval."""
    upstream = Upstream(schema)
    upstream.put_all(rows)
    upstream.barrier()
    for number in range(8):
        churn(upstream, [row(key, number % 4) for key in keys], 6, random.Random(number))
        upstream.barrier()
    declared = {"name": "copy", "output": "copy", "output_partitions": 1, "rate_limit": 2}
    return without_faults(upstream, JobDefinition.declare({**declared, **job}, schema))


@pytest.mark.parametrize("kind", SINGLE_KEYS)
def test_a_key_of_each_type_keeps_its_order(kind: str) -> None:
    schema = table({"k": kind, "n": "int"}, key=["k"])
    keys: list[Key] = [(value,) for value in SINGLE_KEYS[kind]]
    played(schema, [(*key, 0) for key in keys[::2]], keys, lambda key, n: (*key, n))


@pytest.mark.parametrize("key_order", [0, 1], ids=["as declared", "reversed"])
@pytest.mark.parametrize("name", COMPOSITE_KEYS)
def test_a_key_of_several_columns_with_equal_first_ones(name: str, key_order: int) -> None:
    columns, keys = COMPOSITE_KEYS[name]
    schema = table(columns | {"n": "int"}, key=list(columns)[:: -1 if key_order else 1])
    played(schema, [(*key, 0) for key in keys[::2]], keys, lambda key, n: (*key, n))


@pytest.mark.parametrize("distribution", [["b"], ["d", "a"], ["c"]])
def test_a_distribution_key_that_is_a_part_of_the_primary_key(distribution: list[str]) -> None:
    columns, keys = COMPOSITE_KEYS["four columns with equal first ones"]
    schema = table(columns | {"n": "int"}, key=list(columns), vnode_count=5, distribution_key=distribution)
    played(schema, [(*key, 0) for key in keys[::3]], keys, lambda key, n: (*key, n))


def test_a_position_is_the_key_that_was_read_last() -> None:
    columns, keys = COMPOSITE_KEYS["four columns with equal first ones"]
    schema = table(columns | {"n": "int"}, key=list(columns))
    world = played(schema, [(*key, 0) for key in keys], keys, lambda key, n: (*key, n))
    first, *_ = (
        each
        for entry in world.durable.topics.committed(("copy", 0))
        if entry.barrier is not None
        for each in decode_barrier(entry.barrier, entry.value, where="copy").progress
    )
    mine = sorted(key for key in keys if vnode_of(schema, key) == first.vnode)
    assert (first.position, first.row_count) == (position_to_text(mine[1]), 2)


ALL_TYPES = {"id": "bigint", "n": "int", "flag": "boolean", "f": "float", "g": "double"} | {
    "d": "decimal(20,3)",
    "s": "string",
    "b": "binary",
    "day": "date",
    "at": "timestamp",
}
FULL: tuple[Any, ...] = (
    *(7, True, float("-inf"), float("nan"), Decimal("-12345678901234567.890")),
    *("ü", b"\x00\xff", dt.date(1, 1, 1), dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
)
NULLS = (None,) * len(FULL)


def test_nulls_in_all_other_columns() -> None:
    rows = [(id_, *(FULL if id_ % 2 else NULLS)) for id_ in range(20)]
    keys: list[Key] = [(id_,) for id_ in range(30)]
    played(table(ALL_TYPES), rows, keys, lambda key, n: (*key, *(FULL if n % 2 else NULLS)))


@pytest.mark.parametrize(
    "job",
    [
        {"columns": ["n"]},
        {"columns": ["v", "n"]},
        {"columns": ["n", "id"]},
        {"columns": ["v"], "filter": "n = 1 AND id < 8"},
        {"columns": ["v", "id"], "filter": "n BETWEEN 1 AND 2 OR v LIKE 'item 1%'"},
    ],
    ids=str,
)
def test_columns_with_and_without_the_primary_key_and_filters_on_others(job: dict[str, Any]) -> None:
    keys: list[Key] = [(id_,) for id_ in range(30)]
    played(table(), items(range(20)), keys, lambda key, n: (*key, n if n < 3 else None, f"item {n}"), **job)

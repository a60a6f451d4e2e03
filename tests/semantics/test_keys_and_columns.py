"""Every kind of key, and what a projection and a filter make of changes."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from schemas.position import Key, position_to_text
from tests.kit.scene import Scene, churn, items, table

MakeScene = Callable[..., Scene]

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


def watched(scene: Scene, keys: list[Key], row: Callable[[Key, int], tuple[Any, ...]]) -> None:
    """Half of the keys are there before the job; then changes, slices of one row, a fold on the way."""
    for number in range(8):
        churn(scene.up, [row(key, number % 4) for key in keys], 6, random.Random(number))
        scene.step(1 if number % 2 else 2)
        if number == 4:
            scene.service.fold(rows_per_file=2)
    scene.finish(2)


@pytest.mark.parametrize("kind", SINGLE_KEYS)
def test_a_key_of_each_type_keeps_its_order(scene: MakeScene, kind: str) -> None:
    schema = table({"k": kind, "n": "int"}, key=["k"])
    keys: list[Key] = [(value,) for value in SINGLE_KEYS[kind]]
    watched(scene([(*key, 0) for key in keys[::2]], table=schema), keys, lambda key, n: (*key, n))


@pytest.mark.parametrize("key_order", [0, 1], ids=["as declared", "reversed"])
@pytest.mark.parametrize("name", COMPOSITE_KEYS)
def test_a_key_of_several_columns_with_equal_first_ones(scene: MakeScene, name: str, key_order: int) -> None:
    columns, keys = COMPOSITE_KEYS[name]
    key = list(columns)[:: -1 if key_order else 1]
    schema = table(columns | {"n": "int"}, key=key)
    watched(scene([(*k, 0) for k in keys[::2]], table=schema), keys, lambda k, n: (*k, n))


@pytest.mark.parametrize("distribution", [["b"], ["d", "a"], ["c"]])
def test_a_distribution_key_that_is_a_part_of_the_primary_key(
    scene: MakeScene, distribution: list[str]
) -> None:
    columns, keys = COMPOSITE_KEYS["four columns with equal first ones"]
    schema = table(columns | {"n": "int"}, key=list(columns), vnode_count=5, distribution_key=distribution)
    watched(scene([(*k, 0) for k in keys[::3]], table=schema), keys, lambda k, n: (*k, n))


def test_positions_are_told_as_the_key_that_they_are(scene: MakeScene) -> None:
    columns, keys = COMPOSITE_KEYS["four columns with equal first ones"]
    schema = table(columns | {"n": "int"}, key=list(columns))
    rows = scene([(*k, 0) for k in keys], table=schema)
    rows.step(3)
    (told,) = rows.barriers()[-1].progress
    mine = sorted(key for key in keys if rows.service.vnode(key) == told.vnode)
    assert (told.position, told.row_count) == (position_to_text(mine[2]), 3)


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


def test_nulls_in_all_other_columns(scene: MakeScene) -> None:
    schema = table(ALL_TYPES)
    rows = scene([(id_, *(FULL if id_ % 2 else NULLS)) for id_ in range(20)], table=schema)
    watched(rows, [(id_,) for id_ in range(30)], lambda key, n: (*key, *(FULL if n % 2 else NULLS)))


@pytest.mark.parametrize("columns", [["n"], ["v", "n"], ["n", "id"]], ids="+".join)
def test_a_projection_with_and_without_the_primary_key(scene: MakeScene, columns: list[str]) -> None:
    rows = scene(items(range(20)), columns=columns)
    watched(rows, [(id_,) for id_ in range(30)], lambda key, n: (*key, n, "x"))
    codec_columns = rows.service.every["out"].columns
    assert list(codec_columns) == columns


def test_an_update_whose_projected_halves_are_equal_is_kept(scene: MakeScene) -> None:
    rows = scene(items([1]), columns=["v"])
    rows.step()
    rows.up.put_all(items([1], n=5))
    rows.step()
    assert rows.sent() == [("UPDATE", (1,))]
    rows.finish()


@pytest.mark.parametrize(
    ("before", "after", "op"),
    [
        (0, 1, "INSERT"),
        (1, 0, "DELETE"),
        (1, 2, "UPDATE"),
        (0, -1, None),
        (None, 1, "INSERT"),
        (1, None, "DELETE"),
    ],
)
def test_an_update_that_enters_or_leaves_a_filter(
    scene: MakeScene, before: int | None, after: int | None, op: str | None
) -> None:
    rows = scene([(1, before, "a"), (2, 1, "b")], filter="n > 0")
    rows.step()
    rows.up.put((1, after, "c"))
    rows.step()
    assert rows.sent() == ([] if op is None else [(op, (1,))])
    rows.finish()


@pytest.mark.parametrize(("n", "shown"), [(1, True), (0, False), (None, False)])
def test_inserts_and_deletes_through_a_filter(scene: MakeScene, n: int | None, shown: bool) -> None:
    rows = scene(filter="n > 0")
    rows.step()
    rows.up.put((1, n, "a"))
    rows.up.delete(1)
    rows.step()
    assert rows.sent() == ([("INSERT", (1,)), ("DELETE", (1,))] if shown else [])
    rows.finish()


def test_a_filter_on_columns_that_are_not_sent_and_a_row_count_that_counts_all(scene: MakeScene) -> None:
    rows = scene(items(range(10), n=1) + items(range(10, 30), n=0), columns=["v"], filter="n = 1 AND id < 8")
    report = rows.finish(4)
    assert report.snapshot_rows == 30
    assert sum(len(interval) for interval in rows.intervals()[0]) == 8


def test_a_filter_that_rows_enter_and_leave_while_they_are_read(scene: MakeScene) -> None:
    rows = scene(items(range(20)), columns=["v", "id"], filter="n BETWEEN 1 AND 2 OR v LIKE 'item 1%'")
    watched(rows, [(id_,) for id_ in range(30)], lambda key, n: (*key, n if n < 3 else None, f"item {n}"))

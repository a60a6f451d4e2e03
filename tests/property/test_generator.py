"""Whatever the table, the seed and the mix: what the generator makes is a legal changelog."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.errors import ConfigError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import TableSchema, declare
from streaming.dev.generator import ChangeGenerator, Changes, Shares

KEY_TYPES = ["boolean", "int", "bigint", "decimal(3,1)", "decimal(38,9)", "string", "date", "timestamp"]
TYPES = [*KEY_TYPES, "float", "double", "binary"]
SEEDS = st.integers(0, 2**32)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    keys = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4))
    others = draw(st.lists(st.sampled_from(TYPES), max_size=5))
    declared = {f"k{n}": kind for n, kind in enumerate(keys)}
    key = list(declared)
    declared |= {f"v{n}": kind for n, kind in enumerate(others)}
    columns = dict(draw(st.permutations(list(declared.items()))))
    return declare({"name": "t", "columns": columns, "primary_key": key})


@st.composite
def shares(draw: st.DrawFn) -> Shares:
    updates = draw(st.floats(0, 1))
    return Shares(updates, draw(st.floats(0, 1)) * (1 - updates))


class Store:
    """The slow and obvious reader: a dict, and a complaint for each change that does not fit it."""

    def __init__(self, table: TableSchema) -> None:
        self.table, self.rows = table, dict[Key, Row]()
        self._keys, self._changes = KeyCodec(table.key_columns), ChangeCodec(table.columns)

    def apply(self, changes: Changes) -> list[Op]:
        ops = []
        for key_bytes, value in zip(changes.keys.to_pylist(), changes.values.to_pylist(), strict=True):
            key, change = self._keys.decode(key_bytes), self._changes.decode(value)
            assert {key} == {
                self.table.key_of(row) for row in (change.before, change.after) if row is not None
            }
            self._apply(key, change)
            ops.append(change.op)
        assert ops == list(changes.ops)
        return ops

    def _apply(self, key: Key, change: Change) -> None:
        assert self.rows.get(key) == change.before
        if change.after is None:
            del self.rows[key]
        else:
            self.rows[key] = change.after


@given(tables(), SEEDS, st.integers(0, 400), shares(), st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=150)
def test_every_change_is_legal_and_the_count_of_live_keys_is_right(
    table: TableSchema, seed: int, rows: int, mix: Shares, batches: list[int]
) -> None:
    generator, store = ChangeGenerator(table, seed), Store(table)
    store.apply(generator.inserts(min(rows, generator.capacity)))
    for count in batches:
        store.apply(generator.mixed(count, mix))
        assert generator.live == len(store.rows)


@given(tables(), SEEDS)
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_changes(table: TableSchema, seed: int) -> None:
    first, second = ChangeGenerator(table, seed), ChangeGenerator(table, seed)
    assert first.inserts(2).values.equals(second.inserts(2).values)
    assert first.mixed(50, Shares()).values.equals(second.mixed(50, Shares()).values)


def test_the_shares_are_kept() -> None:
    table = declare({"name": "t", "columns": {"id": "bigint", "x": "int"}, "primary_key": ["id"]})
    generator = ChangeGenerator(table)
    generator.inserts(5_000)
    ops = np.bincount(generator.mixed(10_000, Shares(updates=0.6, deletes=0.2)).ops, minlength=3) / 10_000
    assert ops[Op.UPDATE] == pytest.approx(0.6, abs=0.03)
    assert ops[Op.DELETE] == pytest.approx(0.2, abs=0.03)
    assert ops[Op.INSERT] == pytest.approx(0.2, abs=0.03)


def test_later_inserts_land_between_earlier_keys_and_deleted_keys_come_back() -> None:
    table = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]})
    generator, store = ChangeGenerator(table), Store(table)
    store.apply(generator.inserts(1_000))
    first = set(store.rows)
    store.apply(generator.mixed(500, Shares(updates=0, deletes=1)))
    store.apply(generator.mixed(500, Shares(updates=0, deletes=0)))
    new = set(store.rows) - first
    assert len([key for key in new if key < max(first)]) > len(new) / 2
    assert len(first & set(store.rows)) > 500


def test_a_composite_key_has_many_keys_with_equal_first_columns() -> None:
    columns = {"region": "string", "day": "date", "id": "bigint"}
    table = declare({"name": "t", "columns": columns, "primary_key": ["region", "day", "id"]})
    store = Store(table)
    store.apply(ChangeGenerator(table).inserts(640))
    assert len(store.rows) == 640
    assert len({key[:2] for key in store.rows}) == 64


def test_a_key_too_narrow_for_the_rows_is_an_error_before_anything_is_made() -> None:
    table = declare({"name": "t", "columns": {"b": "boolean"}, "primary_key": ["b"]})
    generator = ChangeGenerator(table)
    with pytest.raises(ConfigError, match="at most 2"):
        generator.inserts(3)
    assert generator.live == 0
    assert len(generator.inserts(2)) == 2


@pytest.mark.parametrize("wrong", [(-0.1, 0.5), (0.5, -0.1), (0.8, 0.3)])
def test_impossible_shares_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ConfigError):
        Shares(*wrong)

"""Changes in Avro are decoded to what the reference decoder reads, sound records and broken ones."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from schemas.formats.change import ChangeFormat
from schemas.records import Change, Op
from schemas.table import TableSchema, declare
from state.columns import BEFORE_HASH
from streaming.source.decoded import BEFORE
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.decoding import changes_of, differences
from tests.kit.faulty_records import BROKEN, KEY, TABLE, insert
from tests.kit.values import drawn, rows_of
from tests.property.test_decoded_upserts import WIDE

SPREAD = declare(
    {
        "name": "t",
        "columns": {"a": "string", "b": "decimal(38,10)", "c": "date", "d": "double", "e": "float"},
        "primary_key": ["a", "b", "c"],
        "distribution_key": ["c", "b"],
        "vnode_count": 7,
    }
)


def legal_changes(table: TableSchema) -> st.SearchStrategy[Change]:
    """By their images; an UPDATE keeps its key."""
    rows = rows_of(table.columns)

    def kept(pair: tuple[tuple[object, ...], tuple[object, ...]]) -> Change:
        before, after = pair
        names = zip(table.column_names, before, after, strict=True)
        return Change(Op.UPDATE, before, tuple(b if n in table.primary_key else a for n, b, a in names))

    return st.one_of(
        rows.map(lambda row: Change(Op.INSERT, None, row)),
        rows.map(lambda row: Change(Op.DELETE, row, None)),
        st.tuples(rows, rows).map(kept),
    )


@pytest.mark.parametrize("table", [WIDE, SPREAD], ids=["wide", "spread"])
def test_changes_are_the_same_to_columns_and_reference(table: TableSchema) -> None:
    values, keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)
    found = [
        (keys.encode(table.key_of(change.row)), values.encode(change))
        for change in drawn(legal_changes(table), 300)
    ]
    assert differences(ChangeFormat(), table, found) == []
    rows = changes_of(ChangeFormat(), table, found).rows
    assert rows[BEFORE_HASH].is_valid().to_pylist() == rows[BEFORE].is_valid().to_pylist()


OF_ROWS = {"an UPDATE of the key", "another row's key"}
"""The lane finds these in the columns."""


def test_a_broken_change_costs_its_neighbours_nothing() -> None:
    broken = [
        (KEY, value) for kind, (value, _) in BROKEN.items() if kind not in OF_ROWS and value is not None
    ]
    found = [pair for each in broken for pair in ((KEY, insert()), each)]
    assert differences(ChangeFormat(), TABLE, found) == []

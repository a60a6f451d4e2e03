"""A lane that decodes changes itself has the columns of Spark; the other formats are held to that by their twins."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.formats.change import ChangeFormat
from schemas.records import Change, Op
from schemas.table import TableSchema, declare
from streaming.source.few_records import Records, UnfitError, decoded_columns
from tests.kit.drawn import drawn
from tests.kit.faulty_records import BROKEN, KEY, TABLE
from tests.kit.values import rows_of
from tests.property.test_upsert_twin import WIDE, decoded, few_differences

SPREAD = declare(
    {
        "name": "t",
        "columns": {"a": "string", "b": "decimal(38,10)", "c": "date", "d": "double", "e": "float"},
        "primary_key": ["a", "b", "c"],
        "distribution_key": ["c", "b"],
        "vnode_count": 7,
    }
)


def changes_of(table: TableSchema) -> st.SearchStrategy[Change]:
    """Legal ones by their halves; an UPDATE may change the key, which both decode and the lane refuses."""
    rows = rows_of(table.columns)
    return st.one_of(
        rows.map(lambda row: Change(Op.INSERT, None, row)),
        rows.map(lambda row: Change(Op.DELETE, row, None)),
        st.tuples(rows, rows).map(lambda pair: Change(Op.UPDATE, *pair)),
    )


@pytest.mark.parametrize("table", [WIDE, SPREAD], ids=["wide", "spread"])
@pytest.mark.timeout(600)
def test_changes_have_the_columns_that_spark_gives_them(spark: SparkSession, table: TableSchema) -> None:
    values, keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)
    found = [
        (keys.encode(table.key_of(change.row)), values.encode(change))
        for change in drawn(changes_of(table), 300)
    ]
    changes = decoded(spark, ChangeFormat(), table, found)
    assert few_differences(changes, ChangeFormat(), table, dict(enumerate(found))) == []


OF_ROWS = {"an UPDATE of the key", "another row's key"}
"""The lane finds these in the columns, in whatever way they were decoded."""


@pytest.mark.parametrize("kind", sorted(BROKEN.keys() - OF_ROWS))
def test_a_record_at_fault_is_left_to_spark(kind: str) -> None:
    value, _ = BROKEN[kind]
    with pytest.raises(UnfitError):
        decoded_columns(Records.of([(0, 7, KEY, value)]), ChangeFormat(), TABLE)

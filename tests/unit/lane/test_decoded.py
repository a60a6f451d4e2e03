"""Records that a lane refuses to read."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from state.columns import OFFSET, OP
from streaming.lane.run import run_lane
from streaming.lane.task import LaneTask
from streaming.source.decoded import AFTER, BEFORE, DecodedSchemaError, check_decoded, decoded_schema
from tests.kit.tables import table

TABLE = table()
SCHEMA = decoded_schema(TABLE)


def replaced(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


def test_other_places_further_columns_and_nullability_do_no_harm() -> None:
    row = pa.struct([field.with_nullable(False) for field in SCHEMA.field(AFTER).type])
    fields = [field.with_nullable(False) for field in reversed(list(replaced(AFTER, row)))]
    check_decoded(pa.schema([*fields, ("more", pa.int8())]), TABLE)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (SCHEMA.remove(SCHEMA.get_field_index(OFFSET)), r"lack the column _bf_offset \(int64\)"),
        (replaced(OP, pa.int32()), "column _bf_op of decoded records is int32, expected int8"),
        (replaced(BEFORE, pa.int8()), r"lack the column _bf_before.id \(int64\)"),
        (
            replaced(AFTER, pa.struct([("id", pa.int64()), ("n", pa.int64()), ("v", pa.string())])),
            "column _bf_after.n of decoded records is int64, expected int32",
        ),
        (
            replaced(BEFORE, pa.struct([("n", pa.int32()), ("id", pa.int64()), ("v", pa.string())])),
            r"column _bf_before of decoded records has \['n', 'id', 'v'\]",
        ),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named(schema: pa.Schema, problem: str) -> None:
    with pytest.raises(DecodedSchemaError, match=problem):
        check_decoded(schema, TABLE)


def test_a_lane_looks_at_its_door() -> None:
    class Task:
        table = TABLE

    with pytest.raises(DecodedSchemaError, match="_bf_op"):
        run_lane(cast("LaneTask", Task()), 0, [], replaced(OP, pa.int16()))

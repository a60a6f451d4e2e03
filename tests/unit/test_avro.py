from __future__ import annotations

from schemas.avro.codec import BARRIER_SCHEMA
from schemas.avro.output_schemas import change_schema, key_schema
from schemas.table import declare

TABLE = declare(
    {
        "name": "orders",
        "columns": {"note": "string", "region": "string", "id": "bigint", "amount": "decimal(18,2)"},
        "primary_key": ["id", "region"],
    }
)


def test_the_key_record_has_the_key_columns_in_key_order_and_no_nulls() -> None:
    assert key_schema(TABLE.key_columns) == {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
    }


def test_the_change_record_is_the_one_of_the_contract() -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
    row = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "note", "type": ["null", "string"]},
            {"name": "region", "type": "string"},
            {"name": "id", "type": "long"},
            {"name": "amount", "type": ["null", amount]},
        ],
    }
    op = {"type": "enum", "name": "Op", "symbols": ["INSERT", "UPDATE", "DELETE"]}
    assert change_schema(TABLE.columns) == {
        "type": "record",
        "name": "Change",
        "fields": [
            {"name": "op", "type": op},
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Row"]},
        ],
    }


def test_the_barrier_record_has_the_fields_and_mutations_of_the_contract_in_order() -> None:
    fields = {field["name"]: field["type"] for field in BARRIER_SCHEMA["fields"]}
    assert list(fields) == ["curr", "prev", "kind", "partitions", "injected_at", "mutation", "progress"]
    assert fields["kind"]["symbols"] == ["INITIAL", "BARRIER", "CHECKPOINT"]
    assert fields["mutation"][0] == "null"
    assert {branch["name"]: [f["name"] for f in branch["fields"]] for branch in fields["mutation"][1:]} == {
        "Add": ["job"],
        "Drop": ["job"],
        "Pause": ["job"],
        "Resume": ["job"],
        "Throttle": ["job", "rate_limit"],
        "Stop": [],
        "Other": ["name", "value"],
    }
    names = [branch["name"] for branch in fields["mutation"][1:]]
    assert names == ["Add", "Drop", "Pause", "Resume", "Throttle", "Stop", "Other"]
    assert [f["name"] for f in fields["progress"]["items"]["fields"]] == [
        "vnode",
        "position",
        "finished",
        "row_count",
    ]

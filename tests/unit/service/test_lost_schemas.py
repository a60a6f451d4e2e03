"""Schemas of an upstream: columns that the newest ones lack, and first records that have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.avro.registered import WriterSchema
from schemas.errors import Code, InputError
from schemas.kinds.table_changes import AddColumn, RetireColumn, altered
from schemas.settings.config import ServiceConfig, check
from state.values.last_end import FaultReport
from streaming.control.suspended import ways_on
from streaming.inspect.samples import Sample
from streaming.registry.client import Registry
from streaming.service.checks.first_records import FirstRecords
from streaming.service.checks.records import unlikely_units
from streaming.service.columns import LostColumns
from tests.kit.registry import FakeRegistry

COLUMNS = {"id": "bigint", "note": "string", "n": {"type": "int", "field": ["n", "m"], "fill": 0}}
Fields = Mapping[str, str]
ID, NOTE, N, M = {"id": "long"}, {"note": "string"}, {"n": "int"}, {"m": "int"}
ALL: Fields = {**ID, **NOTE, **N}


class WithoutSubjects(FakeRegistry):
    """One that does not tell of which subjects a schema is."""

    def response(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, bytes]:
        if path.startswith("/schemas/ids/") and "/subjects" in path:
            return 404, b"not here"
        return super().response(method, path, body, authorization)


@pytest.fixture(params=[FakeRegistry, WithoutSubjects])
def registry(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    with request.param().serving() as serving:
        yield serving


def config_of(registry: FakeRegistry, **upstream: Any) -> ServiceConfig:
    declared = {
        "upstream": {
            "topic": "up",
            "format": "upsert",
            "encoding": "avro-registry",
            **upstream,
        },
        "registry": {"url": registry.url},
        "state": "s",
        "table": {"name": "t", "columns": COLUMNS, "primary_key": ["id"]},
    }
    return check(declared, path=Path("config.yaml"))


def event(row: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"before": ["null", row], "after": ["null", "Row"], "op": "string"}
    return {"type": "record", "name": "Event", "fields": [{"name": k, "type": v} for k, v in kinds.items()]}


def schema_of(fields: Fields) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Row",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def judged(config: ServiceConfig, schema_id: int) -> InputError | None:
    schema = Registry(config.registry).schema(schema_id)
    assert isinstance(schema, WriterSchema)
    try:
        LostColumns(config).refuse(schema)
    except InputError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("versions", "lost"),
    [
        ([ALL], []),
        ([ID, ALL], [None, None]),
        ([ALL, ID], [None, "note"]),
        ([ALL, {**ID, **NOTE}], [None, "n"]),
        ([ALL, {**ID, **NOTE, **M}, {**ID, **NOTE}], [None, None, "n"]),
        ([{**ID, **N}, ALL, {**ID, **NOTE}, ALL], [None, None, "n", None]),
        ([ID, {"id": "long", "other": "int"}], [None, None]),
    ],
)
@pytest.mark.parametrize("format_", ["upsert", "debezium"])
def test_a_schema_without_a_column_of_an_earlier_version_has_lost_it(
    registry: FakeRegistry, versions: Sequence[Fields], lost: Sequence[str | None], format_: str
) -> None:
    is_event = format_ == "debezium"
    more = {"format": format_}
    wrap = event if is_event else dict
    ids = [registry.register("up-value", wrap(schema_of(fields))) for fields in versions]
    key = registry.register("up-key", {**schema_of(ID), "name": "Key"})
    config = config_of(registry, **more)
    found = [judged(config, each) for each in ids]
    for error, name in zip(found, lost, strict=False):
        assert (error is None) == (name is None)
        if error is not None and name is not None:
            assert error.code is Code.SCHEMA_INCOMPATIBLE
            ways = ways_on(FaultReport.from_error(error), "t")
            assert ways == (f"backfill alter --retire {name}", "backfill resume --table t")
    assert judged(config, key) is None
    null = config_of(registry, on_lost_column=None, **more)
    assert [judged(null, each) for each in ids] == [None] * len(ids)


def test_a_retired_column_is_not_lost_and_comes_back_in_its_type_alone(registry: FakeRegistry) -> None:
    ids = [
        registry.register("up-value", schema_of(fields))
        for fields in (ALL, ID, ALL, {**ALL, "note": "int"}, {**ID, **N})
    ]
    config, both = config_of(registry), [RetireColumn("note"), RetireColumn("n")]
    retired = config.model_copy(update={"table": altered(config.table, both)})
    assert [error and error.code for error in (judged(retired, each) for each in ids)] == [
        *[None, None, None],
        Code.COLUMN_RETYPED,
        None,
    ]
    back = retired.model_copy(update={"table": altered(retired.table, [AddColumn("note", '"string"')])})
    assert [judged(back, each) is None for each in ids] == [True, False, True, True, False]


def test_no_registry_is_asked_for_schemas_of_records_that_have_none() -> None:
    with FakeRegistry().serving() as registry:
        declared = {
            "upstream": "up",
            "registry": {"url": registry.url},
            "state": "s",
            "table": {"name": "t", "columns": {"id": "bigint", "at": "timestamp"}, "primary_key": ["id"]},
        }
        config = check(declared, path=Path("config.yaml"))
        first = FirstRecords("up", None, None)
        first.samples = [Sample(b"\x02", bytes([0, 0, 2, number, 1, 2])) for number in range(100)]
        assert unlikely_units(first, config) == []
        assert registry.asked == []

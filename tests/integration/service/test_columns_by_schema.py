"""A table gets the columns that the schemas of its records have, by itself: in Avro by a registry, and in frames."""

from __future__ import annotations

import json
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable

from schemas.avro.registered import frame
from schemas.errors import Code
from schemas.kinds.table_changes import AddColumn, IgnoreField, TableChange, changes_text
from schemas.position import Key
from schemas.records import Alter, Change
from schemas.table import TableSchema, declare
from state.journal import Journal
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage
from streaming.cli.app import main
from streaming.runtime import failpoints
from tests.integration.service.test_suspended import await_suspended
from tests.kit.avro_records import encoded
from tests.kit.folded import folded
from tests.kit.real import Run, SetUp, Stage
from tests.kit.real_upstream import RealUpstream, json_of
from tests.kit.registry import FakeRegistry

TABLE: dict[str, Any] = {"name": "t", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]}
AS_ADDED = {"tier": {"type": "string", "fill": "basic"}, "size": "int"}
Fields = list[dict[str, Any]]
OWN: Fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]


class GrowingUpstream(RealUpstream):
    """Rows by key whose schema is that of `fields` at the time, where a row's further values are dropped."""

    fields: Fields

    @abstractmethod
    def attach(self, registry: FakeRegistry) -> None:
        """Begin with the schema of id and note, at this registry if records name theirs."""

    @abstractmethod
    def register(self, more: Fields, *, without: str | None = None) -> None:
        """Make the schema of id, note and these fields, but for one of them."""

    def _append(self, key: Key, change: Change) -> None:
        names = ["id", "note", "tier", "size"]
        row = None if change.after is None else dict(zip(names, change.after, strict=False))
        data, value = self.key_of(key[0]), None if row is None else self.value_of(row)
        self._produce(value, data, zlib.crc32(json_of({"id": key[0]})) % self.partitions)

    def key_of(self, number: int) -> bytes:
        return json_of({"id": number})

    @abstractmethod
    def value_of(self, row: dict[str, Any]) -> bytes:
        """A row with the fields of the schema at the time."""


class GrowingAvro(GrowingUpstream):
    """In Avro; `register` makes a version that no record need have."""

    form: ClassVar[dict[str, str]] = {
        "format": "upsert",
        "encoding": "avro-registry",
        "key": "json",
        "on_new_column": "add",
    }
    registry: FakeRegistry

    def attach(self, registry: FakeRegistry) -> None:
        self.registry = registry
        self.sections: Mapping[str, Any] = MappingProxyType({"registry": {"url": registry.url}})
        self.register([])

    def register(self, more: Fields, *, without: str | None = None) -> None:
        self.fields = [each for each in (*OWN, *more) if each["name"] != without]
        schema = {"type": "record", "name": "Row", "fields": self.fields}
        self._id, self._schema = self.registry.register(f"{self.name}-value", schema), schema

    def key_of(self, number: int) -> bytes:
        return str(number).encode()

    def value_of(self, row: dict[str, Any]) -> bytes:
        return frame(self._id) + encoded(
            self._schema, {each["name"]: row[each["name"]] for each in self.fields}
        )


class GrowingFrames(GrowingUpstream):
    """In JSON within Connect's frames."""

    form: ClassVar[dict[str, str]] = {"format": "upsert", "on_new_column": "add"}

    def attach(self, registry: FakeRegistry) -> None:
        self.register([])

    def register(self, more: Fields, *, without: str | None = None) -> None:
        kinds = {"long": "int64", "int": "int32", "string": "string"}
        self.fields = [
            {
                "field": each["name"],
                "type": next(kinds[kind] for kind in kinds if kind in each["type"]),
                "optional": each["name"] != "id",
                **({"default": each["default"]} if "default" in each else {}),
            }
            for each in (*OWN, *more)
            if each["name"] != without
        ]

    def value_of(self, row: dict[str, Any]) -> bytes:
        payload = {each["field"]: row[each["field"]] for each in self.fields}
        return json_of({"schema": {"type": "struct", "fields": self.fields}, "payload": payload})


TIER = {"name": "tier", "type": ["string", "null"], "default": "basic"}
SIZE = {"name": "size", "type": ["null", "int"], "default": None}


def grown() -> TableSchema:
    return declare({**TABLE, "columns": {**TABLE["columns"], **AS_ADDED}})


def stored_columns(stage: Stage) -> dict[str, Any]:
    entry = Journal(Storage(str(stage.config().state)), declare(TABLE)).current
    assert entry is not None
    columns: dict[str, Any] = json.loads(entry.table)["columns"]
    return columns


@pytest.mark.parametrize("upstream_type", [GrowingAvro, GrowingFrames], ids=["avro", "frames"])
@pytest.mark.parametrize(
    "crash", [None, "taken-over@2:raise", "fenced@2:raise"], ids=["", "taken-over", "fenced"]
)
def test_a_column_appears_and_the_same_batch_goes_on_with_it(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    upstream_type: type[GrowingAvro | GrowingFrames],
    crash: str | None,
) -> None:
    stage = set_up({"name": "before"}, table=TABLE, upstream_type=upstream_type)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingAvro | GrowingFrames)
    upstream.attach(registry)
    how: dict[str, Any] = {"table": TABLE}
    if isinstance(upstream, GrowingFrames):
        # Frames without the column come behind those with it, in later batches as well.
        lost = {"on_lost_column": "null"}
        how["upstream"] = {**upstream.form, "topic": upstream.name, **lost}
    for number in range(30):
        upstream.put((number, f"n{number}"))
    run = stage.begun(crash, **how)
    # 1. The first schema with a column decides about it; with a registry whether a record of it came or not.
    upstream.rows = {key: (*row, "basic", None) for key, row in upstream.rows.items()}
    upstream.register([TIER])
    if isinstance(upstream, GrowingFrames):
        upstream.put((30, "x", None))
        upstream.rows[(30,)] = (30, "x", None, None)
        upstream.barrier()  # of an interval before the others, in whatever batch
    later: Fields = [SIZE, {**TIER, "default": "gold"}]
    for number in range(0, 30, 2):
        upstream.register([])
        upstream.rows[(number,)] = (number, "old", "basic", None)
        upstream.put((number, "old", "basic", None))
        upstream.register(later)
        upstream.put((number + 1, "new", "iron" if number else None, number))
    upstream.delete(4)
    last = upstream.barrier()
    if crash is not None:
        assert isinstance(run.end(), failpoints.Provoked)
        run = Run(stage.service(**how))
    run.reach(last)
    assert run.service.vitals.last_end is None
    assert run.service.config.table.column_names == ("id", "note", "tier", "size")
    run.stop()
    assert stored_columns(stage) == {**TABLE["columns"], **AS_ADDED}
    # 2. A job from then on has all columns, also with the old file.
    stage.add_job("after")
    with stage.running(**how) as run:
        stage.finish(run, "after")
    (file := stage.folder / "config.yaml").write_text(json.dumps(stage.declared(**how)))
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    upstream.table = grown()
    assert folded(stage, number=1) == upstream.rows
    for path in (BASE_PATH, LOG_PATH):
        fields = DeltaTable(f"{stage.folder}/state/{path}").schema().fields
        assert [field.name for field in fields][-2:] == ["tier", "size"]


@pytest.mark.parametrize("crash", [None, "settled@2:raise", "taken-over@2:raise", "fenced@2:raise"], ids=str)
def test_a_column_is_added_by_a_barrier_before_any_record_has_it(
    set_up: SetUp, registry: FakeRegistry, crash: str | None
) -> None:
    stage = set_up({"name": "before"}, table=TABLE, upstream_type=GrowingFrames)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingFrames)
    upstream.attach(registry)
    how: dict[str, Any] = {
        "table": TABLE,
        "upstream": {**upstream.form, "topic": upstream.name, "on_new_column": "wait"},
    }
    for number in range(10):
        upstream.put((number, f"n{number}"))
    run = stage.begun(crash, **how)
    changes: list[TableChange] = [AddColumn("size", '{"type": "int", "fill": 7}'), IgnoreField("tier")]
    asked = upstream.barrier(Alter(changes_text(changes)))
    if crash is not None:
        assert isinstance(run.end(), failpoints.Provoked)
        run = Run(stage.service(**how))  # the batch that asked is done
    else:
        run.reach(asked)
    upstream.register([{**SIZE, "default": 9}, TIER])
    upstream.put((1, "new", None, None))
    upstream.put((20, "new", "iron", 8))
    run.reach(upstream.barrier())
    assert run.service.vitals.last_end is None
    assert run.service.config.table.column_names == ("id", "note", "size")
    # What can't be is refused, and changes nothing.
    report = run.reach(upstream.barrier(Alter(changes_text([AddColumn("note", '"int"')]))))
    assert [each.refused for each in report.outcome.reports] == [Code.TABLE_INVALID]
    run.stop()
    assert stored_columns(stage) == {**TABLE["columns"], "size": {"type": "int", "fill": 7}}
    stage.jobs = [{**stage.jobs[0], "name": "after", "output": f"{stage.jobs[0]['output']}-after"}]
    with stage.running(**how) as run:
        stage.finish(run, "after")
    upstream.table = declare({**TABLE, "columns": {**TABLE["columns"], "size": {"type": "int", "fill": 7}}})
    expected = {(number,): (number, f"n{number}", 7) for number in range(10)}
    assert folded(stage) == expected | {(1,): (1, "new", None), (20,): (20, "new", 8)}


def test_what_no_column_can_be_read_from_is_ignored_and_what_only_an_operator_can_name_waits(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = set_up({"name": "before"}, table=TABLE, upstream_type=GrowingAvro)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingAvro)
    upstream.attach(registry)
    upstream.put((1, "x"))
    run = Run(stage.service(on_table_fault="suspend"))
    run.reach(upstream.barrier())
    names = {"tags": {"type": "array", "items": "string"}, "size": ["null", "int"]}
    upstream.register([{"name": name, "type": kind} for name, kind in names.items()])
    value = {"id": 3, "note": "z", "tags": [], "size": 6}
    upstream.send(0, b"3", frame(upstream._id) + encoded(upstream._schema, value))
    run.reach(upstream.barrier())
    assert stored_columns(stage) == {**TABLE["columns"], "size": "int"}
    # Letters alone differ from a column's name.
    upstream.register([{"name": "size", "type": ["null", "int"]}, {"name": "Note", "type": "string"}])
    other = {"id": 4, "note": "", "size": None, "Note": ""}
    upstream.send(0, b"4", frame(upstream._id) + encoded(upstream._schema, other))
    upstream.barrier()
    await_suspended(stage, run, Code.SCHEMA_WAITS)
    run.stop()


@pytest.mark.parametrize("upstream_type", [GrowingAvro, GrowingFrames])
def test_a_column_that_schemas_have_lost_waits_until_it_is_retired(
    upstream_type: type[GrowingUpstream],
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = set_up({"name": "copy"}, table=TABLE, upstream_type=upstream_type)
    upstream = stage.upstream
    how: dict[str, Any] = {"table": TABLE, "on_table_fault": "suspend"}
    assert isinstance(upstream, GrowingUpstream)
    upstream.attach(registry)
    for number in range(10):
        upstream.put((number, f"n{number}"))
    run = Run(stage.service(**how))
    run.reach(upstream.barrier())
    upstream.register([], without="note")
    for number in (3, 11):
        upstream.put((number, None))
    last = upstream.barrier()
    await_suspended(stage, run, Code.SCHEMA_INCOMPATIBLE)
    (file := stage.folder / "config.yaml").write_text(json.dumps(stage.declared(**how)))
    assert main(["alter", "--retire", "note", "--config", str(file)]) == 0, capsys.readouterr()
    run.reach(last)
    assert run.service.config.table.by_name["note"].is_retired
    # By the schema that has it the column is what it was.
    upstream.register([])
    upstream.put((4, "back"))
    run.reach(upstream.barrier())
    run.stop()
    with stage.running(**how) as run:
        run.reach(upstream.barrier())
        assert run.service.config.table.by_name["note"].is_retired
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    assert folded(stage) == upstream.rows

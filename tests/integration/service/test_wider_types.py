"""Columns get wider types: by the schemas of records, by hand, with outputs in each form that can have them."""

from __future__ import annotations

import base64
import json
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas.avro.registered import frame
from schemas.errors import Code
from schemas.kinds.table_changes import WidenColumn, changes_text
from schemas.position import Key
from schemas.records import Alter, Change
from schemas.table import declare
from state.journal import Journal
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage
from streaming.cli.app import main
from streaming.control.known_table import as_known
from streaming.runtime import failpoints
from tests.integration.service.test_suspended import await_suspended
from tests.kit.avro_records import encoded
from tests.kit.folded import fold_of
from tests.kit.real import Run, SetUp, Stage
from tests.kit.real_upstream import RealUpstream, json_of
from tests.kit.registry import FakeRegistry

NARROW: dict[str, Any] = {"id": "bigint", "n": "int", "price": {"type": "decimal(10,2)", "fill": "7.50"}}
WIDE: dict[str, Any] = {"id": "bigint", "n": "bigint", "price": {"type": "decimal(20,4)", "fill": "7.5000"}}
TABLE: dict[str, Any] = {"name": "t", "columns": NARROW, "primary_key": ["id"]}
MOST, LEAST = 2**31 - 1, -(2**31)
BEYOND = 2**63 - 1, -(2**31) - 1
FINE = Decimal("9999999999999999.9999")


def unscaled(number: Decimal | None, scale: int) -> bytes | None:
    return None if number is None else int(number.scaleb(scale)).to_bytes(10, "big", signed=True)


class WideningUpstream(RealUpstream):
    """Rows by key, whose schema has wide types once `is_wide`."""

    is_wide = False

    def _append(self, key: Key, change: Change) -> None:
        names = self.table.column_names
        before, after = (
            None if row is None else dict(zip(names, row, strict=True))
            for row in (change.before, change.after)
        )
        data = self.key_of(key[0])
        self._produce(self.value_of(before, after), data, zlib.crc32(data) % self.partitions)

    def key_of(self, number: int) -> bytes:
        return json_of({"id": number})

    @abstractmethod
    def value_of(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes | None:
        """The value of a record by the schema at the time."""


class WideningAvro(WideningUpstream):
    form: ClassVar[dict[str, str]] = {"format": "upsert", "encoding": "avro-registry", "key": "json"}
    registry: FakeRegistry

    def key_of(self, number: int) -> bytes:
        return str(number).encode()

    def attach(self, registry: FakeRegistry) -> None:
        self.registry = registry
        self.sections: Mapping[str, Any] = MappingProxyType({"registry": {"url": registry.url}})

    def value_of(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes | None:
        if after is None:
            return None
        precision, scale = (20, 4) if self.is_wide else (10, 2)
        price = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        fields = {"id": "long", "n": ["null", "long" if self.is_wide else "int"], "price": ["null", price]}
        schema = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
        }
        value = {**after, "price": unscaled(after["price"], scale)}
        return frame(self.registry.register(f"{self.name}-value", schema)) + encoded(schema, value)


class WideningFrames(WideningUpstream):
    form: ClassVar[dict[str, str]] = {"format": "upsert"}

    def attach(self, registry: FakeRegistry) -> None:
        self.sections = MappingProxyType({"registry": {"url": registry.url}})

    def value_of(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes | None:
        if after is None:
            return None
        scale = 4 if self.is_wide else 2
        price = unscaled(after["price"], scale)
        payload = {**after, "price": None if price is None else base64.b64encode(price).decode()}
        return json_of({"schema": {"type": "struct", "fields": self._fields(scale)}, "payload": payload})

    def _fields(self, scale: int) -> list[dict[str, Any]]:
        parameters = {"scale": str(scale), "connect.decimal.precision": "20" if self.is_wide else "10"}
        decimal = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
        kind = "int64" if self.is_wide else "int32"
        return [
            {"field": "id", "type": "int64", "optional": False},
            {"field": "n", "type": kind, "optional": True},
            {"field": "price", "type": "bytes", "optional": True, **decimal},
        ]


class WideningEvents(WideningUpstream):
    """Events whose rows before are compared with those that are stored. Nothing says their types."""

    form: ClassVar[dict[str, str]] = {"format": "debezium", "before": "full", "decimal": "string"}

    def attach(self, registry: FakeRegistry) -> None:
        self.sections = MappingProxyType({"registry": {"url": registry.url}})
        self._at = 0

    def value_of(self, before: dict[str, Any] | None, after: dict[str, Any] | None) -> bytes | None:
        self._at += 1
        op = "c" if before is None else "d" if after is None else "u"
        source = {"connector": "postgresql", "name": "db", "db": "db", "lsn": self._at, "ts_ms": self._at}
        return json_of({"before": before, "after": after, "op": op, "source": source, "ts_ms": self._at})


UPSTREAMS: tuple[type[WideningUpstream], ...] = (WideningAvro, WideningFrames, WideningEvents)
JOBS: tuple[dict[str, Any], ...] = (
    {"name": "texts", "format": "upsert"},
    {"name": "frames", "format": "debezium", "encoding": "json-schema"},
    {"name": "ids", "format": "upsert", "encoding": "avro-registry", "columns": ["id", "n"]},
)


def stage_of(set_up: SetUp, upstream_type: type[WideningUpstream], registry: FakeRegistry) -> Stage:
    stage = set_up({"name": "first"}, table=TABLE, upstream_type=upstream_type)
    [first] = stage.jobs
    stage.jobs = [{**first, **job, "output": f"{first['output']}-{job['name']}"} for job in JOBS]
    assert isinstance(stage.upstream, WideningAvro | WideningFrames | WideningEvents)
    stage.upstream.attach(registry)
    return stage


def stored(stage: Stage) -> dict[str, Any]:
    entry = Journal(Storage(str(stage.config().state)), declare(TABLE)).current
    assert entry is not None
    columns: dict[str, Any] = json.loads(entry.table)["columns"]
    return columns


def widens(upstream: RealUpstream, how: str) -> dict[str, Any]:
    """The configuration: columns get wider types by themselves, or by a barrier."""
    more = {} if how == "barrier" else {"on_wider_type": "widen", "on_new_column": "add"}
    return {"table": TABLE, "upstream": {"topic": upstream.name, **upstream.form, **more}}


def put_wide(upstream: WideningUpstream) -> None:
    upstream.is_wide = True
    upstream.put((1, BEYOND[0], FINE))
    upstream.put((2, BEYOND[1], -FINE))
    upstream.put((3, None, None))
    upstream.put((40, MOST, Decimal("0.0100")))
    upstream.delete(5)


@pytest.mark.parametrize(
    ("upstream_type", "how"),
    [
        (WideningAvro, "schema"),
        (WideningFrames, "schema"),
        (WideningFrames, "barrier"),
        (WideningEvents, "barrier"),
    ],
)
@pytest.mark.parametrize(
    "crash", [None, "taken-over@2:raise", "fenced@2:raise"], ids=["", "taken-over", "fenced"]
)
def test_columns_get_wider_types_and_outputs_go_on(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
    upstream_type: type[WideningUpstream],
    how: str,
    crash: str | None,
) -> None:
    stage = stage_of(set_up, upstream_type, registry)
    upstream = stage.upstream
    assert isinstance(upstream, WideningUpstream)
    config = widens(upstream, how)
    for number in range(30):
        upstream.put((number, MOST - number if number % 2 else LEAST + number, Decimal(number) / 4))
    run = stage.begun(crash, compaction_least_rows=10, **config)
    upstream.put((6, None, None))
    run.reach(upstream.barrier())
    if how == "barrier":
        wider = [WidenColumn("n", "bigint"), WidenColumn("price", "decimal(20,4)")]
        last = upstream.barrier(Alter(changes_text(wider)))
    else:
        put_wide(upstream)
        last = upstream.barrier()
    if crash is not None:
        assert isinstance(run.end(), failpoints.Provoked)
        run = Run(stage.service(compaction_least_rows=10, **config))
    if how == "barrier":  # behind the crash the batch that asked is done
        put_wide(upstream)
        last = upstream.barrier()
    run.reach(last)
    # Rows in files of before are changed, and compacted with those of after.
    for number in range(10, 20):
        upstream.put((number, number << 32, Decimal(number) / 16))
        run.reach(upstream.barrier())
    run.stop()
    assert stored(stage) == WIDE
    stage.add_job("later")
    with stage.running(**config) as run:  # with a file that is behind
        stage.finish(run, "later")
    (file := stage.folder / "config.yaml").write_text(json.dumps(stage.declared(**config)))
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    known = as_known(stage.config(**config))
    folds = [fold_of(known, upstream.kafka, number)[0] for number in range(4)]
    assert folds[0] == folds[1] == folds[3] == upstream.rows
    assert folds[2] == {key: row[:2] for key, row in upstream.rows.items()}
    check_delta(stage, spark)


def check_delta(stage: Stage, spark: SparkSession) -> None:
    """Other readers see the wide types, also in files of before."""
    for path in (BASE_PATH, LOG_PATH):
        where = f"{stage.folder}/state/{path}"
        kinds = {field.name: field.type.type for field in DeltaTable(where).schema().fields}
        assert (kinds["n"], kinds["price"]) == ("long", "decimal(20,4)")
        by_spark = spark.read.format("delta").load(where).select("id", "n", "price").collect()
        by_rust = DeltaTable(where).to_pyarrow_table(columns=["id", "n", "price"]).to_pylist()
        assert sorted(map(str, map(tuple, by_spark))) == sorted(str(tuple(row.values())) for row in by_rust)
        assert by_rust


def test_a_wider_type_that_no_registry_takes_for_an_output_waits(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = stage_of(set_up, WideningAvro, registry)
    upstream = stage.upstream
    assert isinstance(upstream, WideningAvro)
    upstream.put((1, 1, None))
    run = Run(stage.service(on_table_fault="suspend", **widens(upstream, "schema")))
    stage.finish(run, "ids")
    registry.incompatible.add(f"{stage.jobs[2]['output']}-value")
    upstream.is_wide = True
    upstream.put((2, BEYOND[0], None))
    upstream.barrier()
    await_suspended(stage, run, Code.SCHEMA_INCOMPATIBLE)
    run.stop()
    assert stored(stage) == NARROW


def test_a_wider_type_that_a_barrier_asks_for_and_no_registry_takes_changes_nothing(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = stage_of(set_up, WideningFrames, registry)
    upstream, config = stage.upstream, widens(stage.upstream, "barrier")
    upstream.put((1, 1, None))
    with stage.running(**config) as run:
        stage.finish(run, "ids")
    registry.incompatible.add(f"{stage.jobs[2]['output']}-value")
    # A crash right behind the batch that asked: the next start finds the request again.
    run = stage.begun("settled@2:raise", **config)
    upstream.barrier(Alter(changes_text([WidenColumn("n", "bigint")])))
    assert isinstance(run.end(), failpoints.Provoked)
    with stage.running(**config) as run:
        upstream.put((2, 2, None))
        run.reach(upstream.barrier())
    assert stored(stage) == NARROW

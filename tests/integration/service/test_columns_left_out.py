"""A configuration without columns: they are those of the newest schema, and then those of the state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import Code, ConfigError
from schemas.settings.config import check
from streaming.cli.app import main
from streaming.control.known_table import as_known
from streaming.service.left_out_columns import load
from streaming.service.service import Service
from tests.integration.service.test_columns_by_schema import SIZE, TABLE, TIER, GrowingAvro, GrowingFrames
from tests.kit.folded import fold_of
from tests.kit.real import Run, SetUp, Stage
from tests.kit.registry import FakeRegistry

FOUND = {"id": "bigint", "note": "string", "tier": {"type": "string", "fill": "basic"}}


def written(stage: Stage) -> Path:
    """The file without columns."""
    declared = stage.declared()
    form = {key: value for key, value in declared["upstream"].items() if key != "on_new_column"}
    declared |= {"table": {"name": "t", "primary_key": ["id"]}, "upstream": form}
    (file := stage.folder / "config.yaml").write_text(json.dumps(declared))
    return file


@pytest.mark.parametrize("upstream_type", [GrowingAvro, GrowingFrames], ids=["avro", "frames"])
def test_a_table_has_the_columns_of_the_newest_schema_and_gets_further_ones(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    upstream_type: type[GrowingAvro | GrowingFrames],
) -> None:
    stage = set_up(
        {"name": "copy", "new_columns": "send", "format": "upsert"}, table=TABLE, upstream_type=upstream_type
    )
    upstream = stage.upstream
    assert isinstance(upstream, GrowingAvro | GrowingFrames)
    upstream.attach(registry)
    file = written(stage)
    for number in range(10):
        upstream.put((number, f"n{number}"))
    upstream.register([TIER])
    for number in range(5, 15):
        upstream.put((number, "new", "iron"))
    upstream.rows = {key: (*row, "basic")[:3] for key, row in upstream.rows.items()}
    upstream.flush()
    assert json.loads(json.dumps(load(file).table.to_dict()["columns"])) == FOUND

    def run() -> Run:
        return Run(Service(load(file), upstream.kafka, lambda: stage.spark))

    service = run()
    service.reach(upstream.barrier())
    upstream.register([TIER, SIZE])
    upstream.rows = {key: (*row, None) for key, row in upstream.rows.items()}
    upstream.put((20, "more", None, 5))
    service.reach(upstream.barrier())
    stage.finish(service, "copy")
    service.stop()
    # From then on the state has them, whatever is registered.
    registry.status = 500
    assert load(file).table.column_names == ("id", "note", "tier", "size")
    registry.status = None
    service = run()
    upstream.put((21, "last", "gold", 6))
    service.reach(upstream.barrier())
    service.stop()
    for command in (["list"], ["status"], ["verify"]):
        assert main([*command, "--config", str(file)]) in (0, 12), capsys.readouterr()
    assert fold_of(as_known(load(file)), upstream.kafka, 0)[0] == upstream.rows


def test_without_a_schema_the_columns_have_to_be_named(
    set_up: SetUp, registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = set_up({"name": "copy"}, table=TABLE, upstream_type=GrowingFrames)
    file = written(stage)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.code is Code.TABLE_INVALID
    assert f"backfill inspect {stage.upstream.name}" in str(caught.value)
    assert main(["doctor", "--config", str(file)]) == 2
    assert "no record or registry that has a schema" in " ".join(capsys.readouterr().out.split())
    # In a form without schemas the error is that of any file.
    declared = {**json.loads(file.read_text()), "upstream": stage.upstream.name}
    with pytest.raises(ConfigError) as caught:
        check(declared, path=file)
    file.write_text(json.dumps(declared))
    with pytest.raises(ConfigError) as again:
        load(file)
    assert str(again.value) == str(caught.value)

"""A field that was ignored becomes a column, with earlier values missing: whatever crashes, and to `verify`, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.errors import Code
from schemas.kinds.table_changes import AddColumn, changes_text
from schemas.position import Key
from schemas.records import Alter, Row
from streaming.cli.app import main
from streaming.runtime import failpoints
from streaming.source.barriers.injecting.control_requests import AlterAndTryAgain
from tests.integration.service.test_columns_by_schema import SIZE, TABLE, TIER, GrowingAvro, GrowingFrames
from tests.integration.service.test_suspended import ask, await_suspended
from tests.kit.folded import folded
from tests.kit.real import Run, SetUp
from tests.kit.registry import FakeRegistry

ACCEPTED = AddColumn("size", '{"type": "int", "fill": 7}', accepts_missing=True)


@pytest.mark.parametrize("upstream_type", [GrowingAvro, GrowingFrames], ids=["avro", "frames"])
@pytest.mark.parametrize(
    "crash", [None, "journaled@2:raise", "sent@2:raise", "replicated@2:raise", "taken-over@2:raise"], ids=str
)
def test_earlier_values_are_missing_and_later_ones_are_there(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    upstream_type: type[GrowingAvro | GrowingFrames],
    crash: str | None,
) -> None:
    sends = {"name": "sends", "format": "upsert", "new_columns": "send"}
    stage = set_up({"name": "before"}, sends, table=TABLE, upstream_type=upstream_type)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingAvro | GrowingFrames)
    upstream.attach(registry)
    form = {**upstream.form, "topic": upstream.name, "on_new_column": "ignore"}
    how: dict[str, Any] = {"table": TABLE, "upstream": form}
    upstream.register([SIZE])
    # 1. Before the column its values are ignored, up to the barrier that asks for it.
    for number in range(10):
        upstream.put((number, f"n{number}", None, number))
    run = stage.begun(crash, **how)
    upstream.put((1, "up to the change", None, 1))
    upstream.put((10, "up to the change", None, None))
    asked = upstream.barrier(Alter(changes_text([ACCEPTED])))
    if crash is None:
        run.reach(asked)
    else:
        assert isinstance(run.end(), failpoints.Provoked)
        run = Run(stage.service(**how))
    # 2. From then on they are read.
    upstream.put((2, "behind it", None, 20))
    upstream.put((3, "behind it", None, None))
    run.reach(upstream.barrier())
    stage.jobs = [*stage.jobs, {"name": "after", "output": f"{stage.jobs[0]['output']}-after"}]
    run.stop()
    with stage.running(**how) as run:
        stage.finish(run, "after")
        assert run.service.config.table.by_name["size"].is_incomplete
    (file := stage.folder / "config.yaml").write_text(json.dumps(stage.declared(**how)))
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    expected: dict[Key, Row] = {(number,): (number, f"n{number}", 7) for number in range(10)}
    expected |= {(1,): (1, "up to the change", 7), (10,): (10, "up to the change", 7)}
    expected |= {(2,): (2, "behind it", 20), (3,): (3, "behind it", None)}
    upstream.table = run.service.config.table
    assert folded(stage, number=2) == expected


@pytest.mark.parametrize("upstream_type", [GrowingAvro, GrowingFrames], ids=["avro", "frames"])
def test_a_table_that_waits_at_them_goes_on_without_their_values(
    set_up: SetUp,
    registry: FakeRegistry,
    capsys: pytest.CaptureFixture[str],
    upstream_type: type[GrowingAvro | GrowingFrames],
) -> None:
    """The fields were ignored once, and wait since a restart: the open batch has records with them."""
    stage = set_up({"name": "before"}, table=TABLE, upstream_type=upstream_type)
    upstream = stage.upstream
    assert isinstance(upstream, GrowingAvro | GrowingFrames)
    upstream.attach(registry)
    form = {**upstream.form, "topic": upstream.name, "on_new_column": "ignore"}
    how: dict[str, Any] = {"table": TABLE, "upstream": form}
    upstream.register([TIER, SIZE])
    upstream.put((1, "ignored", "iron", 1))
    with stage.running(**how) as run:
        run.reach(upstream.barrier())
    # 1. Both wait at the next record, and stay unread in its batch.
    form["on_new_column"] = "wait"
    run = Run(stage.service(**how, on_table_fault="suspend"))
    upstream.put((2, "waits", "iron", 2))
    last = upstream.barrier()
    await_suspended(stage, run, Code.SCHEMA_WAITS)
    tier = AddColumn("tier", '{"type": "string", "fill": "basic"}', accepts_missing=True)
    ask(stage, AlterAndTryAgain((tier, ACCEPTED)))
    run.reach(last)
    # 2. Behind it they are read.
    upstream.put((3, "read", "gold", 3))
    run.reach(upstream.barrier())
    stage.jobs = [*stage.jobs, {"name": "after", "output": f"{stage.jobs[0]['output']}-after"}]
    run.stop()
    with stage.running(**how) as run:
        while not run.is_complete("after"):
            run.reach(upstream.barrier())
        upstream.table = run.service.config.table
    (file := stage.folder / "config.yaml").write_text(json.dumps(stage.declared(**how)))
    assert main(["verify", "--config", str(file)]) == 0, capsys.readouterr()
    expected: dict[Key, Row] = {(1,): (1, "ignored", "basic", 7), (2,): (2, "waits", "basic", 7)}
    assert folded(stage, number=1) == expected | {(3,): (3, "read", "gold", 3)}

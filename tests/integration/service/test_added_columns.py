"""A column that appears upstream: the table waits at its first record, and goes on with the column after a restart."""

from __future__ import annotations

import json
from typing import Any, ClassVar, NamedTuple

import pytest
import structlog
from deltalake import DeltaTable

from schemas.errors import Code, InputError
from schemas.table import TableSchema, declare
from state.replica import LOG_PATH
from streaming.cli.app import main
from streaming.cli.jobs.served import known_jobs
from streaming.runtime import failpoints
from streaming.verify.judge import verify_topics
from tests.integration.service.conftest import ORDERS
from tests.integration.service.test_suspended import await_suspended
from tests.kit.folded import folded
from tests.kit.real import Run, SetUp, Stage, await_condition
from tests.kit.real_upstream import UpsertUpstream

TABLE = declare(ORDERS)


class WaitingUpstream(UpsertUpstream):
    """Rows by key whose new fields wait."""

    form: ClassVar[dict[str, str]] = {"format": "upsert", "on_new_column": "wait"}


def wider(table: TableSchema) -> TableSchema:
    declared = table.to_dict()
    declared["columns"] |= {"size": {"type": "int", "fill": 7}, "tier": "string"}
    return declare(declared)


def row(number: int, *more: Any) -> tuple[Any, ...]:
    return (number, "EU", None, f"n{number}", *more)


def clean(stage: Stage) -> bool:
    """True if the law holds for each job, with the columns that it was made with."""
    config = stage.config()
    reports = [
        verify_topics(
            stage.upstream.kafka,
            stage.upstream.name,
            job.output,
            config.table,
            columns=job.columns,
            condition=None,
            require_complete=True,
            barriers=(config.topics.barriers, job.barrier_topic),
            formats=(config.upstream_format, job.format),
        )
        for job in known_jobs(config).values()
    ]
    return all(report.clean for report in reports)


@pytest.mark.parametrize(
    "crash", [None, "taken-over@1:raise", "fenced@1:raise"], ids=["", "taken-over", "fenced"]
)
def test_new_columns_come_with_a_restart_and_nothing_of_them_is_lost(
    set_up: SetUp, monkeypatch: pytest.MonkeyPatch, crash: str | None
) -> None:
    stage = set_up({"name": "before"}, upstream_type=WaitingUpstream)
    upstream, first = stage.upstream, stage.upstream.table
    for number in range(60):
        upstream.put(row(number))
    with stage.running(until_complete=True) as run:
        stage.finish(run, "before")
    # 1. Partitions differ in when the fields come; nothing is sent of the interval that has them.
    upstream.put(row(60))
    upstream.table = wider(first)
    upstream.rows = {key: (*found, 7, None) for key, found in upstream.rows.items()}
    upstream.put(row(7, 1, None))
    upstream.put(row(61, None, "gold"))
    upstream.barrier()
    error = stage.fails(InputError, Code.SCHEMA_WAITS, table=first.to_dict())
    assert "--skip-record" not in str(error)
    # 2. Declared, the same batch goes on; a job of before keeps its columns, a new one has all.
    stage.add_job("after")
    if crash is not None:
        monkeypatch.setenv(failpoints.VARIABLE, crash)
        stage.fails(failpoints.Provoked)
        monkeypatch.delenv(failpoints.VARIABLE)
    with stage.running() as run:
        run.reach(upstream.barrier())
        upstream.put(row(8, 2, "silver"))
        upstream.delete(9)
        run.reach(upstream.barrier())
        stage.finish(run, "after")
    assert clean(stage)
    assert folded(stage, number=1) == upstream.rows
    assert upstream.rows[(1,)][4:] == (7, None)
    stored = [field.name for field in DeltaTable(f"{stage.folder}/state/{LOG_PATH}").schema().fields]
    assert stored[-2:] == ["size", "tier"]
    # 3. What the state has stays, with a file that is behind.
    with stage.running(table=first.to_dict()) as run:
        upstream.put(row(10, 3, "iron"))
        run.reach(upstream.barrier())
    assert clean(stage)
    assert folded(stage, number=1) == upstream.rows


class Outcome(NamedTuple):
    """The answer of a command."""

    status: int
    out: str
    err: str


def tell(stage: Stage, capsys: pytest.CaptureFixture[str], *words: str, **over: Any) -> Outcome:
    """A command about a service whose file has the first table."""
    file = stage.folder / "config.yaml"
    file.write_text(json.dumps(stage.declared(table=TABLE.to_dict(), **over)))
    capsys.readouterr()
    status = main([*words, "--config", str(file)])
    return Outcome(status, *capsys.readouterr())


def assert_job_has_all(stage: Stage, how: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A job from then on has all columns, one of before its own, with the file that the service has."""
    upstream = stage.upstream
    stage.add_job("after")
    with stage.running(**how) as run:
        upstream.put(row(4, 9, "iron"))
        run.reach(upstream.barrier())
        upstream.delete(5)
        stage.finish(run, "after")
    said = tell(stage, capsys, "verify", "--json")
    assert said.status == 0, said
    assert [json.loads(line)["findings"] for line in said.out.splitlines()] == [[], []]
    assert folded(stage, number=1) == upstream.rows
    assert upstream.rows[(1,)][4:] == (7, None)


def assert_refused(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """It says with which commands it goes on, and takes no others."""
    shown = tell(stage, capsys, "status").out
    for way in ("backfill alter --add 'size: TYPE'", "backfill alter --ignore size"):
        assert way in shown
    for words, found in (
        (("--add", "size: number"), "TABLE_INVALID"),
        (
            ("--add", "note: int"),
            "TABLE_INVALID at orders: found column note as int, which is there as string",
        ),
        (("--ignore", "note"), "TABLE_INVALID"),
        (("--rename", "size"), "USAGE"),
        ((), "USAGE"),
    ):
        assert tell(stage, capsys, "alter", *words).err.startswith(found)


@pytest.mark.parametrize(
    "crash", [None, "taken-over@2:raise", "fenced@2:raise"], ids=["", "taken-over", "fenced"]
)
def test_a_suspended_table_is_altered_by_the_command_while_its_file_stays_behind(
    set_up: SetUp,
    capsys: pytest.CaptureFixture[str],
    crash: str | None,
) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    stage = set_up({"name": "before"}, upstream_type=WaitingUpstream)
    upstream = stage.upstream
    how: dict[str, Any] = {"table": TABLE.to_dict(), "on_table_fault": "suspend"}
    assert upstream.table == TABLE
    for number in range(20):
        upstream.put(row(number))
    run = stage.begun(crash, **how)
    # 1. It waits.
    upstream.put(row(20))
    upstream.table = wider(TABLE)
    upstream.rows = {key: (*found, 7, None) for key, found in upstream.rows.items()}
    upstream.put(row(3, None, "gold"))
    upstream.put(row(21, 8, None))
    upstream.barrier()
    await_suspended(stage, run, Code.SCHEMA_WAITS)
    assert_refused(stage, capsys)
    # 2. A version with the one column waits for the other; nothing is sent meanwhile.
    said = tell(
        stage,
        capsys,
        "alter",
        "--add",
        "size: int",
        "--fill",
        "7",
        "--timeout",
        "60" if crash is None else "1",
    )
    if crash is None:
        assert said.err.startswith("SCHEMA_WAITS"), said
    else:
        assert isinstance(run.end(), failpoints.Provoked)
        run = Run(stage.service(**how))
    await_condition(lambda: "tier" in str(run.service.vitals.last_end), "the other field")
    assert "--add 'tier: TYPE'" in tell(stage, capsys, "status").out
    said = tell(stage, capsys, "alter", "--add", "tier: string", "--ignore", "noise", "--timeout", "60")
    assert said == (0, "orders: goes on\n", ""), said
    run.reach(upstream.barrier())
    run.stop()
    # 3. So it is with the old file, too.
    assert_job_has_all(stage, how, capsys)


def test_the_command_alters_a_table_that_is_served(set_up: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    stage = set_up({"name": "before"}, upstream_type=WaitingUpstream)
    upstream = stage.upstream
    how: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms"}
    for number in range(20):
        upstream.put(row(number))
    with stage.running(table=TABLE.to_dict(), **how) as run:
        run.until(lambda: run.is_complete("before"))
        assert tell(stage, capsys, "alter", "--ignore", "note", **how).err.startswith("TABLE_INVALID")
        said = tell(
            stage, capsys, "alter", "--add", "size: {type: int, fill: 7}", "--add", "tier: string", **how
        )
        assert said.out.startswith("alter: add 'size', add 'tier': since barrier "), said
        # Commands know it at once, the service from its next batch on.
        words = (
            "create",
            "--name",
            "after",
            "--output",
            f"{upstream.name}-after",
            "--columns",
            "id,size,tier",
        )
        assert tell(stage, capsys, *words, **how).status == 0
        upstream.table = wider(TABLE)
        upstream.rows = {key: (*found, 7, None) for key, found in upstream.rows.items()}
        upstream.put(row(5, 8, "gold"))
        upstream.flush()
        run.until(lambda: run.is_complete("after") and any(run.reports[-1].sent_live.values()))
        assert run.service.vitals.last_end is None
    said = tell(stage, capsys, "verify", "--json", **how)
    assert said.status == 0, said

"""A column that appears upstream: the table waits at its first record, and goes on with the column after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from deltalake import DeltaTable

from schemas.errors import Code, InputError
from schemas.table import TableSchema, declare
from state.replica import LOG_PATH
from streaming.cli.jobs.definitions import known_jobs
from streaming.runtime import failpoints
from streaming.verify.judge import verify_topics
from tests.kit.folded import folded
from tests.kit.real import Stage, UpsertUpstream

SetUp = Callable[..., Stage]


class WaitingUpstream(UpsertUpstream):
    """Rows by key whose new fields wait."""

    form: ClassVar[dict[str, str]] = {"format": "upsert", "on_new_column": "wait"}


def wider(table: TableSchema) -> TableSchema:
    declared = table.to_dict()
    declared["columns"] |= {"tier": {"type": "string", "fill": "basic"}, "size": "int"}
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
        while not run.is_complete("before"):
            run.reach(upstream.barrier())
    # 1. Partitions differ in when the fields come; nothing is sent of the interval that has them.
    upstream.put(row(60))
    upstream.table = wider(first)
    upstream.rows = {key: (*found, "basic", None) for key, found in upstream.rows.items()}
    upstream.put(row(7, None, 1))
    upstream.put(row(61, "gold", None))
    upstream.barrier()
    error = stage.fails(table=first.to_dict())
    assert isinstance(error, InputError)
    assert error.code is Code.SCHEMA_WAITS
    assert "--skip-record" not in str(error)
    # 2. Declared, the same batch goes on; a job of before keeps its columns, a new one has all.
    stage.jobs = [
        *stage.jobs,
        {**stage.jobs[0], "name": "after", "output": f"{stage.jobs[0]['output']}-after"},
    ]
    if crash is not None:
        monkeypatch.setenv(failpoints.VARIABLE, crash)
        assert isinstance(stage.fails(), failpoints.Provoked)
        monkeypatch.delenv(failpoints.VARIABLE)
    with stage.running() as run:
        run.reach(upstream.barrier())
        upstream.put(row(8, "silver", 2))
        upstream.delete(9)
        run.reach(upstream.barrier())
        while not run.is_complete("after"):
            run.reach(upstream.barrier())
    assert clean(stage)
    assert folded(stage, number=1) == upstream.rows
    assert upstream.rows[(1,)][4:] == ("basic", None)
    stored = [field.name for field in DeltaTable(f"{stage.folder}/state/{LOG_PATH}").schema().fields]
    assert stored[-2:] == ["tier", "size"]
    # 3. What the state has is not given up.
    assert getattr(stage.fails(table=first.to_dict()), "code", None) is Code.SCHEMA_CHANGED

"""Kills of the service between the effects of a batch, of the connector and of the database, while a table is read."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from typing import Any

import pytest

from streaming.runtime.failpoints import VARIABLE, Failpoint
from tests.connect.test_initial_postgres import ROWS, Table, await_running, barriers, table
from tests.kit.connect.large_table import LongTransactions
from tests.kit.connect.platform import Platform
from tests.kit.folded import epoch_of
from tests.kit.process import Process

__all__ = ["table"]
pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
SLOWLY = 2_000
"""Rows per second, so that all places are reached long before the table's end."""


def started(table: Table, failpoint: str | None = None, **start: Any) -> Process:
    path = table.stage.folder / "config.json"
    path.write_text(json.dumps(table.stage.declared(**table.with_start(**start))), encoding="utf-8")
    return Process.start(path, **({} if failpoint is None else {VARIABLE: failpoint}))


def is_read(table: Table) -> bool:
    """True by the state; the batch that ends the reading may have been done before a kill."""
    return table.upto() == math.inf


def judge(table: Table, process: Process) -> None:
    """The outputs add up to the table, once all is there."""
    last = table.barrier()
    config, kafka = table.stage.config(), table.upstream.kafka
    await_running(
        process, lambda: min(epoch_of(config, kafka, number) for number in (0, 1)) >= last.curr, "the end"
    )
    table.is_what_the_database_has()
    assert process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.JOURNALED}@1",
        f"{Failpoint.LANE_LOGGED}@4",
        f"{Failpoint.SENT}@6",
        f"{Failpoint.REPLICATED}@4",
        f"{Failpoint.WAITING_KEPT}@1",
        f"{Failpoint.WAITING_KEPT}@5",
        f"{Failpoint.PROGRESSED}@6",
    ],
)
def test_a_kill_in_a_batch(table: Table, failpoint: str) -> None:
    table.source.begin()
    with table.writers.writing(), barriers(table.upstream):
        process = started(table, f"{failpoint}:kill", rate_limit=SLOWLY)
        try:
            assert process.end() == -9
            assert not is_read(table)
            process = started(table)
            await_running(process, lambda: is_read(table), "the table's end")
        except BaseException:
            process.kill()
            raise
    try:
        judge(table, process)
    finally:
        process.kill()


def test_a_kill_right_behind_the_last_chunk(table: Table) -> None:
    table.source.begin()
    with table.writers.writing(), barriers(table.upstream):
        process = started(table)
        try:
            await_running(process, lambda: is_read(table), "the table's end")
        finally:
            process.kill()
    process = started(table)
    try:
        judge(table, process)
        assert not process.says("table_is_read")
    finally:
        process.kill()


def _connector_again(table: Table, platform: Platform) -> None:
    table.source.await_all()  # its offsets are kept; without any it would begin at the database's end
    platform.connect.kill()
    platform.connect.start()
    platform.connect.await_ready()


def _database_again(table: Table, platform: Platform) -> None:
    platform.postgres.crash()
    platform.postgres.start()
    platform.postgres.await_ready()
    table.writers.close()
    table.writers = LongTransactions(platform.postgres, table.name, ROWS, 8)


@pytest.mark.parametrize("again", [_connector_again, _database_again])
def test_what_it_reads_from_is_killed(
    table: Table, platform: Platform, again: Callable[[Table, Platform], None]
) -> None:
    """In the middle of the table; with changes before, and with others after it."""
    table.source.begin()
    process = started(table, rate_limit=SLOWLY)
    try:
        with barriers(table.upstream):
            with table.writers.writing():
                await_running(process, lambda: table.upto() > ROWS // 2, "a quarter")
            again(table, platform)
            table.source.await_streaming()
            with table.writers.writing():
                await_running(process, lambda: is_read(table), "the table's end")
        judge(table, process)
    finally:
        process.kill()

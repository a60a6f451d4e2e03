"""The clients in docs/clients.md and docs/tutorial-events.md, as they stand there, beside a real service."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.kit.real import Stage
from tests.kit.registry import FakeRegistry

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = (DOCS / "clients.md").read_text(encoding="utf-8")
DATABASE, EXACT, CONSUME, CONSUME_AVRO, SPARK = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
[PRODUCE] = re.findall(
    r"```python\n(.*?)```", (DOCS / "tutorial-events.md").read_text(encoding="utf-8"), re.DOTALL
)
JOB = {"name": "big-orders", "columns": ["id", "region", "amount"], "filter": "amount >= 100"}


def on_stage(code: str, stage: Stage, job: int = 0) -> str:
    """A client that is pointed to the stage's topics."""
    output = stage.config().jobs[job].output
    names = {
        '"127.0.0.1:9092"': repr(stage.upstream.kafka.bootstrap),
        '"orders"': repr(stage.upstream.name),
        '"big-orders"': repr(output),
        '"big-orders.barriers"': repr(f"{output}.barriers"),
    }
    for shown, real in names.items():
        assert shown in EXACT + PRODUCE
        code = code.replace(shown, real)
    return code


def first_line(code: str, end: str) -> str:
    """Of what a client prints, that ends so."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        seen = next(line for line in consumer.stdout if line.endswith(end))
        consumer.kill()
    return seen


def test_a_client_produces_and_others_keep_the_table(set_up: Callable[..., Stage], tmp_path: Path) -> None:
    rows = {**JOB, "format": "upsert"}
    stage = set_up(JOB, {**rows, "name": "rows"}, {**rows, "name": "moved", "key": ["region", "id"]})
    subprocess.run([sys.executable, "-c", on_stage(PRODUCE, stage)], check=True, timeout=60)
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: all(map(run.is_complete, ("big-orders", "rows", "moved"))))
        changes = first_line(on_stage(CONSUME, stage), ": 2 rows\n")
        exact = first_line(on_stage(EXACT, stage, 1), ": 2 rows\n")
        file = tmp_path / "orders.db"
        for _ in range(2):  # killed and started again
            first_line(on_stage(DATABASE, stage, 1).replace("orders.db", str(file)), "2 rows\n")
    assert re.fullmatch(r"partition \d at barrier \d+: 2 rows\n", changes)
    assert re.fullmatch(r"barrier \d+: 2 rows\n", exact)
    assert sqlite3.connect(file).execute("SELECT * FROM orders ORDER BY id").fetchall() == [
        (1, "US", "250.00"),
        (2, "US", "120.00"),
    ]
    assert stage.verify(0).clean
    for job in (1, 2):  # by the table's key, and by another one
        found: dict[str, Any] = {"spark": stage.spark}
        exec(on_stage(SPARK, stage, job), found)  # noqa: S102 (the page's own)
        read = sorted(map(tuple, found["orders"].collect()))
        assert read == [(1, "US", Decimal("250.00")), (2, "US", Decimal("120.00"))]


def test_a_client_reads_rows_by_the_schemas_of_a_registry(set_up: Callable[..., Stage]) -> None:
    stage = set_up({**JOB, "filter": None, "format": "upsert", "encoding": "avro-registry"})
    with FakeRegistry().serving() as registry:
        stage.upstream.sections = {"registry": {"url": registry.url}}
        for number in range(3):
            stage.upstream.put((number, "EU", Decimal("1.50"), "note"))
        with stage.running(barriers="inject", barrier_interval="100ms") as run:
            run.until(lambda: run.is_complete("big-orders"))
        code = on_stage(CONSUME_AVRO, stage).replace("http://127.0.0.1:8081", registry.url)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as consumer:
            assert consumer.stdout is not None
            lines = sorted(next(consumer.stdout) for _ in range(3))
            consumer.kill()
    row = "{'id': %d, 'region': 'EU', 'amount': Decimal('1.50')}"
    assert lines == [f"{{'id': {number}}} {row % number}\n" for number in range(3)]


def test_the_bytes_that_kcat_sends_are_that_row(set_up: Callable[..., Stage]) -> None:
    shown = re.search(r"printf '([^']*)' > insert.avro\n.*printf '([^']*)'", DOCUMENT)
    assert shown is not None
    value, key = (text.encode().decode("unicode_escape").encode("latin-1") for text in shown.groups())
    stage = set_up(JOB)
    codec = stage.upstream.changes
    change = codec.decode(value)
    assert change.before is None
    assert [str(part) for part in change.row] == ["7", "EU", "250.00", "None"]
    assert stage.upstream.keys.encode(stage.upstream.table.key_of(change.row)) == key

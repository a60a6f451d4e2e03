"""The clients in docs/clients.md, as they stand there, beside a real service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from tests.kit.real import Stage
from tests.kit.registry import FakeRegistry

DOCUMENT = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
PRODUCE, CONSUME, CONSUME_AVRO = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
JOB = {"name": "big-orders", "columns": ["id", "region", "amount"], "filter": "amount >= 100"}


def python(code: str, stage: Stage) -> list[str]:
    """The command that runs a client on the stage's topics."""
    names = {
        '"127.0.0.1:9092"': repr(stage.upstream.kafka.bootstrap),
        '"orders"': repr(stage.upstream.name),
        '"big-orders"': repr(stage.config().jobs[0].output),
    }
    for shown, real in names.items():
        assert shown in PRODUCE + CONSUME
        code = code.replace(shown, real)
    return [sys.executable, "-c", code]


def test_a_client_produces_and_another_keeps_the_table(set_up: Callable[..., Stage]) -> None:
    stage = set_up(JOB)
    subprocess.run(python(PRODUCE, stage), check=True, timeout=60)
    with stage.running(barriers="inject", barrier_interval="100ms") as run:
        run.until(lambda: run.is_complete("big-orders"))
        with subprocess.Popen(python(CONSUME, stage), stdout=subprocess.PIPE, text=True) as consumer:
            assert consumer.stdout is not None
            seen = next(line for line in consumer.stdout if line.endswith(": 2 rows\n"))
            consumer.kill()
    assert re.fullmatch(r"partition \d at barrier \d+: 2 rows\n", seen)
    assert stage.verify(0).clean


def test_a_client_reads_rows_by_the_schemas_of_a_registry(set_up: Callable[..., Stage]) -> None:
    stage = set_up({**JOB, "filter": None, "format": "upsert", "encoding": "avro-registry"})
    with FakeRegistry().serving() as registry:
        stage.upstream.sections = {"registry": {"url": registry.url}}
        for number in range(3):
            stage.upstream.put((number, "EU", Decimal("1.50"), "note"))
        with stage.running(barriers="inject", barrier_interval="100ms") as run:
            run.until(lambda: run.is_complete("big-orders"))
        code = CONSUME_AVRO.replace("http://127.0.0.1:8081", registry.url)
        with subprocess.Popen(python(code, stage), stdout=subprocess.PIPE, text=True) as consumer:
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

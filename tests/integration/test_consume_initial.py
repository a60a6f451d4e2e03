"""`consume --fold` of an upstream that begins from a table: the fold begins from it, too, or says why it can't."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.table import declare
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import watermarks
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real_upstream import RealUpstream
from tests.kit.secure import private

TABLE = {"name": "orders", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]}


@pytest.fixture
def upstream(bootstrap: str) -> Iterator[RealUpstream]:
    made = RealUpstream(declare(TABLE), KafkaSettings(bootstrap), f"up-{uuid.uuid4().hex[:8]}", 2)
    yield made
    made.close()


def config(folder: Path, made: RealUpstream, **more: Any) -> Path:
    path = folder / "config.yaml"
    declared = {
        "kafka": {"bootstrap": made.kafka.bootstrap},
        "upstream": made.name,
        "state": str(folder / "state"),
        "table": TABLE,
        **more,
    }
    path.write_text(json.dumps(declared))
    return path


def test_the_fold_begins_with_the_table_and_leaves_out_what_came_before_its_offsets(
    upstream: RealUpstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        upstream.put((number, "old"))
    upstream.barrier()
    uri = str(tmp_path / "source")
    columns = zip(*upstream.rows.values(), strict=True)
    write_deltalake(uri, pa.table(dict(zip(("id", "note"), columns, strict=True))))
    offsets = [marks.high for marks in watermarks(upstream.kafka, upstream.name)]
    remove_beginning(upstream.kafka.bootstrap, upstream.name, offsets[0])
    upstream.put((3, "new"))
    upstream.put((99, "new"))
    upstream.delete(5)
    upstream.barrier()
    file = config(tmp_path, upstream, initial={"delta": {"uri": uri, "version": 0, "offsets": offsets}})
    assert main(["consume", str(file), "--fold", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {(each["id"], each["note"]) for each in found} == set(upstream.rows.values())
    assert main(["consume", str(file), "--count", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inserts"] > 1  # the topic's own records, all of them


def test_a_table_that_was_read_once_is_named(
    upstream: RealUpstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = private(tmp_path / "dsn", "host=127.0.0.1 dbname=shop")
    start = {"postgres": {"dsn_file": str(dsn), "table": "public.orders", "slot": "s"}}
    topic = {"topic": upstream.name, "format": "debezium", "time": "microseconds", "decimal": "precise"}
    file = config(tmp_path, upstream, upstream=topic, initial=start)
    assert main(["consume", str(file), "--fold"]) == 2
    assert "INITIAL_READ_ONCE" in capsys.readouterr().err

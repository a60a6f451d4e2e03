"""Outputs by another key, with columns under other names and masked, on a real broker, through a restart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.kinds.projection import OutputColumn
from schemas.position import Key
from schemas.records import Row
from tests.kit import masks
from tests.kit.folded import folded
from tests.kit.real import SetUp, records
from tests.kit.real_upstream import RealUpstream, UpsertUpstream
from tests.kit.thorough import pairs

COLUMNS: list[Any] = [{"number": "id"}, {"note": "hash(note)"}, {"amount": None}]
FORMS: dict[str, dict[str, Any]] = {
    "debezium": {"format": "debezium"},
    "upsert": {"format": "upsert", "encoding": "json-schema"},
    "change": {},
}
UPSTREAMS = {"no rows before": UpsertUpstream, "full images": RealUpstream}


def row(number: int, region: str, note: str | None = "secret") -> tuple[Any, ...]:
    return (number, region, None, note)


def shown(rows: dict[Key, Row]) -> dict[Key, Row]:
    """Rows as the job shows them, by its key."""
    found = {}
    for number, region, _, note in rows.values():
        hashed = masks.shown(OutputColumn("note", "note", "hash"), note)
        found[region, number, hashed] = (number, hashed, None)
    return found


@pytest.mark.parametrize(("upstream_type", "form"), pairs(UPSTREAMS, FORMS))
def test_rows_that_move_are_deleted_and_inserted_and_nothing_that_is_masked_is_there(
    set_up: SetUp, upstream_type: type[RealUpstream], form: dict[str, Any]
) -> None:
    keys = {"columns": COLUMNS, "key": ["region", "id", "note"], "hash_key_file": masks.hash_key_file()}
    stage = set_up({"name": "copy", "rate_limit": 300, **keys, **form}, upstream_type=upstream_type)
    upstream = stage.upstream
    for number in range(400):
        upstream.put(row(number, "EU"))
    with stage.running() as run:
        run.reach(upstream.barrier())
        for number in range(0, 400, 3):
            upstream.put(row(number, "US"))
        run.reach(upstream.barrier())
    upstream.put(row(1, "US", None))
    upstream.put(row(1, "EU", None))
    upstream.put(row(2, "EU", "another"))
    upstream.delete(5)
    upstream.barrier()
    with stage.running() as run:
        stage.finish(run, "copy")
        upstream.put(row(7, "US"))
        run.reach(upstream.barrier())
    assert stage.verify().clean
    assert folded(stage) == shown(upstream.rows)
    sent = [message for part in records(upstream.kafka, stage.config().jobs[0].output) for message in part]
    assert not any(b"secret" in part for message in sent for part in (message.key(), message.value()) if part)
    definition = json.loads(stage.config().jobs[0].to_json())
    assert (definition["key"], definition["columns"]) == (["region", "id", "note"], COLUMNS)

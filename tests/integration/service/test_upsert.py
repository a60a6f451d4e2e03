"""An upstream of rows by key goes out as the changelog that it amounts to, through restarts, rescales and lost rows."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, InputError, TopicError
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.position import Key
from schemas.records import Add, Change, Drop, Op
from state.maintenance.merge import LEAST_FILES
from state.replica import Replica
from state.storage import Storage
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.lanes.attempts import transactional_id
from streaming.source.upstream_checks import refuse_compacted
from tests.kit.folded import folded
from tests.kit.kafka_topics import set_topic
from tests.kit.real import SetUp, Stage, records
from tests.kit.real_upstream import UpsertUpstream, json_of, order

COPY = {"name": "copy"}
FILTERED = {"name": "some", "columns": ["note"], "filter": "amount >= 100", "rate_limit": 300}


def stir(upstream: UpsertUpstream, version: int) -> None:
    for number in range(0, 400, 7):
        upstream.put(order(number, version))
    for number in range(version, 400, 31):
        if (number,) in upstream.rows:
            upstream.delete(number)
    upstream.delete_absent(5_000 + version)


def rows_folder(stage: Stage) -> Path:
    replica = Replica(Storage(str(stage.folder / "state")), stage.upstream.table)
    return Path(tempfile.gettempdir()) / f"{transactional_id(replica)}-rows"


def ops(stage: Stage, number: int) -> set[Op]:
    codec = stage.upstream.changes
    output = stage.config().jobs[number].output
    found = (message for part in records(stage.upstream.kafka, output) for message in part)
    return {codec.decode(message.value() or b"").op for message in found if message.key() is not None}


NAMED = {
    "name": "t",
    "columns": {
        "id": {"type": "bigint", "field": "order-id"},
        "size": {"type": "string", "field": "größe"},
        "count": {"type": "decimal(20,0)", "unsigned": "wrapped"},
    },
    "primary_key": ["id"],
    "vnode_count": 8,
}


class NamedUpstream(UpsertUpstream):
    """Its records have other names than the table, and numbers that are negative from 2^63 on."""

    def _append(self, key: Key, change: Change) -> None:
        data, value = json_of({"order-id": key[0]}), None
        if change.after is not None:
            _, size, count = change.after
            wrapped = int(count) - ((count >= 1 << 63) << 64)
            value = json_of({"order-id": key[0], "größe": size, "count": wrapped})
        self._produce(value, data, zlib.crc32(data) % self.partitions)


@pytest.mark.parametrize("form", ["upsert", "debezium", "change"])
def test_outputs_have_the_columns_names_and_values_whatever_records_have(set_up: SetUp, form: str) -> None:
    stage = set_up({"name": "copy", "format": form}, table=NAMED, upstream_type=NamedUpstream)
    upstream = stage.upstream
    for number in range(20):
        upstream.put((number, "größe", Decimal((1 << 63) + number * 7 - 50)))
    upstream.delete(3)
    with stage.running() as run:
        run.reach(upstream.barrier())
        upstream.put((4, None, Decimal((1 << 64) - 1)))
        run.reach(upstream.barrier())
        stage.finish(run, "copy")
    assert stage.verify().clean
    assert folded(stage) == upstream.rows


def test_rows_by_key_go_out_as_the_changelog_that_they_amount_to(set_up: SetUp) -> None:
    stage = set_up(COPY, FILTERED, upstream_type=UpsertUpstream)
    upstream = stage.upstream
    assert isinstance(upstream, UpsertUpstream)
    for number in range(400):
        upstream.put(order(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
        stir(upstream, 1)
        run.reach(upstream.barrier())
    stir(upstream, 2)
    upstream.barrier()
    stage.lanes = 4
    with stage.running() as run:
        run.reach(upstream.barrier())
        stir(upstream, 3)
        run.reach(upstream.barrier())
    folder = rows_folder(stage)
    assert len(list(folder.iterdir())) == 4  # those of two lanes are gone
    shutil.rmtree(folder)
    with stage.running() as run:
        for version in range(4, 7):
            stir(upstream, version)
            run.reach(upstream.barrier())
        stage.finish(run, "some")
    stage.assert_lawful()
    assert ops(stage, 0) == set(Op)
    shutil.rmtree(folder)


def test_rows_before_are_the_newest_where_no_job_asked_for_them_while_the_log_was_merged(
    set_up: SetUp,
) -> None:
    """A merge of small files leaves a larger one out, which has the newest row of a key that is in a small one too."""
    keeper = {"name": "keeper", "format": "upsert", "encoding": "json", "output_partitions": 1}
    stage = set_up({"name": "first"}, keeper, upstream_type=UpsertUpstream, partitions=1, lanes=1)
    upstream = stage.upstream

    def step(*rows: tuple[Any, ...]) -> None:
        for row in rows:
            upstream.put(row)
        run.reach(upstream.barrier())

    with stage.running() as run:
        step(noted(1_000, "x"))
        stage.finish(run, "first", "keeper")
        step(noted(7, "ONE"))
        step(*(noted(number, "y") for number in range(100, 160)), noted(7, "TWO"))
        step(noted(1_001, "x"))  # the lane's rows are at this barrier
        run.reach(upstream.barrier(Drop("first")))
        for number in range(2_000, 2_000 + LEAST_FILES):
            step(noted(number, "z"))
        while not is_merged(stage):
            run.reach(upstream.barrier())
        second = {"name": "second", "output": f"second-{upstream.name}", "output_partitions": 1}
        run.reach(upstream.barrier(Add(json.dumps(second))))
        stage.finish(run, "second")
        step(noted(7, "THREE"))
    stage.jobs = [keeper | {"output": stage.jobs[1]["output"]}, second]
    found = [message for part in records(upstream.kafka, str(second["output"])) for message in part]
    changes = [upstream.changes.decode(each.value() or b"") for each in found if each.key() is not None]
    two, three = noted(7, "TWO"), noted(7, "THREE")
    assert [each for each in changes if each.row[0] == 7] == [
        Change(Op.INSERT, None, two),
        Change(Op.UPDATE, two, three),
    ]
    assert stage.verify(1).clean
    shutil.rmtree(rows_folder(stage))


def noted(number: int, note: str) -> tuple[Any, ...]:
    return (number, "EU", Decimal("1.00"), note)


def is_merged(stage: Stage) -> bool:
    replica = Replica(Storage(str(stage.folder / "state")), stage.upstream.table)
    return any("merged" in file.path for file in replica.files(replica.pin()).log)


def test_a_record_at_fault_stops_it_with_its_place_and_without_its_value(set_up: SetUp) -> None:
    stage = set_up(COPY, upstream_type=UpsertUpstream)
    upstream = stage.upstream
    upstream.put(order(1))
    upstream.flush()
    place = upstream.send(1, b'{"id":2}', b'{"id":2,"amount":"much"}')
    upstream.barrier()
    error = stage.fails(InputError, Code.JSON_MALFORMED, f"{upstream.name}-1@{place}")
    assert "much" not in str(error)
    with stage.running(skip=frozenset({(1, place)})) as run:
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())
    assert stage.verify(left_out=frozenset({(1, place)})).clean
    shutil.rmtree(rows_folder(stage))


def test_a_compacted_topic_is_taken_if_it_is_compacted_late_enough(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic()
    upsert, change = UpsertFormat(), DEFAULT

    def compact(lag_ms: int) -> None:
        set_topic(kafka, name, {"cleanup.policy": "compact", "min.compaction.lag.ms": str(lag_ms)})

    refuse_compacted(kafka, name, upsert)
    compact(3_599_999)
    for format_, code in ((upsert, Code.COMPACTION_LAG_TOO_SHORT), (change, Code.COMPACTED_INPUT)):
        with pytest.raises(TopicError) as caught:
            refuse_compacted(kafka, name, format_)
        assert caught.value.code is code
    compact(3_600_000)
    refuse_compacted(kafka, name, upsert)

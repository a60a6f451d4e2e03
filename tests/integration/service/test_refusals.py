"""A state, a topic or an interval that is not what it must be ends the service with its code, before harm is done.

Starts are dear, so each test is one story: every refusal leaves all as it was, and the next one goes on from there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from schemas.errors import BackfillError, Code, ConfigError
from schemas.records import Change, Op
from streaming.kafka.topics import create_topic
from tests.kit.kafka_topics import remove_beginning, set_topic
from tests.kit.real import Run, SetUp, Stage, expected
from tests.kit.real_upstream import row


def refused(stage: Stage, code: Code, status: int, where: str | None = None, **how: Any) -> None:
    """A start ends with this code, and says where."""
    try:
        error = stage.fails(BackfillError, code, where, **how)
    except ConfigError as at_once:
        error = expected(at_once, BackfillError, code, where)
    assert error.exit_status == status, error


def started(stage: Stage, **how: Any) -> None:
    """A start goes on with the batches that are due, and ends when asked to, with its job open."""
    with stage.running(**how) as run:
        run.reach(stage.upstream.barrier())
        run.reach(stage.upstream.barrier())


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_a_state_that_is_not_this_services_newest_is_refused(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    upstream, state, old = stage.upstream, stage.folder / "state", stage.folder / "old"
    for number in range(20):
        upstream.put(row(number))
    started(stage)
    shutil.copytree(state, old)

    # what it is of
    table = upstream.table.to_dict()
    other = f"{upstream.name}-other"
    create_topic(upstream.kafka, other, 2)
    refused(stage, Code.STATE_FOREIGN, 6, str(state), upstream=other)
    refused(stage, Code.VNODE_LAYOUT_CHANGED, 6, str(state), table={**table, "vnode_count": 32})
    both = {"primary_key": ["id", "region"], "distribution_key": ["id"]}
    refused(stage, Code.PK_CHANGED, 6, str(state), table={**table, **both})
    wider, other_type = ({**table["columns"], name: "binary"} for name in ("more", "note"))
    refused(stage, Code.COLUMN_WAS_IGNORED, 6, str(state), table={**table, "columns": wider})
    refused(stage, Code.SCHEMA_CHANGED, 6, str(state), table={**table, "columns": other_type})
    refused(stage, Code.NO_JOB, 2, jobs=[], state="none", until_complete=True)
    changed = [{**stage.jobs[0], "filter": "id > 5"}]
    refused(stage, Code.JOB_CHANGED, 2, "job copy", jobs=changed)
    refused(stage, Code.CONFIG_INVALID, 2, jobs=stage.jobs, lanes=3)

    # where it lies
    (stage.folder / "file").write_text("mine")
    refused(stage, Code.STATE_PATH_INVALID, 6, str(stage.folder / "file"), state="file")
    (stage.folder / "full" / "journal").mkdir(parents=True)
    (stage.folder / "full" / "journal" / "letter.txt").write_text("mine")
    refused(stage, Code.STATE_PATH_INVALID, 6, str(stage.folder / "full" / "journal"), state="full")
    (stage.folder / "linked").mkdir()
    (stage.folder / "linked" / "replica").symlink_to(state / "replica")
    refused(stage, Code.STATE_PATH_INVALID, 6, str(stage.folder / "linked" / "replica"), state="linked")

    # a table that is gone
    for name in ("journal", "progress", "replica/base"):
        (state / name).rename(stage.folder / "gone")
        refused(stage, Code.STATE_TABLE_CORRUPT, 6, str(state / name))
        shutil.rmtree(state / name, ignore_errors=True)
        (stage.folder / "gone").rename(state / name)

    # an older one is brought forward
    for number in range(10, 30):
        upstream.put(row(number, "later"))
    started(stage)
    swap(state, old)
    upstream.barrier()
    started(stage)
    stage.assert_lawful()


def test_topics_and_intervals_that_are_not_as_they_must_be_end_it(set_up: SetUp, bootstrap: str) -> None:
    stage = set_up({"name": "copy"})
    upstream, output = stage.upstream, str(stage.jobs[0]["output"])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for number in range(20):
        upstream.put(row(number))
    started(stage)

    large = upstream.send(0, *_insert(stage, 200, "x" * 1_020_000))
    for number in range(201, 204):
        upstream.put(row(number, "x" * 900_000))
    end = upstream.barrier()
    refused(stage, Code.RECORD_TOO_LARGE, 4, f"{upstream.name}-0@{large}", on_bad_record="park")
    set_topic(upstream.kafka, output, {"max.message.bytes": "900000"})
    refused(stage, Code.OUTPUT_TOPIC_MISMATCH, 5, output)
    set_topic(upstream.kafka, output, {"max.message.bytes": "3000000"})
    skip = frozenset({(0, large)})
    service = stage.service(skip=skip)
    run = Run(service)
    run.reach(end)
    run.stop()
    stage.assert_lawful(left_out=skip)

    # the output: deleted, and made again by another hand
    admin.delete_topics([output])[output].result(30)
    upstream.barrier()
    refused(stage, Code.OUTPUT_TOPIC_MISSING, 5, output)
    create_topic(upstream.kafka, output, 4)
    refused(stage, Code.OUTPUT_TOPIC_MISSING, 5, output)
    set_topic(upstream.kafka, output, {"cleanup.policy": "compact"})
    refused(stage, Code.OUTPUT_TOPIC_MISMATCH, 5, output)

    # the upstream: compacted, without what was not read yet, with more partitions, gone, and made again
    set_topic(upstream.kafka, upstream.name, {"cleanup.policy": "compact"})
    refused(stage, Code.COMPACTED_INPUT, 5, upstream.name)
    set_topic(upstream.kafka, upstream.name, {"cleanup.policy": "delete"})
    set_topic(upstream.kafka, output, {"cleanup.policy": "delete"})
    # on the way: where the limit says so, the large record is one like others
    large_jobs = [{**stage.jobs[0], "output": f"{output}-large"}]
    lost = str(stage.folder / "lost")
    run = Run(stage.service(state=lost, jobs=large_jobs, limits={"record_bytes": "2m"}))
    run.reach(upstream.barrier())
    run.reach(upstream.barrier())
    assert run.is_complete("copy")
    report = stage.verify(output=f"{output}-large")
    assert report.clean, report.findings[:3]
    assert report.live_keys == len(upstream.rows)
    position = run.reports[-1].plan.end_offsets[0]
    remove_beginning(bootstrap, upstream.name, upstream.send(0, *_insert(stage, 300)) + 1)
    error = expected(run.end(), BackfillError)
    assert (error.code, error.exit_status) == (Code.DATA_LOST, 4)
    assert error.where == f"{upstream.name}-0@{position}"
    admin.delete_topics([upstream.name])[upstream.name].result(30)
    refused(stage, Code.TOPIC_MISSING, 5, upstream.name)
    create_topic(upstream.kafka, upstream.name, 2)
    refused(stage, Code.TOPIC_REPLACED, 5, upstream.name)


def _insert(stage: Stage, number: int, note: str | None = None) -> tuple[bytes, bytes]:
    upstream = stage.upstream
    upstream.rows[(number,)] = row(number, note)
    change = Change(Op.INSERT, None, row(number, note))
    return upstream.keys.encode((number,)), upstream.changes.encode(change)

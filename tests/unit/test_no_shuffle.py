"""Tables whose vnodes are the partitions of the upstream: what is declared, counted, tied and refused."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from schemas.errors import Code, ConfigError, StateError
from schemas.job import JobDefinition
from schemas.records import Add, Change, Op
from schemas.settings.config import ServiceConfig, check
from schemas.table import declare
from state.values.bound_table import BoundTable
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress, is_complete
from streaming.core.jobs import apply_mutation
from streaming.kafka.clients import KafkaSettings
from streaming.service.checks.state import refuse_rescale
from streaming.service.checks.surroundings import counted
from streaming.verify.findings import Findings, Side
from streaming.verify.fold import UpstreamFold
from streaming.verify.history import PartitionHistory, TopicEntry
from streaming.verify.positions import Positions, Standing
from streaming.verify.records.keys import KeySpace
from tests.bench.compared.kinds import BASE, KINDS, side_by_side
from tests.bench.report.line import Line, summarised
from tests.bench.rig import Rig
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.encoded_histories import ListSource, of_changes

DECLARED: dict[str, Any] = {
    "name": "t",
    "columns": {"id": "bigint", "n": "int"},
    "primary_key": ["id"],
    "distribution": "upstream",
}
HASHED = {key: value for key, value in DECLARED.items() if key != "distribution"}
TABLE = declare(DECLARED)
COPY = {"name": "copy", "output": "copy"}


def config(**over: Any) -> ServiceConfig:
    declared = {"upstream": "up", "state": "state", "table": DECLARED, "jobs": [COPY], **over}
    return check(declared, path=Path("/config.yaml"))


def test_vnodes_are_counted_with_the_partitions() -> None:
    assert (TABLE.by_partition, TABLE.vnode_count, TABLE.distribution_key) == (True, 0, ())
    assert TABLE.with_partitions(3).vnode_count == 3
    assert declare(TABLE.with_partitions(3).to_dict()) == TABLE, (
        "the number is the topic's, and not the table's"
    )
    hashed = declare({**DECLARED, "distribution": "hash"})
    assert hashed.with_partitions(3) == hashed == declare(HASHED)


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ({"vnode_count": 4}, "'vnode_count' is given"),
        ({"distribution_key": ["id"]}, "'distribution_key' is given"),
        ({"distribution": "lanes"}, "distribution 'lanes' is not one of: hash, upstream"),
    ],
)
def test_what_does_not_go_with_it_is_refused(over: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found) as refused:
        declare({**DECLARED, **over})
    assert refused.value.code is Code.TABLE_INVALID


def test_rows_without_identity_have_no_distribution() -> None:
    with pytest.raises(ConfigError, match="'distribution' is given"):
        declare({"name": "t", "columns": {"n": "int"}, "distribution": "upstream"}, has_key=False)


def test_a_start_from_a_delta_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="do not say which upstream partition"):
        config(initial={"delta": {"uri": "t", "version": 1, "offsets": [0]}})


def test_another_distribution_is_another_state() -> None:
    hashed = declare(HASHED)
    for one, other in ((TABLE, hashed), (hashed, TABLE)):
        with pytest.raises(StateError) as refused:
            BoundTable.first(one, None).declared(other, None, state="state")
        assert refused.value.code is Code.VNODE_LAYOUT_CHANGED
    BoundTable.first(TABLE.with_partitions(4), None).declared(TABLE, None, state="state")


def test_a_job_has_the_upstreams_partitions_for_parts_and_output() -> None:
    job = JobDefinition.declare(COPY, TABLE)
    assert (job.output_partitions, job.is_coupled, job.part_name) == (0, True, "partition")
    known = job.with_partitions(3)
    assert [known.partition_of(part) for part in range(known.part_count)] == [0, 1, 2]
    assert JobDefinition.from_json(known.to_json(), TABLE) == known
    assert JobDefinition.from_json(known.to_json(), TABLE.with_partitions(3)) == known
    log = JobDefinition.declare({**COPY, "read": "topic"}, TABLE)
    assert (log.is_coupled, log.parts_are_partitions) == (False, True)
    hashed = JobDefinition.declare(COPY, declare(HASHED))
    assert (hashed.is_coupled, hashed.parts_are_partitions, hashed.part_name) == (False, False, "vnode")


def test_lanes_are_the_partitions_unless_they_are_given_and_divide_them() -> None:
    found = counted(config(), 6)
    assert (found.lanes, found.table.vnode_count, found.jobs[0].output_partitions) == (6, 6, 6)
    assert counted(config(lanes=3), 6).lanes == 3
    with pytest.raises(ConfigError, match="4 lanes, 6 partitions"):
        counted(config(lanes=4), 6)
    hashed = config(table=HASHED, lanes=2)
    assert counted(hashed, 6) is hashed


progresses = st.lists(
    st.sampled_from([None, InProgress((1,), 1), Completed(None, 0)]), min_size=4, max_size=4
)


@given(
    st.lists(st.tuples(st.sampled_from(["replica", "topic"]), progresses), max_size=3),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_lanes_are_refused_exactly_while_a_job_that_is_tied_is_not_complete(
    drawn: list[tuple[str, list[Progress | None]]], lanes: int, is_new: bool
) -> None:
    known = []
    for number, (read, states) in enumerate(drawn):
        declared = {"name": f"j{number}", "output": f"o{number}", "read": read}
        job = JobDefinition.declare(declared, TABLE).with_partitions(4)
        progress = {part: state for part, state in enumerate(states) if state is not None}
        known.append((job, is_complete(progress, 4)))
    new = [JobDefinition.declare(COPY, TABLE).with_partitions(4)] if is_new else []
    waits = is_new or any(job.scan.kind == "replica" and not is_read for job, is_read in known)
    if lanes != 4 and waits:
        with pytest.raises(ConfigError) as refused:
            refuse_rescale(known, new, lanes, TABLE.with_partitions(4), 4)
        assert refused.value.code is Code.RESCALE_REFUSED
        assert refused.value.found.startswith(f"{lanes} lanes for 4 partitions, and job ")
    else:
        refuse_rescale(known, new, lanes, TABLE.with_partitions(4), 4)


@pytest.mark.parametrize(
    ("read", "lanes", "code"),
    [
        ("replica", 4, None),
        ("replica", 2, Code.RESCALE_REFUSED),
        ("topic", 2, None),
    ],
)
def test_a_job_is_added_where_there_is_a_lane_for_each_partition(
    read: str, lanes: int, code: Code | None
) -> None:
    job = JobDefinition.declare({**COPY, "read": read}, TABLE)
    outcome = apply_mutation(Add(job.to_json()), 1, (), lanes=lanes, start=1, table=TABLE, partitions=4)
    assert [report.refused for report in outcome.reports] == [code]
    assert outcome.jobs == (() if code else (JobState(job.with_partitions(4), 1),))


def test_an_output_with_other_partitions_is_refused() -> None:
    job = JobDefinition.declare({**COPY, "output_partitions": 2}, TABLE)
    outcome = apply_mutation(Add(job.to_json()), 1, (), lanes=4, start=1, table=TABLE, partitions=4)
    assert [report.refused for report in outcome.reports] == [Code.JOB_INVALID]


# verify ----------------------------------------------------------------------------------------------------

PARTITIONS = 3
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
puts = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, 4), st.none() | st.integers(0, 2)))


@given(puts)
def test_each_partition_is_folded_by_itself_and_a_key_that_another_has_is_named(
    drawn: list[tuple[int, int, int | None]],
) -> None:
    findings = Findings(1_000)
    keys = KeySpace(TABLE, PARTITIONS)
    fold = UpstreamFold(TABLE, keys, Positions(keys, findings), findings)
    partitions = [PartitionHistory("up", number, ListSource([])) for number in range(PARTITIONS)]
    model: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    twice = 0
    for number, key, value in drawn:
        there = model[number]
        before = (key, there[key]) if key in there else None
        after = None if value is None else (key, value)
        if before is after is None:
            continue
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        entry = TopicEntry(0, KEYS.encode((key,)), CHANGES.encode(Change(op, before, after)))
        [source] = of_changes(TABLE, ListSource([entry]))
        [read] = source.entries()
        fold.apply(partitions[number], read)
        twice += before is None and any(key in other for other in model)
        if value is None:
            del there[key]
        else:
            there[key] = value
    assert len(fold) == sum(map(len, model))
    named = {(Side.UPSTREAM, Code.KEY_IN_TWO_PARTITIONS): twice} if twice else {}
    assert findings.counts == named
    for number, there in enumerate(model):
        rows = fold.read(number, Standing(finished=True))
        assert set(rows) == {KEYS.encode((key,)) for key in there}


# bench -----------------------------------------------------------------------------------------------------


def test_the_kinds_fit_side_by_side_into_80_characters() -> None:
    lines = [
        Line(f"{what}, {kind.name}", 123_456.0, "rows/s", BASE, 1.0)
        for kind in KINDS
        for what in (
            "batch at 500 changes/s",
            "first part of a 20 s backfill",
            "rescale under way, first batch",
        )
    ]
    text = StringIO()
    Console(file=text, width=80).print(side_by_side(summarised(lines)))
    rows = text.getvalue().splitlines()
    assert max(map(len, rows)) <= 80
    assert len(rows) == 1 + 3, "no line is broken"
    bench = Rig(KafkaSettings("none"), Path())
    assert [kind.part_count(replace(bench, table=kind.table)) for kind in KINDS] == [64, 4, 4]

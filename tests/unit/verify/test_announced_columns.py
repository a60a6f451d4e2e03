"""Outputs that get a column: what the checker takes, and mutants of it that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from schemas.avro.codec import barrier_header
from schemas.avro.registered import SchemaIds
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind, Change, Op, Row, VnodeProgress
from schemas.table import declare
from streaming.reading.records.forms import CHANGE_FORM, RecordForm
from streaming.verify.announced import AnnouncedColumns
from streaming.verify.checker import Checker
from streaming.verify.findings import Findings, Report, Rule
from streaming.verify.history import Closed, Interval, PartitionHistory, TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.encoded_histories import ListSource, numbered
from tests.kit.sent_records import sent_change, sent_key

COLUMNS = {"id": "bigint", "n": "int", "c": {"type": "int", "fill": 7}}
TABLE = declare({"name": "t", "columns": COLUMNS, "primary_key": ["id"], "vnode_count": 2})
C = ("c", '{"type":"int","fill":7}')
KEYS, CHANGES = KeyCodec(TABLE.key_columns), ChangeCodec(TABLE.columns)
IDS = {1: 11, 2: 21, 3: 31}
"""The ids of the schemas of values, by the number of their columns."""
Item = TopicEntry | Row
NOTHING = Barrier(1, 0, BarrierKind.BARRIER, 1, 0)


def barrier(number: int, *columns: tuple[str, str], full: bool = False) -> TopicEntry:
    """Of an output, whose job begins now: the first one lists all vnodes as finished."""
    done = tuple(VnodeProgress(vnode, None, finished=True, row_count=0) for vnode in range(2))
    listed = done if number == 1 or full else ()
    value = Barrier(number << 16, (number - 1) << 16, BarrierKind.CHECKPOINT, 1, 0, progress=listed)
    announced = replace(value, full=full, columns=columns)
    return TopicEntry(0, None, None, barrier_header(value), closes=announced)


def changed(op: Op, before: Row | None, after: Row) -> TopicEntry:
    return TopicEntry(0, KEYS.encode(after[:1]), CHANGES.encode(Change(op, before, after)))


UPSTREAM = [
    changed(Op.INSERT, None, (1, 10, 7)),
    barrier(1),
    changed(Op.UPDATE, (1, 10, 7), (1, 11, 7)),
    barrier(2),
    changed(Op.INSERT, None, (2, 20, None)),
    barrier(3),
    changed(Op.UPDATE, (1, 11, 7), (1, 12, 7)),
    changed(Op.UPDATE, (2, 20, None), (2, 21, 5)),
    barrier(4),
    changed(Op.INSERT, None, (3, 30, 7)),
    barrier(5),
]
FIRST: list[Item] = [barrier(1), (1, 11), barrier(2)]
LAST: list[Item] = [(1, 12, 7), (2, 21, 5), barrier(4), (3, 30, 7), barrier(5)]
GOOD: list[Item] = [*FIRST, (2, 20, None), barrier(3, C), *LAST]


def judge(items: Sequence[Item], encoding: str = "json", *, first_width: int = 2) -> Report:
    """Rows of the output are written with as many columns as they have values."""
    declared = {"name": "j", "output": "out", "format": "upsert", "encoding": encoding, "new_columns": "send"}
    job = JobDefinition.declare({**declared, "output_partitions": 1, "from": "now"}, TABLE)
    form = RecordForm.of_output(replace(job, first_width=first_width), TABLE)
    if job.format.framed:
        earlier = tuple((width, IDS[width]) for width in range(first_width or 1, 3))
        form = replace(form, key_id=1, value_id=IDS[3], earlier=earlier)

    def entry(item: Item) -> TopicEntry:
        if isinstance(item, TopicEntry):
            return item
        format_ = job.format.with_ids(SchemaIds(1, IDS[len(item)]))
        value = sent_change(format_, TABLE.columns[: len(item)], Change(Op.INSERT, None, item))
        return TopicEntry(0, sent_key(format_, TABLE.key_columns, item[:1]), value)

    view = OutputView(TABLE, job.columns, None, form.rows_before)
    return Checker(
        TABLE,
        view,
        ("up", canonical(numbered(UPSTREAM), CHANGE_FORM, TABLE.columns, TABLE.key_columns)),
        ("out", canonical(numbered(map(entry, items)), form, view.columns, view.key_columns)),
        output_form=form,
        from_now=True,
    ).run(require_complete=True)


@pytest.mark.parametrize("encoding", ["json", "json-schema", "avro-registry"])
@pytest.mark.parametrize("first_width", [0, 2], ids=["", "known"])
@pytest.mark.parametrize(
    "items",
    [
        GOOD,
        [*FIRST, (2, 20, None), barrier(3, C), (1, 12), (2, 21, 5), barrier(4), (3, 30), barrier(5)],
        [barrier(1), (1, 11), barrier(2, C), (2, 20, None), barrier(3), *LAST],
        [barrier(1), (1, 11, 7), barrier(2, C), (2, 20, None), barrier(3, C), *LAST],
        [*FIRST, (2, 20, None), barrier(3, C), *LAST[:-1], barrier(5, C, full=True)],
    ],
    ids=["", "lacking, for the fill", "announced before", "with the fill before", "again in a full one"],
)
def test_a_column_that_is_announced_in_time_is_taken(
    items: list[Item], encoding: str, first_width: int
) -> None:
    report = judge(items, encoding, first_width=first_width)
    assert report.clean, report.findings


OTHER = ("c", '{"type":"int","fill":8}')
MUTANTS: dict[str, tuple[list[Item], set[Rule]]] = {
    "left out": ([*FIRST, (2, 20), barrier(3, C), *LAST], {Rule.CHANGED}),
    "left out later": ([*FIRST, (2, 20, None), barrier(3, C), (1, 12), (2, 21), *LAST[2:]], {Rule.CHANGED}),
    "announced late": (
        [*FIRST, (2, 20, None), barrier(3), *LAST[:2], barrier(4, C), *LAST[3:]],
        {Rule.COLUMN_UNANNOUNCED},
    ),
    "with the fill before it is announced": (
        [barrier(1), (1, 11, 7), barrier(2), (2, 20, None), barrier(3, C), *LAST],
        {Rule.COLUMN_UNANNOUNCED},
    ),
    "announced never": ([*FIRST, (2, 20, None), barrier(3), *LAST], {Rule.COLUMN_UNANNOUNCED}),
    "another fill": ([*FIRST, (2, 20, None), barrier(3, OTHER), *LAST], {Rule.COLUMN_DIFFERS}),
    "another type": (
        [*FIRST, (2, 20, None), barrier(3, ("c", '{"type":"bigint","fill":7}')), *LAST],
        {Rule.COLUMN_DIFFERS},
    ),
    "another fill later": (
        [*FIRST, (2, 20, None), barrier(3, C), *LAST[:2], barrier(4, OTHER), *LAST[3:]],
        {Rule.COLUMN_DIFFERS},
    ),
    "another column": (
        [*FIRST, (2, 20, None), barrier(3, C, ("d", C[1])), *LAST],
        {Rule.COLUMN_DIFFERS},
    ),
    "not in a full barrier": (
        [*FIRST, (2, 20, None), barrier(3, C), *LAST[:-1], barrier(5, full=True)],
        {Rule.COLUMN_DIFFERS},
    ),
}


@pytest.mark.parametrize("encoding", ["json", "json-schema", "avro-registry"])
@pytest.mark.parametrize("first_width", [0, 2], ids=["", "known"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_die(mutant: str, encoding: str, first_width: int) -> None:
    items, rules = MUTANTS[mutant]
    assert {each.rule for each in judge(items, encoding, first_width=first_width).findings} == rules


@pytest.mark.parametrize(
    ("after_ms", "is_late"), [((29_999, 70_000), False), ((30_000, 70_000), True)], ids=["in time", "late"]
)
def test_all_partitions_announce_it_within_a_minute(after_ms: tuple[int, int], *, is_late: bool) -> None:
    declared = {"name": "j", "output": "out", "format": "upsert", "new_columns": "send"}
    form, findings = RecordForm.of_output(JobDefinition.declare(declared, TABLE), TABLE), Findings()
    columns = AnnouncedColumns(TABLE.columns, form, findings)
    partitions = [PartitionHistory("out", number, ListSource([])) for number in range(2)]

    def judge_both(number: int, injected_at_ms: int, *announcing: int) -> None:
        for partition in partitions:
            given = (C,) if partition.partition in announcing else ()
            closes = replace(barrier(number, *given).closes or NOTHING, injected_at_ms=injected_at_ms)
            columns.judge(partition, Interval([], Closed(closes, partition.at())))

    judge_both(1, 0)
    judge_both(2, 1_000, 1)
    judge_both(3, 1_000 + after_ms[0])
    judge_both(4, 1_000 + after_ms[1], 0)
    columns.close()
    assert [each.rule for each in findings.kept] == [Rule.COLUMN_UNANNOUNCED] * is_late


def test_a_column_that_no_barrier_tells_is_in_every_record() -> None:
    lacks_n = [barrier(1), (1,), barrier(2), (2, 20, None), barrier(3, C), *LAST]
    found = {each.rule for each in judge(lacks_n, first_width=0).findings}
    assert found == {Rule.CHANGED, Rule.COLUMN_UNANNOUNCED}
    assert Rule.RECORD_MALFORMED in {each.rule for each in judge(lacks_n).findings}

"""Reports of `verify` on illegal upstreams: findings for changes, a refusal for barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.kinds.columns import FormerNames
from schemas.records import Barrier, BarrierKind, Change, Drop, Op, Row, VnodeProgress
from schemas.table import TableSchema, declare
from streaming.reading.records.forms import RecordForm
from streaming.reading.values.avro_bytes import RowCodec
from streaming.verify.checker import Checker
from streaming.verify.findings import Report
from streaming.verify.fold import InitialTable
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.encoded_histories import ListSource, closing, numbered, of_changes
from tests.kit.tables import vnode_of

TABLE = declare(
    {
        "name": "t",
        "columns": {"note": "string", "id": "bigint", "n": "int"},
        "primary_key": ["id"],
        "vnode_count": 2,
    }
)
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
OLD, NEW, OTHER = ("a", 1, 10), ("b", 1, 20), ("c", 2, 30)


def change(op: Op, before: Row | None, after: Row | None, key: int = 1) -> TopicEntry:
    return TopicEntry(0, KEYS.encode((key,)), CHANGES.encode(Change(op, before, after)))


def insert(row: Row, key: int = 1) -> TopicEntry:
    return change(Op.INSERT, None, row, key)


def barrier(curr: int, prev: int, partitions: int = 1) -> TopicEntry:
    return closing(Barrier(curr, prev, BarrierKind.CHECKPOINT, partitions, 0))


def judge(
    *upstream: list[TopicEntry],
    output: list[TopicEntry] | None = None,
    initial: list[Row] | None = None,
    table: TableSchema = TABLE,
) -> Report:
    sources = [numbered(entries)[0] for entries in upstream]
    rows = pa.Table.from_pylist([dict(zip(TABLE.column_names, row, strict=True)) for row in initial or ()])
    return Checker(
        table,
        OutputView(table),
        ("up", of_changes(TABLE, *sources)),
        ("out", of_changes(TABLE, ListSource(output or [barrier(9, 0)]))),
        initial=None if initial is None else InitialTable((0,) * len(sources), [rows]),
    ).run()


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([insert(OLD), insert(NEW)], Code.INSERT_EXISTING_KEY),
        ([change(Op.DELETE, OLD, None)], Code.DELETE_MISSING_KEY),
        ([change(Op.UPDATE, OLD, NEW)], Code.DELETE_MISSING_KEY),
        ([insert(OLD), change(Op.UPDATE, NEW, OLD)], Code.OLD_ROW_MISMATCH),
        ([insert(OLD), change(Op.DELETE, NEW, None)], Code.OLD_ROW_MISMATCH),
        ([insert(OTHER)], Code.KEY_MISMATCH),
        ([insert(OLD), change(Op.UPDATE, OLD, OTHER)], Code.UPDATE_CHANGES_PK),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
def test_an_illegal_change_is_a_finding_about_the_upstream(records: list[TopicEntry], code: Code) -> None:
    report = judge([*records, barrier(9, 0)])
    assert report.counts == {f"upstream.{code}": 1}
    [finding] = report.findings
    assert str(finding.where) == f"up-0@{len(records) - 1}"
    assert finding.vnode is not None


def test_a_wrong_before_names_the_columns_and_no_values() -> None:
    report = judge([insert(OLD), change(Op.UPDATE, ("a", 1, 99), NEW), barrier(9, 0)])
    assert report.findings[0].found == "another before in n"


def test_a_key_in_two_partitions_is_a_finding() -> None:
    report = judge([insert(OLD), barrier(9, 0, 2)], [change(Op.UPDATE, OLD, NEW), barrier(9, 0, 2)])
    assert report.counts == {f"upstream.{Code.KEY_IN_TWO_PARTITIONS}": 1}


def test_an_output_that_copies_an_illegal_upstream_is_not_blamed_for_it() -> None:
    doubled = [insert(OLD), insert(NEW)]
    finished = Barrier(20, 9, BarrierKind.CHECKPOINT, 1, 0)
    output = [barrier(9, 0), closing(replace(finished, progress=_all_finished())), *doubled, barrier(30, 20)]
    report = judge([barrier(9, 0), barrier(20, 9), *doubled, barrier(30, 20)], output=output)
    assert report.counts == {f"upstream.{Code.INSERT_EXISTING_KEY}": 1}
    assert report.complete


def _all_finished() -> tuple[VnodeProgress, ...]:
    return tuple(VnodeProgress(vnode, None, True, 0) for vnode in range(TABLE.vnode_count))


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        ([[barrier(9, 0), barrier(5, 3)]], Code.BARRIER_REGRESSION),
        ([[barrier(9, 0), barrier(20, 10)]], Code.BARRIER_GAP),
        ([[barrier(9, 0, 2)], [barrier(10, 0, 2)]], Code.BARRIER_DISAGREE),
        (
            [[barrier(9, 0, 2)], [closing(Barrier(9, 0, BarrierKind.CHECKPOINT, 2, 0, Drop("x")))]],
            Code.BARRIER_DISAGREE,
        ),
        ([[barrier(9, 0, 3)], [barrier(9, 0, 3)]], Code.PARTITIONS_CHANGED),
        ([[barrier(9, 0), insert(OLD), barrier(9, 0)]], Code.BARRIER_DUPLICATE_WITH_DATA),
        ([[TopicEntry(0, None, b"\x01", b"9")]], Code.BARRIER_MALFORMED),
        ([[TopicEntry(0, b"\x02", None)]], Code.TOMBSTONE_UNSUPPORTED),
        ([[TopicEntry(0, None, b"\x00")]], Code.EMPTY_RECORD),
        ([[TopicEntry(0, b"\x02\x02", CHANGES.encode(Change(Op.INSERT, None, OLD)))]], Code.AVRO_TRAILING),
        ([[insert(OLD)._replace(value=b"\x09")]], Code.UNKNOWN_OP),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
def test_an_upstream_that_is_no_history_is_refused(partitions: list[list[TopicEntry]], code: Code) -> None:
    with pytest.raises(InputError) as raised:
        judge(*partitions)
    assert raised.value.code is code
    assert str(raised.value.where).startswith("up-")


def test_bytes_after_a_row_are_refused_with_their_place() -> None:
    longer = insert(OLD)
    longer = longer._replace(value=(longer.value or b"") + b"\x00")
    with pytest.raises(InputError, match="up-0@1"):
        judge([barrier(9, 0), longer, barrier(20, 9)])


def test_the_same_barrier_twice_in_a_row_is_harmless() -> None:
    report = judge([barrier(9, 0), barrier(9, 0), insert(OLD), barrier(20, 9)])
    assert report.clean
    assert report.behind == 1


def test_the_first_barrier_may_follow_one_that_this_topic_never_held() -> None:
    """The upstream is itself an output, of a job that started in the middle."""
    report = judge([barrier(9, 7)], output=[barrier(9, 7)])
    assert report.clean


def test_changes_after_the_last_aligned_barrier_are_not_looked_at() -> None:
    report = judge([barrier(9, 0, 2), insert(OLD), barrier(20, 9, 2)], [barrier(9, 0, 2)])
    assert report.clean
    assert (report.start, report.last, report.behind) == (9, 9, 0)


def test_an_empty_output_is_clean_and_incomplete() -> None:
    sources = of_changes(TABLE, ListSource([insert(OLD), barrier(9, 0)]))
    report = Checker(TABLE, OutputView(TABLE), ("up", sources), ("out", [ListSource([])])).run()
    assert report.clean
    assert not report.complete
    assert (report.start, report.barriers, report.behind, report.live_keys) == (None, 0, 1, 1)


def padded(row: bytes) -> bytes:
    """A row with a needless byte in the length of its first text, as Avro allows."""
    assert row[:1] == b"\x02"
    return row[:1] + bytes([row[1] | 0x80, 0]) + row[2:]


def rewrite(entry: TopicEntry, how: Callable[[bytes], bytes]) -> TopicEntry:
    assert entry.value is not None
    return entry._replace(value=entry.value[:3] + how(entry.value[3:]))


def test_other_bytes_of_the_same_values_are_no_difference() -> None:
    strange = rewrite(insert(OLD), padded)
    strange = strange._replace(key=b"\x82\x00")  # 1, in two bytes
    update = change(Op.UPDATE, OLD, NEW)
    progress = _all_finished()
    output = [
        barrier(9, 0),
        closing(Barrier(20, 9, BarrierKind.CHECKPOINT, 1, 0, progress=progress)),
        insert(OLD),
        update,
        barrier(30, 20),
    ]
    report = judge([barrier(9, 0), barrier(20, 9), strange, update, barrier(30, 20)], output=output)
    assert report.clean, report.findings


def test_changes_begin_from_the_table_that_is_given() -> None:
    report = judge([change(Op.UPDATE, OLD, NEW), barrier(9, 0, 2)], [barrier(9, 0, 2)], initial=[OLD, OTHER])
    assert (report.clean, report.live_keys) == (True, 2)
    for records, code in (
        ([insert(OLD)], Code.INSERT_EXISTING_KEY),
        ([change(Op.DELETE, NEW, None)], Code.OLD_ROW_MISMATCH),
    ):
        report = judge([*records, barrier(9, 0)], initial=[OLD])
        assert report.counts == {f"upstream.{code}": 1}


def test_rows_of_the_table_that_is_given_are_missed_and_have_one_home() -> None:
    done = replace(Barrier(9, 0, BarrierKind.CHECKPOINT, 1, 0), progress=finished(rows=1))
    report = judge([barrier(9, 0)], output=[closing(done)], initial=[OLD])
    assert set(report.counts) == {"output.LOST"}
    moved = judge(
        [change(Op.UPDATE, OLD, NEW), barrier(9, 0, 2)],
        [change(Op.UPDATE, NEW, OLD), barrier(9, 0, 2)],
        initial=[OLD],
    )
    assert f"upstream.{Code.KEY_IN_TWO_PARTITIONS}" in moved.counts


def finished(*, rows: int) -> tuple[VnodeProgress, ...]:
    """Of the one vnode of key 1 and the other one."""
    own = vnode_of(TABLE, (1,))
    return tuple(VnodeProgress(vnode, None, True, rows if vnode == own else 0) for vnode in range(2))


DEBEZIUM = RecordForm.of(DebeziumFormat(time="microseconds", decimal="precise"))
_ROW = b'"source":{"connector":"mysql"},"before":null,"after"'


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (None, b'{"op":"t",%s:null}' % _ROW, Code.TRUNCATE_UNSUPPORTED),
        (b'{"id":1}', b'{"op":"t",%s:null}' % _ROW, Code.TRUNCATE_UNSUPPORTED),
        (None, b'{"op":"c",%s:{"id":1}}' % _ROW, Code.KEY_MISMATCH),
        (b'{"id":1}', b'{"op":"x",%s:null}' % _ROW, Code.UNKNOWN_OP),
        (b'{"id":1}', b'{"op":"c",%s:{"id":1,"n":2147483648}}' % _ROW, Code.VALUE_OUT_OF_RANGE),
    ],
)
def test_a_record_that_is_no_change_has_the_code_of_its_fault(
    key: bytes | None, value: bytes, code: Code
) -> None:
    entries = [barrier(9, 0), TopicEntry(0, key, value), barrier(20, 9)]
    numbered = [entry._replace(offset=offset) for offset, entry in enumerate(entries)]
    upstream = canonical([ListSource(numbered)], DEBEZIUM, TABLE.columns, TABLE.key_columns)
    output = ListSource([barrier(9, 0)])
    with pytest.raises(InputError) as raised:
        Checker(TABLE, OutputView(TABLE), ("up", upstream), ("out", [output])).run()
    assert raised.value.code is code
    assert str(raised.value.where) == "up-0@1"


EPOCHS = (1 << 16, 2 << 16, 3 << 16)


def of_names(names: bytes, value: object) -> bytes:
    return b'{"note":"a","id":1,"%s":%s}' % (names, str(value).encode())


def test_a_column_is_read_by_the_names_that_it_had_before_each_barrier() -> None:
    columns = tuple(
        replace(column, field="later", aliases=("n",), read_as=(FormerNames(EPOCHS[1], ("n",)),), fill=7)
        if column.name == "n"
        else column
        for column in TABLE.columns
    )
    records = [
        TopicEntry(0, b'{"id":1}', of_names(b"later", 5)),
        barrier(EPOCHS[0], 0),
        TopicEntry(0, b'{"id":1}', of_names(b"n", 6)),
        TopicEntry(0, b'{"id":1}', of_names(b"later", 8)),
        barrier(EPOCHS[1], EPOCHS[0]),
        TopicEntry(0, b'{"id":1}', of_names(b"later", 9)),
        TopicEntry(0, b'{"id":1}', of_names(b"n", 10)),
        barrier(EPOCHS[2], EPOCHS[1]),
    ]
    form = RecordForm.of(UpsertFormat())
    [source] = canonical([ListSource(records)], form, columns, TABLE.key_columns)
    found = [entry.change for entry in source.entries() if entry.change is not None]
    rows = [RowCodec(columns).row(change.after or b"") for change in found]
    assert [row[2] for row in rows] == [7, 6, 7, 9, 10]


def test_a_row_before_may_have_what_was_missing_of_a_column() -> None:
    stored, said, after = ("a", 1, 7), ("a", 1, 99), ("b", 1, 20)
    changes = [
        insert(stored),
        barrier(EPOCHS[0], 0),
        change(Op.UPDATE, said, after),
        barrier(EPOCHS[1], EPOCHS[0]),
    ]
    assert judge(changes, output=[barrier(EPOCHS[0], 0)]).counts == {"upstream.OLD_ROW_MISMATCH": 1}
    columns = tuple(
        replace(each, read_as=(FormerNames(EPOCHS[0], ()),)) if each.name == "n" else each
        for each in TABLE.columns
    )
    table = replace(TABLE, columns=columns)
    assert judge(changes, output=[barrier(EPOCHS[0], 0)], table=table).counts == {}

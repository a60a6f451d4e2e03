"""Columns in records: other names, values that the database did not log, and columns that were lost or ignored."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.codec.json.reader import can_be_typed
from schemas.errors import BackfillError, Code
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.row_names import LOST_AFTER, MOST_UNDECLARED, FieldHistory, FieldsSeen
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.json.placeholder import placeholder
from schemas.kinds.columns import FormerNames
from schemas.kinds.table_changes import (
    AddColumn,
    RenameField,
    RetireColumn,
    TableChange,
    WidenColumn,
    changes_from_json,
    changes_text,
    in_words,
)
from schemas.records import Alter
from schemas.table import TableSchema, declare
from state.values.bound_table import BoundTable
from streaming.control.service_api import _parsed
from streaming.core.jobs import apply_mutation, created
from streaming.source.direct_read import _log_changes
from tests.kit.one_value import LEFT_OUT, by_columns, compact, event, read, table_of
from tests.kit.single_records import single_records

NAMES = [
    "order-id",
    "row.values",
    "3ALPHA",
    "/VSO/R_PKGRP",
    "user name",
    "größe",
    'a"b',
    "a\\b",
    "id\n",
    "_bf_op",
    "😀",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_may_have_any_name_in_records(name: str) -> None:
    columns = {"id": "bigint", "c": {"type": "int", "field": name}}
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    assert table.to_dict()["columns"] == columns
    assert read(DebeziumFormat(), table, event(5, name=name)) == 5
    assert read(DebeziumFormat(), table, event(5, {"type": "int32"}, name=name)) == 5
    assert by_columns(DebeziumFormat(), table, [event(5, name=name)], [5]) == can_be_typed([name])
    upserts = UpsertFormat()
    record = b'{"id":7}', compact({"id": 7, name: 5})
    assert read(upserts, table, record) == 5
    assert by_columns(upserts, table, [record], [5]) == can_be_typed([name])
    assert read(upserts, table, (b'{"id":7}', compact({"id": 7, "c": 5}))) is None
    own = declare({"name": "t", "columns": {"id": {"type": "int", "field": name}}, "primary_key": ["id"]})
    for format_ in (DebeziumFormat(), upserts):
        assert single_records(format_, own.columns, own.key_columns).read_key(compact({name: 5})) == (5,)


@pytest.mark.parametrize("setting", [None, "N/A", "größe", "hex:5f5f6e6f6e65", '"quoted" \\ text'])
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_placeholder_is_known_in_every_form(setting: str | None, kind: str) -> None:
    made = placeholder() if setting is None else placeholder(setting)
    format_ = DebeziumFormat() if setting is None else DebeziumFormat(unavailable=setting)
    table, text = table_of(kind), made.text
    numbers = [byte - 256 if byte > 127 else byte for byte in text.encode()]
    single = [base64.b64encode(bytes([byte])).decode() for byte in text.encode()]
    url_safe = base64.urlsafe_b64encode(text.encode()).decode()
    forms: list[object] = [
        *(text, [text], text.encode().hex(), made.base64, [made.base64], url_safe, url_safe.rstrip("=")),
        *(numbers, [float(each) for each in numbers], single, [True] * len(numbers), {text: text}),
        *(json.dumps({text: text}, ensure_ascii=False, separators=(",", ":")),),
        [{"scale": 0, "value": each} for each in single],
    ]
    for form in [made.base64] if kind == "binary" else forms:
        assert read(format_, table, event(form)) == LEFT_OUT, form
    if kind == "string":
        for other in ("x", [text, text], numbers[1:], {text: "x"}, f"{text} ", None, [], "__debezium"):
            assert read(format_, table, event(other)) != LEFT_OUT, other


def test_the_uuid_of_a_placeholder_is_that_of_its_bytes() -> None:
    assert '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]' in placeholder().texts


@pytest.mark.parametrize("setting", ["", "hex:", "hex:5", "hex:zz", "hex:ff"])
def test_a_placeholder_that_is_no_text_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="unavailable"):
        DebeziumFormat(unavailable=setting)


def table(**columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": ["id"]})


OF = table(a="int", b={"type": "int", "field": "B"}, late={"type": "int", "fill": None})


def history(*rows: tuple[set[str], int]) -> FieldHistory:
    found = FieldHistory(OF)
    for names, times in rows:
        for _ in range(times):
            found.add(names)
    return found


def test_a_column_is_lost_when_no_row_of_so_many_had_it() -> None:
    found = history(({"a", "B"}, 1), ({"a"}, LOST_AFTER - 1))
    assert found.seen()[1:3] == ((), ())
    found.add({"a"})
    assert found.seen()[1:3] == (("b",), ())
    found.add({"a", "B"})
    assert found.seen()[1:3] == ((), ())


def test_a_column_that_was_never_there_is_named_unless_rows_may_lack_it() -> None:
    found = history(({"b"}, LOST_AFTER))
    assert found.seen() == FieldsSeen(LOST_AFTER, (), ("a", "b"), ("b",))
    late = history(({"a", "B", "late"}, 1), ({"a", "B"}, LOST_AFTER))
    assert late.seen().lost == ("late",)


def test_names_that_are_not_declared_are_kept_up_to_a_limit() -> None:
    found = FieldHistory(OF)
    found.add(f"x{number:04}" for number in range(MOST_UNDECLARED))
    assert (len(found.seen().undeclared), found.seen().more) == (MOST_UNDECLARED, False)
    found.add({"y"})
    assert (len(found.seen().undeclared), found.seen().more) == (MOST_UNDECLARED, True)


@pytest.mark.parametrize(
    ("before", "now", "events"),
    [
        (FieldsSeen(), FieldsSeen(9, ("a",), ("b",)), ["column_lost", "column_never_seen"]),
        (FieldsSeen(9, ("a",), ("b",)), FieldsSeen(10, ("a",), ("b",)), []),
        (FieldsSeen(9, ("a",), ("b",)), FieldsSeen(10), ["column_is_there", "column_is_there"]),
        (FieldsSeen(), FieldsSeen(1, (), (), ("x", "y")), ["fields_not_declared"]),
        (FieldsSeen(1, (), (), ("x",)), FieldsSeen(2, (), (), ("x",)), []),
        (FieldsSeen(1, (), (), ("x",)), FieldsSeen(2, (), (), ("x",), more=True), ["fields_not_declared"]),
    ],
)
def test_each_change_is_one_line_of_the_log(before: FieldsSeen, now: FieldsSeen, events: list[str]) -> None:
    with capture_logs() as lines:
        _log_changes("up", before, now)
    assert [line["event"] for line in lines] == events


def test_the_status_of_a_command_has_it_as_a_trouble() -> None:
    status = {"reason": None, "condition": "serving", "ready": True, "batch_age_s": 1.0}
    fields = {"lost": ["a"], "never": ["b"], "undeclared": ["x"], "more": False, "rows": 1}
    assert (
        _parsed(status | {"fields": fields})
        .troubles[0]
        .startswith("none of the newest rows has column a, b;")
    )
    assert _parsed(status | {"fields": fields}).undeclared == ("x",)
    assert _parsed(status).troubles == ()


COLUMNS = {"id": "int", "n": "int"}
TABLE = declare({"name": "t", "columns": COLUMNS, "primary_key": ["id"]})
BY_NAME = BoundTable.first(TABLE, ("c", "m"))
ANY = BoundTable.first(TABLE, None)
ADDED = AddColumn("c", '{"type": "int", "fill": 7}', accepts_missing=True)
RENAMED = RenameField("n", "m", accepts_missing=True)
UNREAD = ("\x7fc",)


def names(table: TableSchema) -> list[tuple[str, ...]]:
    return [column.names_in_records for column in table.columns]


@pytest.mark.parametrize("known", [BY_NAME, ANY], ids=["by name", "any"])
@pytest.mark.parametrize("change", [ADDED, RENAMED], ids=["add", "rename"])
def test_what_was_ignored_is_refused_until_missing_values_are_accepted(
    known: BoundTable, change: AddColumn | RenameField
) -> None:
    with pytest.raises(BackfillError) as refused:
        known.altered([replace(change, accepts_missing=False)], state="s", epoch=5)
    assert refused.value.code is Code.COLUMN_WAS_IGNORED
    version = known.altered([change], state="s", epoch=5)
    assert version.altered([change], state="s", epoch=9) == version, "the same request once more"
    for each in (version, BoundTable.from_binding(json.dumps(version.to_dict()))):
        table = each.table
        assert table.unread_until == {5}
        assert table.hashed_after == 5
        assert table.as_read(6) == table
        assert each.declared(TABLE, None, state="s").table.unread_until == {5}, "a file that is behind"


def test_records_up_to_the_change_are_read_by_the_names_of_then() -> None:
    table = ANY.altered([RENAMED, ADDED], state="s", epoch=5).table
    assert names(table) == [("id",), ("m", "n"), ("c",)]
    assert names(table.as_read(5)) == [("id",), ("n",), UNREAD]
    later = BoundTable.first(TABLE, None).altered([ADDED], state="s", epoch=3)
    again = later.altered([RenameField("c", "d", accepts_missing=True)], state="s", epoch=8).table
    assert [names(again.as_read(epoch))[2] for epoch in (3, 4, 8, 9)] == [UNREAD, ("c",), ("c",), ("d", "c")]


def test_a_column_that_no_record_can_have_had_is_complete() -> None:
    version = BoundTable.first(TABLE, ("m",)).altered([ADDED], state="s", epoch=5)
    assert version.table.unread_until == frozenset()
    assert version.table.by_name["c"].announced == {"type": "int", "fill": 7}


def test_barriers_say_that_a_column_is_incomplete() -> None:
    table = BY_NAME.altered([ADDED, RENAMED], state="s", epoch=5).table
    assert table.by_name["c"].announced == {"type": "int", "fill": 7, "incomplete": True}
    assert not table.by_name["n"].is_incomplete, "by another name only"
    job = JobDefinition.declare({"name": "j", "output": "o"}, table)
    assert job.columns_of(table)[2].is_incomplete


@pytest.mark.parametrize(
    "change",
    [WidenColumn("n", "bigint"), RetireColumn("n"), AddColumn("d", '"int"'), RenameField("n", "x")],
    ids=str,
)
def test_the_past_of_a_column_outlives_every_other_change(change: TableChange) -> None:
    first = BoundTable.first(TABLE, ("c", "m"))
    version = first.altered([ADDED, RENAMED, WidenColumn("n", "bigint")], state="s", epoch=5)
    after = version.altered([change], state="s", epoch=9).table
    assert after.by_name["c"].read_as == (FormerNames(5, ()),)
    assert after.by_name["n"].read_as == (FormerNames(5, ("n",)),)
    assert [former.epoch for former in after.by_name["n"].was] == [5]


def test_a_request_says_it_in_json_and_in_words() -> None:
    changes = (ADDED, RENAMED, replace(ADDED, name="d", accepts_missing=False))
    assert changes_from_json(json.loads(changes_text(changes))) == changes
    assert in_words(changes) == "add 'c' (accept missing), rename 'n' to 'm' (accept missing), add 'd'"
    for wrong in (
        {"retire": "c", "accept_missing": True},
        {"widen": {"n": "bigint"}, "accept_missing": True},
        {"add": {"c": "int"}, "accept_missing": 1},
        {"accept_missing": True},
    ):
        with pytest.raises(ValueError, match="a change is one of"):
            changes_from_json([wrong])


def test_a_job_that_reads_the_topic_would_have_what_is_missing() -> None:
    table = declare(
        {"name": "t", "columns": COLUMNS, "primary_key": ["id"], "distribution_key": ["id"], "vnode_count": 2}
    )
    job = JobDefinition.declare({"name": "j", "output": "o", "read": "topic"}, table)
    assert job.scan.reads_upstream
    alter = Alter(changes_text([ADDED]))
    outcome = apply_mutation(alter, 2, (created(job, 1),), lanes=1, start=2, table=table, partitions=None)
    [report] = outcome.reports
    assert report.refused is Code.TABLE_INVALID
    assert "job j would read again from the topic" in report.text

"""Dead letters in a report of `verify`: one for each invalid record, with its bytes, and none for any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from schemas.errors import InputError
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Change, Op, RecordId, VnodeProgress
from schemas.table import declare
from streaming.reading.records.forms import CHANGE_FORM, RecordForm
from streaming.verify.checker import Checker
from streaming.verify.dead_letters import DeadLetters, ListedLetter
from streaming.verify.findings import Findings, Place, Report, Rule
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.encoded_histories import closing, numbered

TABLE = declare(
    {"name": "t", "columns": {"id": "bigint", "b": "boolean"}, "primary_key": ["id"], "vnode_count": 2}
)
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
KEY = KEYS.encode((1,))
SOUND = CHANGES.encode(Change(Op.INSERT, None, (1, True)))


def barrier(curr: int, prev: int, *progress: VnodeProgress) -> TopicEntry:
    return closing(Barrier(curr, prev, BarrierKind.CHECKPOINT, 1, 0, progress=progress))


BAD = TopicEntry(0, KEY, SOUND + b"\x00")
START = barrier(9, 0)
ALL = (VnodeProgress(0, None, True, 0), VnodeProgress(1, None, True, 0))
OUTPUT = [START, barrier(20, 9, *ALL)]


def letter(offset: int, entry: TopicEntry = BAD, *, at: int = 0, topic: str = "up") -> ListedLetter:
    return ListedLetter(Place("out.dead-letters", 0, at), f"{topic}-0@{offset}", entry.key, entry.value)


def judge(
    upstream: Sequence[TopicEntry],
    *readings: list[ListedLetter],
    output: Sequence[TopicEntry] = OUTPUT,
    elsewhere: frozenset[RecordId] = frozenset(),
    named: frozenset[RecordId] = frozenset(),
    are_empty: bool = False,
    upstream_form: RecordForm = CHANGE_FORM,
) -> Report:
    """`readings`: what is in the topic of letters each time that it is read; the last one stays."""
    findings, left = Findings(), list(readings)
    letters = DeadLetters(
        TABLE,
        findings,
        lambda: left.pop(0) if len(left) > 1 else left[0],
        elsewhere,
        named,
        are_empty=are_empty,
    )
    sources = [
        canonical(numbered(entries), form, TABLE.columns, TABLE.key_columns)
        for entries, form in ((upstream, upstream_form), (output, CHANGE_FORM))
    ]
    return Checker(TABLE, OutputView(TABLE), ("up", sources[0]), ("out", sources[1]), findings, letters).run()


def found(report: Report) -> dict[str, int]:
    return {name.removeprefix("output."): count for name, count in report.counts.items()}


ONE_BAD = [START, BAD, barrier(20, 9)]

AT_FAULT = {
    "bytes behind the end": BAD,
    "no value": TopicEntry(0, KEY, None),
    "an empty value": TopicEntry(0, KEY, b""),
    "no key": TopicEntry(0, None, SOUND),
    "another row's key": TopicEntry(0, KEYS.encode((2,)), SOUND),
    "a key that is none": TopicEntry(0, b"\x80", SOUND),
    "an update of the key": TopicEntry(0, KEY, CHANGES.encode(Change(Op.UPDATE, (1, True), (2, True)))),
    "a boolean of 2": TopicEntry(0, KEY, SOUND[:-1] + b"\x02"),
}


@pytest.mark.parametrize("entry", AT_FAULT.values(), ids=list(AT_FAULT))
def test_a_record_at_fault_with_a_letter_is_no_part_of_the_table(entry: TopicEntry) -> None:
    report = judge([START, entry, barrier(20, 9)], [letter(1, entry)])
    assert report.clean, report.findings
    assert report.live_keys == 0


def test_letters_of_a_job_that_masks_columns_have_no_bytes() -> None:
    empty = replace(letter(1), key=None, value=None)
    assert judge(ONE_BAD, [empty], are_empty=True).clean
    for leaking in (letter(1), replace(empty, key=b""), replace(empty, value=b"")):
        assert found(judge(ONE_BAD, [leaking], are_empty=True)) == {Rule.DEAD_LETTER_DIFFERS: 1}


WRONG: dict[str, tuple[list[TopicEntry], list[ListedLetter], Rule]] = {
    "no letter": (ONE_BAD, [], Rule.DEAD_LETTER_MISSING),
    "two letters": (ONE_BAD, [letter(1), letter(1, at=1)], Rule.DEAD_LETTER_DOUBLED),
    "other bytes": (ONE_BAD, [letter(1, BAD._replace(key=b""))], Rule.DEAD_LETTER_DIFFERS),
    "another topic": (ONE_BAD, [letter(1, topic="down")], Rule.DEAD_LETTER_DIFFERS),
    "a sound record": (
        [START, TopicEntry(0, KEY, SOUND), barrier(20, 9)],
        [letter(1, TopicEntry(0, KEY, SOUND))],
        Rule.DEAD_LETTER_UNFOUNDED,
    ),
    "no such record": ([START, barrier(20, 9)], [letter(7)], Rule.DEAD_LETTER_UNKNOWN),
    "no place": (ONE_BAD, [letter(1), replace(letter(1, at=1), place="?")], Rule.DEAD_LETTER_UNKNOWN),
}


@pytest.mark.parametrize(("upstream", "letters", "rule"), WRONG.values(), ids=list(WRONG))
def test_whatever_is_wrong_with_letters_is_a_finding(
    upstream: list[TopicEntry], letters: list[ListedLetter], rule: Rule
) -> None:
    report = judge(upstream, letters)
    assert found(report) == {rule: 1}, report.findings


def test_a_letter_that_becomes_visible_late_is_looked_for_once_more() -> None:
    assert judge(ONE_BAD, [], [letter(1)]).clean


def test_a_record_that_came_after_the_last_look_needs_no_letter_yet() -> None:
    later = [*ONE_BAD, BAD, barrier(30, 20)]
    report = judge(later, [letter(1)])
    assert report.clean, report.findings
    assert report.behind == 1


def test_behind_its_end_an_output_has_no_letters_and_those_of_others_tell() -> None:
    for wrong in AT_FAULT.values():
        later = [START, barrier(20, 9), wrong, barrier(30, 20), wrong, barrier(40, 30)]
        report = judge(later, [], elsewhere=frozenset({(0, 2), (0, 4)}))
        assert report.clean, report.findings


def test_a_letter_of_a_batch_after_the_ends_that_are_judged_is_no_finding() -> None:
    assert judge(ONE_BAD, [letter(1)], [letter(1), letter(5, at=1)]).clean


def test_before_its_start_a_job_has_no_letters_and_those_of_others_tell() -> None:
    upstream = [BAD, START, barrier(20, 9)]
    assert judge(upstream, [], elsewhere=frozenset({(0, 0)})).clean
    with pytest.raises(InputError, match="up-0@0"):
        judge(upstream, [])


def test_a_letter_in_another_output_is_none_in_this_one() -> None:
    report = judge(ONE_BAD, [], elsewhere=frozenset({(0, 1)}))
    assert found(report) == {Rule.DEAD_LETTER_MISSING: 1}


def test_a_letter_for_a_record_that_the_operator_named_is_no_finding() -> None:
    assert judge([START, barrier(20, 9)], [letter(7)], named=frozenset({(0, 7)})).clean


def test_letters_hold_records_as_they_came_whatever_their_format() -> None:
    raw = TopicEntry(0, b'{"id":1}', b'{"b":7}')
    upstream, form = [START, raw, barrier(20, 9)], RecordForm.of(UpsertFormat())
    assert judge(upstream, [letter(1, raw)], upstream_form=form).clean
    other = raw._replace(value=b'{"b":8}')
    assert found(judge(upstream, [letter(1, other)], upstream_form=form)) == {"DEAD_LETTER_DIFFERS": 1}

"""Offsets that are gone: what is known of them, what was named, and what nobody can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import InputError
from state.small_files import EmptyRange, EmptyRanges
from state.storage import Storage
from streaming.kafka.topics import Watermarks
from streaming.source.retention import Gaps

TRIMMED = (Watermarks(9, 12, 12),)


def kept(folder: Path, *ranges: EmptyRange) -> EmptyRanges:
    found = EmptyRanges(Storage(str(folder)))
    found.write(dict(enumerate(ranges)))
    return found


def refused(gaps: Gaps, wanted: int) -> InputError:
    with pytest.raises(InputError) as caught:
        gaps.refuse_lost("up", TRIMMED, (wanted,))
    return caught.value


def test_what_was_seen_to_hold_nothing_is_not_missed_by_any_later_run(tmp_path: Path) -> None:
    kept(tmp_path, EmptyRange(7, 10))
    gaps = Gaps(EmptyRanges(Storage(str(tmp_path))))
    gaps.refuse_lost("up", TRIMMED, (7,))
    assert gaps.first((7,)) == (10,)
    assert gaps.first((8,)) == (8,)


def test_a_record_that_was_seen_and_is_gone_is_lost_for_sure(tmp_path: Path) -> None:
    error = refused(Gaps(kept(tmp_path, EmptyRange(7, 8, is_full=True))), 7)
    assert (error.where, error.found) == ("up-0@7", "a partition without its records 8 to 8")


def test_what_can_not_be_known_is_said_and_may_be_passed_over_by_name() -> None:
    error = refused(Gaps(), 7)
    assert error.found.endswith("can't be known any more")
    assert "--skip-record 0@7 --skip-record 0@8;" in error.next_step
    assert refused(Gaps(named=frozenset({(0, 8)})), 7).where == "up-0@7"
    gaps = Gaps(named=frozenset({(0, 7), (0, 8)}))
    gaps.refuse_lost("up", TRIMMED, (7,))
    assert gaps.first((7,)) == (9,)


def test_a_beginning_that_is_gone_held_records() -> None:
    assert refused(Gaps(), 0).found == "a partition without its records 0 to 8"


def test_a_file_that_is_none_tells_nothing(tmp_path: Path) -> None:
    ranges = kept(tmp_path, EmptyRange(7, 10))
    for text in ("", "[]", '{"0": [1]}', '{"0": 3}'):
        (tmp_path / "upstream" / "empty.json").write_text(text, encoding="utf-8")
        assert ranges.read() == {}

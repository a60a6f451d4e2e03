"""Positions in the logs of databases, as plans and the log's commits hold them, and put together from lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.codec.logs import LONG_MAX, LogId
from state.values.seen import LaneMark, LaneSeen, Mark, Seen, merged

LOG = LogId("postgresql", "shop", "shop")
OTHER = LogId("postgresql", "other", "other")
GTIDS = LogId("mysql", "shop", None, "u")
EMPTY: frozenset[str] = frozenset()


def lane(position: tuple[int, ...], offset: int, interval: int = 0, **more: Any) -> LaneMark:
    return replace(LaneMark(position, frozenset({f"d{position}"}), 5, position, interval, offset), **more)


def one(mark: LaneMark, log: LogId = LOG, **more: Any) -> dict[int, LaneSeen]:
    return {0: LaneSeen({log: mark}, **more)}


def after(before: dict[int, Seen], *lanes: dict[int, LaneSeen], closed: int | None = None) -> Mark:
    return merged(before, lanes, closed)[0].mark(LOG)


def test_it_is_written_as_it_is_read() -> None:
    seen = Seen(
        {LOG: Mark((5, 7), frozenset({"a"}), 9, True, (5, 7)), GTIDS: Mark(None, EMPTY, None)},
        "b",
        frozenset({LogId("mysql", "shop", "shop")}),
    )
    assert Seen.from_list(seen.to_list()) == seen


@pytest.mark.parametrize("raw", [[5, 7, None], [5, 7, "k", "a", "b"]])
def test_what_an_earlier_version_wrote_stands_for_any_log_of_postgresql(raw: list[Any]) -> None:
    seen = Seen.from_list(raw)
    assert seen.to_list() == raw
    assert seen.mark(LOG) == seen.mark(OTHER) == Mark((5, 7), frozenset(raw[3:]), LONG_MAX)
    assert seen.mark(GTIDS) == Mark()
    assert seen.dropped == raw[2]
    # Behind the first batch each log has its own.
    found = merged({0: seen}, [one(lane((5, 8), 3))])[0]
    assert found.mark(LOG) == Mark((5, 8), frozenset({"d(5, 8)"}), 5)
    assert found.mark(OTHER) == Mark()


def test_the_highest_position_of_all_lanes_counts_and_what_stands_there() -> None:
    before = {0: Seen({LOG: Mark((5, 7), frozenset({"old"}), 9)})}
    assert after(before) == before[0].mark(LOG)
    lanes = one(lane((6, 1), 4)), one(lane((6, 1), 3, at_highest=frozenset({"x"}), latest_ms=12))
    assert after(before, *lanes) == Mark((6, 1), frozenset({"d(6, 1)", "x"}), 12)
    equal = one(lane((5, 7), 4))
    assert after(before, equal) == Mark((5, 7), frozenset({"old", "d(5, 7)"}), 9)


def test_a_log_whose_last_record_lies_below_another_lanes_has_begun_anew() -> None:
    lanes = one(lane((1000, 1), 4)), one(lane((500, 1), 9, latest_ms=20))
    assert after({}, *lanes) == Mark((500, 1), frozenset({"d(500, 1)"}), 20)


def test_what_was_judged_counts_for_all_lanes() -> None:
    judged = Seen({LOG: Mark((1, 1))})
    found = merged({1: Seen({OTHER: Mark((3, 3))})}, [one(lane((9, 9), 1)), {0: LaneSeen(judged=judged)}])
    assert found == {0: judged, 1: Seen({OTHER: Mark((3, 3))})}


def test_behind_a_new_snapshot_the_last_record_of_its_interval_counts() -> None:
    before = {0: Seen({LOG: Mark((9, 9), frozenset({"old"}), 9)}), 1: Seen({LOG: Mark((8, 8), EMPTY, 7)})}
    rows = {1: LaneSeen({}, {LOG: 1})}
    found = merged(before, [rows, one(lane((10, 1), 4, interval=1))])
    assert found[0].mark(LOG) == Mark((10, 1), frozenset({"d(10, 1)"}), 9, may_fall=True)
    assert found[1].mark(LOG) == Mark(None, EMPTY, 7, may_fall=True)
    # One of an interval before the snapshot does not; behind it the next one may fall no more.
    assert after(before, rows, one(lane((10, 1), 4, interval=0))) == Mark(None, EMPTY, 9, may_fall=True)
    assert after(before, rows, one(lane((10, 1), 4, interval=2))) == Mark((10, 1), frozenset({"d(10, 1)"}), 9)


def test_an_interval_that_goes_on_keeps_its_snapshots_and_its_last_positions() -> None:
    before = {0: Seen({LOG: Mark((9, 9), EMPTY, 9)})}
    part = merged(before, [{0: LaneSeen({LOG: lane((10, 1), 4)}, {LOG: 0})}], 0)
    assert part[0].snapshots == {LOG}
    assert part[0].mark(LOG).last == (10, 1)
    assert part[0].mark(LOG).highest == (10, 1)
    whole = merged(part, [{0: LaneSeen()}], 1)
    assert whole[0] == Seen({LOG: Mark((10, 1), frozenset({"d(10, 1)"}), 9, may_fall=True)})


def test_a_delete_that_was_dropped_waits_for_its_tombstone_until_a_record_comes() -> None:
    before = {0: Seen(dropped="k")}
    assert merged(before, [{}])[0].dropped == "k"
    assert merged(before, [{0: LaneSeen()}])[0].dropped is None

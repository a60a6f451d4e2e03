from __future__ import annotations

import threading
from typing import NoReturn

import structlog

from schemas.errors import Code, EnvironmentProblem
from streaming.compaction.maintenance import FIRST_DELAY_S, LONGEST_DELAY_S, Maintenance, Turn
from tests.kit.clock import Clock


def fails() -> NoReturn:
    raise EnvironmentProblem(Code.SPARK_FAILED, found="a", expected="b", next_step="c")


def test_a_result_is_taken_once() -> None:
    turn = Turn[int]("work", "advice")
    assert turn.take() is None
    turn.begin(lambda: 7)
    turn.wait()
    assert (turn.is_free, turn.take()) == (False, 7)
    assert (turn.take(), turn.is_free) == (None, True)
    turn.close()


def test_work_under_way_is_not_waited_for() -> None:
    turn, may = Turn[int]("work", "advice"), threading.Event()
    turn.begin(lambda: 7 if may.wait(30) else 0)
    assert (turn.take(), turn.is_running, turn.began_ms is None) == (None, True, False)
    turn.wait(0.0)
    assert (turn.take(), turn.is_running) == (None, True)
    may.set()
    turn.wait()
    assert (turn.take(), turn.is_running, turn.began_ms) == (7, False, None)
    turn.close()


def test_what_fails_waits_twice_as_long_each_time_up_to_a_limit_and_is_logged_with_what_to_do() -> None:
    clock = Clock(100.0)
    turn = Turn[int]("compaction", "look at the disk", clock)
    delays = []
    with structlog.testing.capture_logs() as logged:
        for _ in range(14):
            turn.begin(fails)
            turn.wait()
            assert turn.take() is None
            began = clock.now_s
            while not turn.is_free:
                clock.now_s += FIRST_DELAY_S
            delays.append(clock.now_s - began)
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-2:] == [LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert logged[2] == {
        "event": "maintenance failed, to be tried again",
        "log_level": "warning",
        "work": "compaction",
        "error": "SPARK_FAILED",
        "failures": 3,
        "again_in_s": 4.0,
        "next_step": "look at the disk",
    }
    turn.close()


def test_a_success_is_the_end_of_a_row_of_failures() -> None:
    clock = Clock(100.0)
    turn = Turn[int]("compaction", "advice", clock)
    for _ in range(5):
        turn.begin(fails)
        turn.wait()
        turn.take()
    turn.begin(lambda: 1)
    turn.wait()
    assert turn.take() == 1
    assert (turn.maintenance().failures, turn.maintenance().error) == (0, None)
    turn.begin(fails)
    turn.wait()
    turn.take()
    clock.now_s += FIRST_DELAY_S
    assert turn.is_free
    turn.close()


def test_how_it_goes_is_shown() -> None:
    clock, may = Clock(100.0), threading.Event()
    turn = Turn[bool]("compaction", "look at the disk", clock)
    assert turn.maintenance() == Maintenance("compaction", None, 0, None, 0.0, "look at the disk")
    turn.begin(lambda: may.wait(30))
    clock.now_s += 7
    assert turn.maintenance().running_s == 7
    may.set()
    turn.wait()
    assert turn.take()
    for _ in range(3):
        turn.begin(fails)
        turn.wait()
        turn.take()
    clock.now_s += 1
    assert turn.maintenance() == Maintenance("compaction", None, 3, "SPARK_FAILED", 3.0, "look at the disk")
    turn.close()

"""Work beside everything else goes on while its block does, and no longer."""

from __future__ import annotations

import threading

from streaming.runtime.timing import repeated
from tests.kit.real import await_condition

SOON_S = 0.01


def is_at_work() -> bool:
    return any(thread.name == "steps" for thread in threading.enumerate())


def test_a_step_is_done_again_and_again_until_the_block_ends() -> None:
    done: list[int] = []

    def step() -> bool:
        done.append(1)
        return True

    with repeated(step, SOON_S, name="steps"):
        await_condition(lambda: len(done) >= 3, "three steps")
    assert not is_at_work()


def test_the_first_step_comes_after_the_time_of_one() -> None:
    done = threading.Event()

    def step() -> bool:
        done.set()
        return True

    with repeated(step, 60, name="steps"):
        pass
    assert not done.is_set()


def test_a_step_that_is_the_last_one_ends_it() -> None:
    done: list[int] = []

    def step() -> bool:
        done.append(1)
        return len(done) < 2

    with repeated(step, SOON_S, name="steps"):
        await_condition(lambda: not is_at_work(), "its end")
    assert len(done) == 2


def test_the_end_waits_no_longer_than_it_may_for_a_step_under_way() -> None:
    begun, answer = threading.Event(), threading.Event()

    def step() -> bool:
        begun.set()
        return answer.wait(60)

    with repeated(step, SOON_S, name="steps", end_within_s=SOON_S):
        assert begun.wait(60)
    assert is_at_work()
    answer.set()

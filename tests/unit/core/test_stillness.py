"""For how long jobs have been still."""

from __future__ import annotations

from streaming.core.clocks import Stillness


def test_a_job_is_still_since_its_last_change_and_one_that_goes_is_forgotten() -> None:
    stillness = Stillness(0.0)
    assert stillness.update(1.0, {}) == {}
    assert Stillness(0.0).oldest_s is None
    assert stillness.update(5.0, {1: (0,), 2: (0,)}) == {1: 0.0, 2: 0.0}
    assert stillness.update(9.0, {1: (0,), 2: (3,)}) == {1: 4.0, 2: 0.0}
    assert stillness.changed_s == 9.0
    assert stillness.update(11.0, {1: (0,), 2: (3,)}) == {1: 6.0, 2: 2.0}
    assert stillness.changed_s == 9.0
    assert stillness.update(12.0, {2: (3,)}) == {2: 3.0}
    assert stillness.oldest_s == 5.0
    assert stillness.changed_s == 12.0
    assert stillness.update(13.0, {1: (0,), 2: (3,)}) == {1: 0.0, 2: 4.0}

"""The watch reports what it sees, by and by, and keeps what ends the service for the thread that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest

from schemas.errors import Code, EnvironmentProblem, TopicError
from schemas.formats.row_names import FieldsSeen
from streaming.core.health import HealthCondition
from streaming.kafka.topics import Watermarks
from streaming.service.trouble import UpstreamWatch
from streaming.service.vitals import Vitals
from streaming.source.direct_read import NewestRows
from streaming.source.retention import Margin
from streaming.source.upstream_checks import UpstreamGuard
from tests.kit.real import await_condition

AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")
GONE = TopicError(Code.TOPIC_MISSING, found="no such topic", expected="it", next_step="create it")
LATE_S = 0.3


@dataclass
class Guard:
    """Answers as the test says, and remembers what it was asked."""

    answer: Exception | tuple[Watermarks, ...] = ()
    asked: list[Sequence[int]] = field(default_factory=list)

    def look(self, next_offsets: Sequence[int]) -> tuple[Watermarks, ...]:
        self.asked.append(next_offsets)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def margins(self, marks: Sequence[Watermarks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
        return tuple(Margin(number, offset, 60.0) for number, offset in enumerate(next_offsets))


@contextmanager
def watching(guard: Guard) -> Iterator[tuple[UpstreamWatch, Vitals]]:
    vitals = Vitals("up", 1_000, late_s=LATE_S, injects=False)
    vitals.streams()
    with UpstreamWatch(cast("UpstreamGuard", guard), vitals).running() as watch:
        yield watch, vitals


def becomes(vitals: Vitals, condition: HealthCondition) -> None:
    await_condition(lambda: vitals.health().condition is condition, condition)


def test_until_the_service_has_recovered_nothing_is_missed_upstream() -> None:
    guard = Guard()
    with watching(guard) as (watch, vitals):
        await_condition(lambda: len(guard.asked) > 1, "looks")
        assert set(map(tuple, guard.asked)) == {()}
        watch.next_offsets = lambda: (7, 9)
        await_condition(lambda: guard.asked[-1] == (7, 9), "a look behind the last batch")
        await_condition(lambda: vitals.margins_s() == {0: 60.0, 1: 60.0}, "what it keeps")


class Fields:
    """Says of so many records that it has seen them, and whether it was closed."""

    closed = False

    def look(self, marks: Sequence[Watermarks]) -> FieldsSeen:
        return FieldsSeen(sum(mark.stable for mark in marks), lost=("a",))

    def close(self) -> None:
        self.closed = True


def test_the_newest_rows_are_looked_at_as_often() -> None:
    vitals, fields = Vitals("up", 1_000, late_s=LATE_S, injects=False), Fields()
    with UpstreamWatch(
        cast("UpstreamGuard", Guard((Watermarks(0, 3, 5),))), vitals, cast("NewestRows", fields)
    ).running():
        await_condition(lambda: vitals.fields == FieldsSeen(3, ("a",)), "its fields")
        assert not fields.closed
    assert fields.closed


@pytest.mark.parametrize(
    ("answer", "condition"),
    [(AWAY, HealthCondition.DEGRADED), ((Watermarks(0, 3, 5),), HealthCondition.UPSTREAM_STUCK)],
)
def test_what_is_seen_makes_the_condition_and_its_end_ends_it(
    answer: Exception | tuple[Watermarks, ...], condition: HealthCondition
) -> None:
    guard = Guard(answer)
    with watching(guard) as (watch, vitals):
        becomes(vitals, condition)
        watch.check()
        guard.answer = (Watermarks(0, 5, 5),)
        becomes(vitals, HealthCondition.WAITING)


@pytest.mark.parametrize("raised", [GONE, RuntimeError("nobody foresaw it")])
def test_what_ends_the_service_is_raised_where_it_is_asked_for(raised: Exception) -> None:
    def raises(check: Callable[[], None]) -> bool:
        try:
            check()
        except type(raised) as found:
            return found is raised
        return False

    with watching(Guard(raised)) as (watch, _):
        await_condition(lambda: raises(watch.check), "the failure")

"""The last hour of a service: jobs, events and batches, each counted once, in bounded memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.errors import Code
from state.small_files import SentCount, keep_counts, kept_counts
from state.storage import Storage
from state.values.aligned import AlignedBarrier
from state.values.last_end import EndKind, LastEnd
from state.values.progress import Completed, InProgress, Progress
from streaming.core.health import HealthCondition
from streaming.core.jobs import MutationReport
from streaming.observe.hour import History, Span
from streaming.observe.models import JobStatus
from streaming.service.events import EventKind, EventLog, ServiceEvent
from tests.kit.fed_page import AWAY, FedPage, Shown
from tests.kit.reports import barrier, job, report

DONE: dict[int, Progress] = {number: Completed((9,), 75_000) for number in range(4)}


def one_job(fed: FedPage) -> Shown:
    """It reads its last rows at 20 s."""
    progress: dict[int, Progress] = DONE if fed.now_s >= 20 else {**DONE, 3: InProgress((5,), 20)}
    return (job("copy", start=fed.epoch_at(-1), paused=fed.paused),), {"copy": progress}, {"copy": 7}


@pytest.fixture
def fed() -> FedPage:
    return FedPage(shown=one_job)


def batches(fed: FedPage, until_s: float) -> None:
    while fed.now_s < until_s:
        fed.now_s += 1.0
        fed.batch()


def copy_of(fed: FedPage) -> JobStatus:
    (copy,) = fed.cache.status().jobs
    return copy


def kinds(fed: FedPage) -> list[tuple[EventKind, HealthCondition | None, str | None]]:
    return [(each.kind, each.condition, each.code) for each in fed.cache.events()]


def test_an_output_is_behind_from_its_completion_on_and_the_worst_is_kept_with_its_time(fed: FedPage) -> None:
    batches(fed, 19)
    assert (copy_of(fed).behind_s, copy_of(fed).worst_behind_s) == (None, None)
    batches(fed, 40)
    live = copy_of(fed)
    assert live.phase_since == fed.begin_s + 20
    assert live.behind_s == pytest.approx(0.25, abs=0.01)
    assert live.worst_behind_s == pytest.approx(1.25, abs=0.01)
    fed.now_s = 50.0
    assert copy_of(fed).behind_s == copy_of(fed).worst_behind_s == pytest.approx(10.25, abs=0.01)
    assert copy_of(fed).worst_behind_at == fed.wall_s
    fed.batch()
    batches(fed, 70)
    assert copy_of(fed).worst_behind_s == pytest.approx(10.25, abs=0.01)
    assert copy_of(fed).worst_behind_at == fed.begin_s + 50
    fed.now_s = 50.0 + 3_601
    fed.batch()
    batches(fed, fed.now_s + 3_601)
    assert copy_of(fed).worst_behind_s == pytest.approx(1.25, abs=0.01)


def test_figures_that_are_not_known_now_are_null(fed: FedPage) -> None:
    batches(fed, 15)
    going = copy_of(fed)
    assert going.sent_per_s == pytest.approx(14)
    assert going.done_at is None or going.done_at > fed.wall_s
    assert fed.cache.status().latency.p99_s == pytest.approx(0.25, abs=0.01)
    fed.cache.interrupted()
    fed.cache.vitals.interrupted(AWAY)
    assert (copy_of(fed).rows_per_s, copy_of(fed).sent_per_s, copy_of(fed).done_at) == (None, None, None)
    fed.now_s += 61
    status = fed.cache.status()
    assert (status.latency.p99_s, status.changes_per_s) == (None, None)
    assert status.look_age_s == 61


def test_records_count_from_a_start_or_a_job_s_creation(fed: FedPage) -> None:
    fed.restore()
    fed.now_s = 5.0
    fed.batch()
    copy = copy_of(fed)
    assert (copy.sent, copy.sent_since) == (14, fed.begin_s)
    assert copy.phase_since is None  # the start has found it so
    fed.shown = lambda fed: ((job("copy", start=fed.epoch_at(9)),), {"copy": DONE}, {"copy": 1})
    fed.now_s = 10.0
    fed.batch()
    again = copy_of(fed)
    assert (again.sent, again.sent_since, again.phase_since) == (2, fed.begin_s + 10, fed.begin_s + 10)


def test_counts_go_on_over_a_restart_but_not_into_another_job(fed: FedPage, tmp_path: Path) -> None:
    storage, start = Storage(str(tmp_path)), fed.epoch_at(-1)
    assert kept_counts(storage) == {}
    keep_counts(storage, {"copy": SentCount(start, 7.5, 1_000), "gone": SentCount(start, 7.5, 3)})
    fed.cache.kept_counts = lambda: kept_counts(storage)
    fed.restore()
    assert (copy_of(fed).sent, copy_of(fed).sent_since) == (1_000, 7.5)
    fed.now_s = 5.0
    fed.batch()
    assert fed.cache.counts() == {"copy": SentCount(start, 7.5, 1_014)}
    another = FedPage(shown=one_job)
    another.cache.kept_counts = lambda: {"copy": SentCount(start - 1, 7.5, 1_000)}
    another.restore()
    assert (copy_of(another).sent, copy_of(another).sent_since) == (0, another.begin_s)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"copy":7}', b'{"copy":{"start":"x"}}', b"null"])
def test_counts_that_cannot_be_read_begin_anew(data: bytes, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write_file(data, "presence", "sent.json")
    assert kept_counts(storage) == {}


def test_jobs_are_known_once_a_start_has_read_the_state(fed: FedPage) -> None:
    assert not fed.cache.status().jobs_known
    fed.restore()
    assert fed.cache.status().jobs_known
    assert copy_of(fed).name == "copy"


def test_conditions_requests_and_completion_are_events_in_their_order(fed: FedPage) -> None:
    batches(fed, 1)
    fed.reports = (
        MutationReport(0, "pause copy"),
        MutationReport(0, "drop x: no such job", Code.JOB_UNKNOWN),
    )
    batches(fed, 20)
    fed.now_s += 1
    fed.cache.vitals.interrupted(AWAY)
    fed.now_s += 8
    fed.batch()
    serving = (EventKind.CONDITION, HealthCondition.SERVING, None)
    assert kinds(fed) == [
        (EventKind.STARTED, HealthCondition.STARTING, None),
        serving,
        (EventKind.REQUEST, None, None),
        (EventKind.REQUEST, None, "JOB_UNKNOWN"),
        (EventKind.COMPLETED, None, None),
        (EventKind.CONDITION, HealthCondition.DEGRADED, "BROKER_UNREACHABLE"),
        serving,
    ]
    assert [each.at - fed.begin_s for each in fed.cache.events()] == pytest.approx([0, 1, 2, 2, 20, 21, 29])


def test_an_hour_is_kept_in_bounded_memory_with_the_last_end_and_the_condition_before_it() -> None:
    events = EventLog()
    events.note_end(LastEnd(EndKind.FAILED, "me", 1_000, 1_000, 1))
    events.note(ServiceEvent(2.0, EventKind.STARTED, ""))
    for at in range(3, 20_000):
        events.note_condition(float(at), HealthCondition.SERVING, None)
        events.note(ServiceEvent(float(at), EventKind.REQUEST, "pause copy"))
    assert 400 < len(events.since_an_hour(20_000.0)) < 600
    later = events.since_an_hour(30_000.0)
    assert [(each.kind, each.at) for each in later] == [
        (EventKind.ENDED, 1.0),
        (EventKind.STARTED, 2.0),
        (EventKind.CONDITION, 19_999.0),
    ]
    assert later[0].text == "ended by an error"


def test_a_point_has_the_longest_delay_of_the_barriers_that_came_at_once(fed: FedPage) -> None:
    """Barriers that waited for a start come in one batch, and each counts."""
    batches(fed, 1)
    last = report((job("copy"),), {"copy": DONE}, at_ms=round((fed.wall_s - 1) * 1_000))
    waited = [AlignedBarrier(barrier(round((fed.wall_s + ago) * 1_000)), (9, 9)) for ago in (-40, -20, -1)]
    fed.now_s += 1
    fed.cache.note(replace(last, plan=replace(last.plan, barriers=tuple(waited))))
    assert fed.cache.history()[-1].latency_s == fed.cache.status().latency.p99_s


def test_a_start_that_has_found_no_job_does_not_say_that_there_are_none(fed: FedPage) -> None:
    fed.shown = lambda _: ((), {}, {})
    fed.restore()
    assert not fed.cache.status().jobs_known
    fed.now_s = 1.0
    fed.batch()
    assert fed.cache.status().jobs_known


def test_a_status_reports_the_barrier_that_has_more_partitions_until_the_next_one(fed: FedPage) -> None:
    fed.batch()
    assert fed.cache.status().source.moved_at is None
    at_ms = round(fed.wall_s * 1_000)
    last = report(at_ms=at_ms)
    start = replace(last.plan.end, barrier=replace(last.plan.end.barrier, partitions=1))
    fed.cache.note(replace(last, plan=replace(last.plan, start=start)))
    assert fed.cache.status().source.moved_at == at_ms / 1_000
    restarted = FedPage().cache
    restarted.restore(replace(last.state_after, moved_at=next_epoch(NO_EPOCH, at_ms - 5_000)))
    assert restarted.status().source.moved_at == at_ms / 1_000 - 5


def batch(at: float, elapsed_s: float, *, latency_s: float | None = 0.3, sent: int = 5) -> Span:
    return Span(
        at=at,
        elapsed_s=elapsed_s,
        latency_s=latency_s,
        behind_s=1.0,
        batch_s=0.1,
        changes=10,
        rows={"copy": 100},
        sent={"copy": sent} if sent else {},
    )


def test_batches_of_a_second_are_one_point_with_the_longest_latency() -> None:
    history = History()
    for number, latency_s in enumerate([0.2, None, 0.9, 0.1, 0.2, 0.2]):
        history.note(batch(10 + 0.25 * number, 0.25, latency_s=latency_s, sent=number))
    first, second = history.points()
    assert (first.at, first.latency_s) == (10.75, 0.9)
    assert first.changes_per_s == pytest.approx(40)
    assert (first.rows_per_s, first.sent_per_s) == ({"copy": 400.0}, {"copy": 6.0})
    assert (second.at, second.sent_per_s) == (11.25, {"copy": 18.0})


def test_an_hour_is_kept_in_bounded_memory_and_every_record_counts_once() -> None:
    history = History()
    for number in range(4_000):
        history.note(batch(float(number), 1.0))
    points = history.points()
    assert len(points) == 900
    assert 3_590 <= points[-1].at - points[0].at <= 3_610
    assert {point.sent_per_s["copy"] for point in points} == {5.0}
    gaps = [later.at - earlier.at for earlier, later in pairwise(points)]
    assert (set(gaps[:299]), set(gaps[301:])) == ({10.0}, {1.0})


def test_a_service_without_batches_has_no_history() -> None:
    assert History().points() == []

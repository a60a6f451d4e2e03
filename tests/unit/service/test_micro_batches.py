"""Plans that are known already are run before Spark is asked for more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.compaction.compactor import Compactor
from streaming.protocol.batches import Batches
from streaming.protocol.micro_batches import MicroBatches
from streaming.protocol.report import BatchReport
from streaming.source.barriers.in_data import Announcements, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from tests.kit.barriers import EPOCH_STEP, NO_RECORDS, MemoryInjector, MemoryRecords
from tests.kit.real import await_condition
from tests.unit.service.test_own_barriers import PARTITIONS, announced, chain

TOPIC = chain((3, 0), (7, 9), (20, 10))


@dataclass
class Ran:
    """Batches that do nothing: one takes `most` of the barriers that wait, and more are announced while it runs."""

    announcements: Announcements
    announced_meanwhile: list[Sequence[AlignedBarrier]]
    epochs: list[list[int]] = field(default_factory=list)
    while_it_runs: Callable[[], object] = lambda: None
    jobs_read: bool = False
    most: int = 3

    def reads_on(self, _report: BatchReport) -> bool:
        return self.jobs_read

    def run_batch(self, waiting: Sequence[AlignedBarrier], _duplicates: object) -> BatchReport:
        waiting = waiting[: self.most]
        self.epochs.append([barrier.epoch // EPOCH_STEP for barrier in waiting])
        for barrier in self.announced_meanwhile.pop(0) if self.announced_meanwhile else ():
            self.announcements.put(barrier)
        self.while_it_runs()
        plan = BatchPlan(None, tuple(waiting), (0, 0), ReplicaVersion(0, 0, 0), 1)
        return cast("BatchReport", SimpleNamespace(plan=plan, outcome=SimpleNamespace(stop=False)))


def micro_batches(ran: Ran, *, turn_s: float = 0) -> tuple[MicroBatches, MemoryInjector]:
    records = MemoryRecords(PARTITIONS, TOPIC.markers, [21, 11], seen_by_look=0)
    injector = MemoryInjector(records, ran.announcements.put)
    source = InjectedBarriers(
        "up",
        PARTITIONS,
        records,
        injector=cast("BarrierInjector", injector),
        announcements=ran.announcements,
        stable=lambda: (100, 100),
    )
    assert source.begin(None, (0, 0)) == []
    compactor = SimpleNamespace(
        batch_begins=lambda: None, between_batches=lambda epoch, wait_for_compaction: None
    )
    running = MicroBatches(
        source, cast("Batches", ran), cast("Compactor", compactor), lambda report: None, turn_s=turn_s
    )
    return running, injector


def test_barriers_that_are_named_during_a_batch_need_no_further_micro_batch() -> None:
    first, *later = announced(TOPIC)
    ran = Ran(Announcements(), [later])
    ran.announcements.put(first)
    running, _ = micro_batches(ran)
    running(NO_RECORDS, 0)
    assert ran.epochs == [[1], [2, 3]]


def test_barriers_that_come_later_need_none_either_while_the_micro_batch_has_its_turn() -> None:
    first, *later = announced(TOPIC)
    ran = Ran(Announcements(), [])
    running, _ = micro_batches(ran, turn_s=3_600)
    with ThreadPoolExecutor(1) as stream:
        micro_batch = stream.submit(running, NO_RECORDS, 0)
        for number, barrier in enumerate((first, *later), 1):
            ran.announcements.put(barrier)
            await_condition(lambda: len(ran.epochs) == number, f"batch {number}", limit_s=10)  # noqa: B023
        assert running.close(timeout_s=10), "it waits for the next barrier, and is woken up"
        micro_batch.result(10)
    assert ran.epochs == [[1], [2], [3]]


def test_nothing_that_is_named_is_run_once_it_is_closed() -> None:
    first, *later = announced(TOPIC)
    ran = Ran(Announcements(), [later])
    running, _ = micro_batches(ran)
    ran.while_it_runs = lambda: running.close(timeout_s=0)
    ran.announcements.put(first)
    running(NO_RECORDS, 0)
    assert ran.epochs == [[1]]


def test_a_barrier_behind_the_batch_is_asked_for_where_a_job_could_read_on() -> None:
    first, *later = announced(TOPIC)
    ran = Ran(Announcements(), [later], jobs_read=True)
    ran.announcements.put(first)
    running, injector = micro_batches(ran)
    running(NO_RECORDS, 0)
    assert ran.epochs == [[1], [2, 3]]
    assert injector.hastened == 1, "not behind the first batch: others had come while it ran"


def test_none_is_asked_for_while_others_wait_or_no_job_could_read_on() -> None:
    for jobs_read, taken_at_once, asked in ((True, 1, 1), (True, 3, 1), (False, 1, 0)):
        ran = Ran(Announcements(), [], jobs_read=jobs_read, most=taken_at_once)
        for barrier in announced(TOPIC):
            ran.announcements.put(barrier)
        running, injector = micro_batches(ran)
        running(NO_RECORDS, 0)
        assert injector.hastened == asked

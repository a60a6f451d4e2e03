"""Services that suspend their table at an invalid record, and an operator who leads them on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from schemas.errors import InputError
from schemas.records import Add, Change, Op, record_at, record_from_text
from state.journal import Journal
from state.values.last_end import LastEnd
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.redelivery import LogResets
from streaming.protocol.report import BatchReport
from streaming.service.suspension import Decisions, Suspension
from streaming.source.barriers.injecting.control_requests import (
    DropAndTryAgain,
    EndProcess,
    SuspendedAction,
    TryAgain,
)
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.listed_requests import ListedRequests
from tests.kit.upstream import Upstream
from tests.simulation.cases import Case
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import Order
from tests.simulation.histories import Verdict, draw_setting, played
from tests.simulation.instance import AskedToEndError, Instance
from tests.simulation.jobs import job_of, table_of
from tests.simulation.redelivery import crashes_of
from tests.simulation.world import Setting

VNODES = 2


class Suspending(Instance):
    """Parks nothing: each invalid record suspends the table. Its operator tries again first, then leaves it out."""

    suspension_type: type[Suspension] = Suspension
    decisions_type: type[Decisions] = Decisions

    def start(self) -> None:
        self.decisions = self.decisions_type(frozenset(), LogResets())
        self.topic = ListedRequests(self.requests)
        self.suspension = self.suspension_type(self.topic, self.process.name, lambda: self.scheduler.now_ms)
        self.ends: list[LastEnd] = []
        super().start()

    @property
    def dropped(self) -> frozenset[str]:  # type: ignore[override]  # none of the base's own
        return self.decisions.dropped

    def bad_records(self) -> BadRecords:
        """Left out are those that an operator has named."""
        return BadRecords("up", self.decisions.skip_records)

    def take_over(self, journal: Journal) -> Batches:
        """The state, whose last finished batch an end refers to."""
        self.jobs = self.decisions.still_configured(self.jobs)
        self.batches = super().take_over(journal)
        return self.batches

    def batch_done(self, report: BatchReport) -> None:
        self.decisions.batch_done(self.batches.jobs)
        super().batch_done(report)

    def ends_by(self, fault: InputError, journal: Journal) -> bool:
        """Suspend the table until a request leads on. Raises: AskedToEndError."""
        end = self.suspension.begin(journal, fault, self.batches.finished_epoch)
        self.ends.append(end)
        self.ask(end)
        while True:
            self.scheduler.step("wait for a decision", lambda: self._is_decided() or not self._is_owner())
            if not self._is_owner():
                raise journal.fenced()
            action = self.suspension.next_action()
            if isinstance(action, EndProcess):
                self.suspension.settle(journal, end)
                raise AskedToEndError from fault  # a supervisor starts another one
            if action is not None:
                self.decisions.add(action)
                return False

    def ask(self, end: LastEnd) -> None:
        """Play the operator, who sees this end: the request is in the topic before or after any crash."""
        decision = self.decision_on(end)
        choices: dict[str, SuspendedAction] = {"leaves it out": decision, "tries again": TryAgain()}
        choices |= {"ends it": EndProcess(), "drops a job": DropAndTryAgain("late")}
        names = list(choices)
        self.requests.append(
            choices[self.scheduler.outcome("the operator", *names) if end.times == 1 else names[0]]
        )

    def decision_on(self, end: LastEnd) -> SuspendedAction:
        """The request that leaves the record out."""
        self.scheduler.step("the operator looks")
        assert end.fault is not None
        record = record_at(end.fault.where)
        assert record is not None
        return TryAgain(frozenset({record_from_text(record)}))

    def _is_decided(self) -> bool:
        return self.topic.end() > self.suspension.next_offset


class TriesAgainFirst(Suspending):
    """Its operator always tries again before it decides."""

    def ask(self, end: LastEnd) -> None:
        """The first time nothing is decided."""
        if end.times == 1:
            self.requests.append(TryAgain())
        else:
            super().ask(end)


class DropsFirst(Suspending):
    """Its operator drops a job at the first fault, in vain; a barrier creates one of that name again."""

    first: SuspendedAction = DropAndTryAgain("late")

    def ask(self, end: LastEnd) -> None:
        """Every request behind the first leaves the record out."""
        self.requests.append(self.decision_on(end) if self.requests else self.first)


class EndsFirst(DropsFirst):
    """Its operator ends the process at the first fault; a supervisor starts another one."""

    first = EndProcess()


def invalid_records() -> Setting:
    """Two jobs under way; a bad record, two in one interval, and one behind them, each among valid ones.

    Before the last one there is a request to create the second job, which is refused unless it was dropped.
    """
    table = table_of(VNODES)
    jobs = {name: job_of(name, name, VNODES, rate_limit=2) for name in ("copy", "late")}
    jobs["later"] = job_of("late", "later", VNODES, rate_limit=None)
    upstream, faulty = Upstream(table, partitions=2), list[tuple[int, int]]()
    keys, changes = KeyCodec(table.key_columns), ChangeCodec(table.columns)

    def spoil(partition: int, value: bytes) -> None:
        upstream.topic.append(partition, keys.encode((2,)), value)
        faulty.append((partition, upstream.topic.partitions[partition][-1].offset))

    for key in range(6):
        upstream.put((key, 0))
    upstream.barrier(Add(jobs["copy"].to_json()))
    upstream.barrier(Add(jobs["late"].to_json()))
    spoil(0, b"?")
    upstream.put((1, 1))
    upstream.barrier()
    spoil(1, b"")
    upstream.put((2, 1))
    spoil(0, changes.encode(Change(Op.INSERT, None, (3, 1))))
    upstream.barrier()
    upstream.delete(1)
    upstream.barrier(Add(jobs["later"].to_json()))
    upstream.barrier()
    spoil(1, b"?")
    upstream.barrier()
    for _ in range(3):
        upstream.barrier()
    changelog = Changelog(upstream, frozenset(faulty))
    return Setting(table, changelog, (), jobs, lanes=(2,), compactions=False, closing=3, parks=False)


def suspensions(order: Order, instance_type: type[Suspending] = Suspending) -> Iterator[Case]:
    """A job that is suspended again and again, by each operator: without a crash, then with one before each step."""
    operators = [instance_type]
    operators += [
        type(by.__name__, (by, instance_type), {}) for by in (TriesAgainFirst, DropsFirst, EndsFirst)
    ]
    cases = [_crashes(order, operator) for operator in operators]
    yield from map(next, cases)
    yield from chain.from_iterable(cases)


def _crashes(order: Order, operator: type[Suspending]) -> Iterator[Case]:
    for case in crashes_of(invalid_records(), order, operator):
        yield Case(f"{operator.__name__}, {case.where}", case.play)


def play_suspended(seed: int, instance_type: type[Suspending] = Suspending) -> Verdict:
    """A random history whose invalid records suspend the table."""
    rng = random.Random(f"suspended {seed}")
    return played(replace(draw_setting(rng), parks=False), rng, seed, instance_type)

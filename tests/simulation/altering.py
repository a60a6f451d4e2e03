"""Records that get a further field, services that wait at the first one, and an operator who makes it a column.

In some tables another column gets a wider type with it; in some the field was ignored, and what earlier records have of
it stays unread. The file of every service is behind for good: it has the table
of before. In the changelog, which the judge goes by, all rows have the column, with its fill where their records lack
it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache

import pyarrow as pa

from schemas.errors import Code, InputError
from schemas.job import JobDefinition
from schemas.kinds.columns import new_field_text
from schemas.kinds.table_changes import AddColumn, TableChange, WidenColumn, altered, changes_text, widened
from schemas.records import Add, Alter, Throttle
from schemas.table import TableSchema
from state.columns import OFFSET, OP, PARTITION
from state.journal import Journal
from state.values.bound_table import BoundTable
from state.values.last_end import LastEnd
from streaming.control.known_table import changes_of
from streaming.lane.task import LaneTask
from streaming.protocol.batches import Batches
from streaming.protocol.report import BatchReport
from streaming.source import decoded as columns
from streaming.source.barriers.injecting.control_requests import AlterAndTryAgain, SuspendedAction
from streaming.source.decoded import AFTER, BEFORE, ERROR
from tests.kit.upstream import Upstream
from tests.simulation.cases import Case
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import Order
from tests.simulation.histories import PERIOD_SHARE_MS, Verdict, played
from tests.simulation.jobs import job_of, table_of
from tests.simulation.redelivery import crashes_of
from tests.simulation.suspending import EndsFirst, Suspending, TriesAgainFirst
from tests.simulation.world import Setting

VNODES = 2
FILL = 7
_COLUMN = {"type": "int", "fill": FILL}
_ADDED, _WIDENED = AddColumn("c", json.dumps(_COLUMN)), WidenColumn("n", "bigint")
_ACCEPTED = replace(_ADDED, accepts_missing=True)
_FAR = 2**40
"""Beyond the narrow type."""
SENDS = None, "upsert", None, "debezium", None
"""Forms of the job of before; with None it keeps its columns."""
Place = tuple[int, int]


def narrowed(table: TableSchema) -> TableSchema:
    """The table of before."""
    return table_of(VNODES) if table == WIDER else replace(table, columns=table.columns[:-1])


def grown(table: TableSchema) -> TableSchema:
    """The table with the further column `c`."""
    return altered(table, [_ADDED])


def changes_to(table: TableSchema) -> tuple[TableChange, ...]:
    """The changes of the table of before."""
    return (_ADDED, _WIDENED) if widened(narrowed(table), table) else (_ADDED,)


WIDE = grown(table_of(VNODES))
WIDER = altered(table_of(VNODES), [_ADDED, _WIDENED])
"""With another type as well, for outputs that can have it."""


class GrowingChangelog(Changelog):
    """The records at these places have the field; to a reader of the first table each is a fault.

    `ignored` is what it has in those that come before the column: then it is no fault, and none of it counts.
    """

    def __init__(
        self, upstream: Upstream, with_c: frozenset[Place], ignored: Mapping[Place, int | None] | None = None
    ) -> None:
        super().__init__(upstream)
        self.with_c, self.ignored = with_c, ignored

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        rows = super().lane_rows(task, lane)
        schema = columns.decoded_schema(task.table)
        return pa.RecordBatch.from_pylist(
            [self.read_by(task.read_table, row) for row in rows.to_pylist()], schema=schema
        )

    def read_by(self, table: TableSchema, row: dict[str, object]) -> dict[str, object]:
        """A row as it is decoded for a table."""
        if "c" in table.by_name or row[OP] is None:
            return row if self.ignored is None else self._unless_ignored(self.ignored, table, row)
        if self.ignored is not None:
            return {**row, **{half: _narrow(row[half]) for half in (BEFORE, AFTER)}}
        place = row[PARTITION], row[OFFSET]
        numbers = [half.get("n") for half in (row[BEFORE], row[AFTER]) if isinstance(half, dict)]
        if place in self.with_c or any(n is not None and n >= _FAR for n in numbers):
            found = {"code": Code.SCHEMA_WAITS, "found": new_field_text("c"), "expected": "no such field"}
            return {**row, OP: None, BEFORE: None, AFTER: None, ERROR: found}
        return {**row, **{half: _narrow(row[half]) for half in (BEFORE, AFTER)}}

    def _unless_ignored(
        self, ignored: Mapping[Place, int | None], table: TableSchema, row: dict[str, object]
    ) -> dict[str, object]:
        """A row, with what its record has of the column if that is read by its name."""
        after, place = row[AFTER], (row[PARTITION], row[OFFSET])
        is_read = table.by_name.get("c") == WIDE.by_name["c"]
        found = [c for other, c in ignored.items() if other == place]
        return (
            {**row, AFTER: {**after, "c": found[0]}} if is_read and found and isinstance(after, dict) else row
        )


def _narrow(half: object) -> object:
    return {name: value for name, value in half.items() if name != "c"} if isinstance(half, dict) else half


class Altering(Suspending):
    """Its operator makes the field a column, by a request that may come before or after any crash."""

    ignored: Collection[str] | None = ()

    def start(self) -> None:
        self.changes = self.wanted_changes()
        self.file_table = self.table = narrowed(self.table)
        self.version = BoundTable.first(self.table, self.ignored)
        super().start()

    def wanted_changes(self) -> tuple[TableChange, ...]:
        """The changes that make the first table the one of the setting."""
        return changes_to(self.table)

    def take_over(self, journal: Journal) -> Batches:
        """With the table that the state has, and what was asked for since."""
        known = journal.current
        if known is not None:
            self.version = BoundTable.from_binding(known.table)
        version = self.version.declared(self.file_table, self.ignored, state="s")
        plan = None if known is None else known.plan
        asked = () if plan is None else tuple(changes for _, changes in changes_of(plan))
        for changes in (*asked, self.decisions.changes):
            version = version.altered(changes, state="s", epoch=0 if plan is None else plan.epoch)
        self.version, self.table = version, version.table
        return super().take_over(journal)

    def batch_done(self, report: BatchReport) -> None:
        super().batch_done(report)
        if self.version.altered(report.outcome.changes, state="s") != self.version:
            raise InputError(Code.SCHEMA_CHANGED, found="a table that is altered")

    def ends_by(self, fault: InputError, journal: Journal) -> bool:
        """A barrier that alters the table ends one run, and suspends nothing."""
        return False if fault.code is Code.SCHEMA_CHANGED else super().ends_by(fault, journal)

    def bound(self) -> str:
        return json.dumps(self.version.to_dict())

    def decision_on(self, end: LastEnd) -> SuspendedAction:
        """The request that adds the column."""
        self.scheduler.step("the operator looks")
        assert end.fault is not None
        assert end.fault.code is Code.SCHEMA_WAITS
        return AlterAndTryAgain(self.changes)


class Ignoring(Altering):
    """Ignores all fields that are no columns, until a barrier asks for one."""

    ignored = None

    def wanted_changes(self) -> tuple[TableChange, ...]:
        return (_ACCEPTED,)


class AddsItself(Altering):
    """Takes the field as a column without being asked, as by the schema of its record."""

    def ends_by(self, fault: InputError, journal: Journal) -> bool:
        if fault.code is not Code.SCHEMA_WAITS:
            return super().ends_by(fault, journal)
        self.scheduler.step("look at the record")
        self.decisions.changes += self.changes
        return False


def wide_job(name: str, rate_limit: int | None, **more: str) -> JobDefinition:
    """A job with all columns, of which a service with the first table knows nothing."""
    declared = {"name": name, "output": name, "output_partitions": 2, "rate_limit": rate_limit}
    return JobDefinition.declare({**declared, **more}, WIDE)


@cache
def growing(
    seed: int = 0, *, is_asked: bool = False, sends: str | None = None, is_ignored: bool = False
) -> Setting:
    """A job of before that is under way; the field comes to one partition first, and some records never have it.

    Then comes a job with all columns, which also reads rows that no record came for since. `seed` decides about keys,
    values, and where the field is. `is_asked`: a barrier asks for the column, before the first record that has it.
    `sends`: the form of the job of before, if its output gets the column, and another one a wider type. `is_ignored`:
    records had the field before, which was ignored.
    """
    table = WIDE if sends is None or is_ignored else WIDER
    chance = random.Random(f"growing {seed}")
    jobs = {"copy": job_of("copy", "copy", VNODES, rate_limit=2), "late": wide_job("late", 2)}
    upstream, with_c, ignored = Upstream(table, partitions=2), set[Place](), dict[Place, int | None]()
    if sends is not None:
        jobs["copy"] = wide_job("copy", 2, format=sends, new_columns="send")
        if sends == "debezium":
            upstream.every_ms = PERIOD_SHARE_MS  # of the others no barrier is full

    def put(key: int, n: int, *, lacks: bool, unread: bool = False) -> None:
        before = [len(each) for each in upstream.topic.partitions]
        far = chance.choice([0, _FAR]) if table == WIDER and not lacks else 0
        c = FILL if lacks else chance.choice([None, FILL, n])
        upstream.put((key, n + far, FILL if unread else c))
        [number] = [p for p, each in enumerate(upstream.topic.partitions) if len(each) > before[p]]
        place = number, upstream.topic.partitions[number][-1].offset
        if unread:
            ignored[place] = c
        if not lacks:
            with_c.add(place)

    for key in range(6):
        put(key, 0, lacks=not is_ignored, unread=is_ignored)
    upstream.barrier(Add(jobs["copy"].to_json()))
    wanted = (_ACCEPTED,) if is_ignored else changes_to(table)
    for epoch in range(1, 6):
        for key in chance.sample(range(8), 3):
            unread = is_ignored and epoch < 2
            put(key, epoch, lacks=not unread and (epoch < 2 or chance.random() < 0.4), unread=unread)
        if epoch == 2:
            put(chance.randrange(6), 9, lacks=False)
        asks = Alter(changes_text(wanted)) if is_asked and epoch == 1 else None
        upstream.barrier(Add(jobs["late"].to_json()) if epoch == 3 else asks)
    closing = (Throttle("late", None), Throttle("copy", None), None)
    for last in closing:
        upstream.barrier(last)
    changelog = GrowingChangelog(upstream, frozenset(with_c), ignored if is_ignored else None)
    if is_ignored:
        asked = changelog.barriers[0][1].barrier
        assert asked is not None
        version = BoundTable.first(narrowed(table), None).altered(wanted, state="s", epoch=asked.curr)
        table = changelog.table = version.table
    # A compaction of the simulation takes the rows of the changelog, and would hide what the log has.
    compacts = not is_ignored
    return Setting(table, changelog, (), jobs, lanes=(2,), compactions=compacts, closing=3, parks=False)


def play_growing(seed: int, instance_type: type[Altering] = Altering) -> Verdict:
    """A random history of a table that grows; of every second one by itself."""
    operator = type("AddsItself", (AddsItself, instance_type), {}) if seed % 2 else instance_type
    setting = growing(seed, is_asked=seed % 3 == 0, sends=SENDS[seed % len(SENDS)])
    return played(setting, random.Random(f"growing {seed}"), seed, operator)


def alterations(order: Order, instance_type: type[Altering] = Altering) -> Iterator[Case]:
    """Each operator, without a crash and with one before each step."""
    for by in (None, TriesAgainFirst, EndsFirst, AddsItself):
        operator = instance_type if by is None else type(by.__name__, (by, instance_type), {})
        for case in crashes_of(growing(), order, operator):
            yield Case(f"{operator.__name__}, {case.where}", case.play)
    for case in crashes_of(growing(is_asked=True), order, instance_type):
        yield Case(f"asked by a barrier, {case.where}", case.play)
    yield from sent_on(order, instance_type)
    yield from accepted(order, type("Ignoring", (Ignoring, instance_type), {}))


def accepted(order: Order, instance_type: type[Altering] = Ignoring) -> Iterator[Case]:
    """Crashes around a barrier that asks for a column which was ignored before."""
    for form in (None, "upsert"):
        for case in crashes_of(growing(6, is_asked=True, sends=form, is_ignored=True), order, instance_type):
            yield Case(f"ignored before, {form or 'kept'}, {case.where}", case.play)


def sent_on(order: Order, instance_type: type[Altering] = Altering) -> Iterator[Case]:
    """Crashes around the switch, of outputs that get the column."""
    operator = type("AddsItself", (AddsItself, instance_type), {})
    for form in filter(None, SENDS):
        for is_asked in (False, True):
            by = instance_type if is_asked else operator
            for case in crashes_of(growing(1, is_asked=is_asked, sends=form), order, by):
                asked = "asked by a barrier" if is_asked else "by itself"
                yield Case(f"{form} gets it, {asked}, {case.where}", case.play)

"""Canaries: the protocol with one thing broken each. A simulation that finds nothing in them finds nothing at all.

They are broken from outside, by another list of effects, or by a part in the place of the service's own; nothing in the
service knows of them. Steps are those of the order of effects (`streaming.protocol.effects`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path

from state.journal import Journal
from streaming.protocol.batches import Batches
from streaming.protocol.recovery.forward import Forward
from tests.simulation import broken_alterations as altered
from tests.simulation import broken_barriers as barriers
from tests.simulation import broken_disk as disk
from tests.simulation import broken_driver as driver
from tests.simulation import broken_extents as extents
from tests.simulation import broken_forward as ahead
from tests.simulation import broken_lanes as lanes
from tests.simulation import broken_partitions as partitions
from tests.simulation import broken_plans as plans
from tests.simulation import broken_reading as reading
from tests.simulation import broken_rescales as rescales
from tests.simulation import broken_scan as scan
from tests.simulation import broken_suspensions as suspended
from tests.simulation.altering import Altering, alterations, growing
from tests.simulation.broker import Broker
from tests.simulation.cases import Case
from tests.simulation.crashes import ORDERS, jobs_that_begin_or_end, play_on, twelve_epochs
from tests.simulation.from_database import quiet_reading, small_reading
from tests.simulation.gaining import gaining
from tests.simulation.histories import play, play_from_database, play_rows_behind
from tests.simulation.instance import Instance
from tests.simulation.power import power_failures
from tests.simulation.redelivery import crashes_of, redeliveries
from tests.simulation.rescaled import rescaled
from tests.simulation.restores import jobs_that_come_and_go, mixtures, restores
from tests.simulation.rows import SimulatedStore
from tests.simulation.storage import MemoryStorage
from tests.simulation.suspending import Suspending, invalid_records, suspensions
from tests.simulation.table_reader import TableReader
from tests.simulation.too_long import long_rows
from tests.simulation.world import Durable, Setting

WITHIN_SEEDS = 1_000
DEATHS = Path(__file__).with_name("deaths.json")
"""Of each canary, a history that shows it, for tests. `make simulate DEATHS=1` looks for those that show it no more."""


@dataclass(frozen=True)
class Canary:
    """A protocol with one thing broken, in words and as a type."""

    step: str
    broken: str
    instance_type: type[Instance]
    power: bool = False
    """Looked for among all power failures of a job."""
    restored: bool = False
    """Looked for among older states that are restored."""
    reading: bool = False
    """Looked for where a table is read from its database."""
    behind: bool = False
    """Looked for where lanes' rows fall behind."""
    crashes_of: Callable[[], Setting] | None = None
    """Looked for among all crashes of this setting, in which it may die of none; with `restored` its older states."""

    def __str__(self) -> str:
        return self.broken

    def passes_without_faults(self) -> list[str]:
        """The faults of a run without incidents: none, or the canary would be dead from the start."""
        setting = quiet_reading() if self.reading else twelve_epochs()
        setting = invalid_records() if issubclass(self.instance_type, Suspending) else setting
        setting = growing() if issubclass(self.instance_type, Altering) else setting
        beginning = Durable.beginning(setting)
        return play_on(setting, ORDERS[0], beginning, instance_type=self.instance_type)[1]

    def dies_first(self) -> tuple[str, str] | None:
        """The first history that shows it, and what is wrong there; None if it lives."""
        return next(((case.where, wrong[0]) for case in self._cases() if (wrong := case.play())), None)

    def dies_as_known(self) -> str | None:
        """The history of `DEATHS`, if it shows it. To look for another one takes minutes, so no test does it."""
        known = _deaths().get(str(self))
        found = next((case for case in self._cases() if case.where == known), None)
        return known if found and found.play() else None

    def _cases(self) -> Iterator[Case]:
        if self.restored:
            setting = (self.crashes_of or jobs_that_come_and_go)()
            return chain(
                mixtures(setting, ORDERS[0], self.instance_type),
                restores(setting, ORDERS[0], self.instance_type),
            )
        if self.power:
            setting = small_reading() if self.reading else twelve_epochs()
            return power_failures(setting, ORDERS[0], self.instance_type)
        if self.crashes_of is not None:
            return crashes_of(self.crashes_of(), ORDERS[0], self.instance_type)
        if issubclass(self.instance_type, Altering):
            return alterations(ORDERS[0], self.instance_type)
        if issubclass(self.instance_type, Suspending):
            return suspensions(ORDERS[0], self.instance_type)
        return self._seeds()

    def _seeds(self) -> Iterator[Case]:
        kind = " from a database" if self.reading else " of rows behind" if self.behind else ""
        seeds = range(WITHIN_SEEDS * (2 if self.behind else 1))  # few of them have all that it takes
        return (Case(f"seed {seed}{kind}", partial(self._play, seed)) for seed in seeds)

    def _play(self, seed: int) -> list[str]:
        played = play_from_database if self.reading else play_rows_behind if self.behind else play
        return played(seed, self.instance_type).violations


@cache
def _deaths() -> dict[str, str]:
    known: dict[str, str] = json.loads(DEATHS.read_text(encoding="utf-8"))
    return known


def _breaking(
    *,
    broker: type[Broker] = Broker,
    storage: type[MemoryStorage] = MemoryStorage,
    journal: type[Journal] = Journal,
    batches: type[Batches] = Batches,
    forward: type[Forward] = Forward,
    store: type[SimulatedStore] = SimulatedStore,
    reader: type[TableReader] = TableReader,
) -> type[Instance]:
    parts = {
        "broker_type": broker,
        "storage_type": storage,
        "journal_type": journal,
        "batches_type": batches,
        "forward_type": forward,
        "store_type": store,
        "reader_type": reader,
    }
    return type("Broken", (Instance,), parts)


def _suspending(**parts: type) -> type[Suspending]:
    return type("Suspending", (Suspending,), parts)


_SUSPENDED: dict[str, type[Suspending]] = {
    "a decision is not in the journal": _suspending(batches_type=suspended.KeepsDecisionsInMemory),
    "a decision holds for further records": suspended.LeavesOutAll,
    "a job is dropped again": _suspending(decisions_type=suspended.DropsAgain),
    "requests that were acted on are found again": _suspending(
        suspension_type=suspended.ReadsFromTheBeginning
    ),
    "a repeated fault is counted anew": _suspending(suspension_type=suspended.CountsAnew),
    "an end that was asked for is found again": _suspending(suspension_type=suspended.EndsAgain),
}

_ALTERED: dict[str, type[Altering]] = {
    "rows have the fill by when they were read": altered.FillsByTheSwitch,
    "a version of the table is not in the journal": altered.KeepsTheVersionInMemory,
    "Delta's schema is changed by a request alone": altered.AltersDeltaOnce,
}

_READING: dict[str, type[Instance]] = {
    "LSNs are compared": reading.ComparesLsns,
    "events of unread keys are dropped": reading.DropsWhatIsUnread,
    "a chunk is released at the next barrier": _breaking(reader=reading.ReleasesAtOnce),
    "a chunk is released a barrier early": _breaking(reader=reading.ReleasesEarly),
    "the topic is asked before the slot": _breaking(reader=reading.AsksTheTopicFirst),
    "the log is asked before the snapshot": _breaking(reader=reading.AsksForTheLogEarly),
    "files of an instance before are taken": _breaking(reader=reading.TakesFilesOfOthers),
    "jobs read behind what is released": _breaking(batches=reading.ReadsBehindWhatIsReleased),
    "what waits is kept behind the progress": _breaking(batches=reading.WaitingBehindProgress),
    "what goes on waiting is not written anew": _breaking(batches=reading.WritesNothingAnew),
    "what waited stays behind a release": _breaking(batches=reading.WritesOnTop),
}

CANARIES = (
    Canary("1 plan", "the plan is written behind the lanes", _breaking(batches=driver.WritesPlanLate)),
    Canary("1 plan", "what is half done gets a new plan", _breaking(batches=driver.PlansAnew)),
    Canary("1 plan", "slices are given up that were sent", _breaking(batches=plans.GivesUpSentPlans)),
    Canary("1 plan", "slices are read from the newest replica", _breaking(batches=driver.ReadsNewest)),
    Canary("1 plan", "a position covers its own offset", _breaking(batches=driver.SendsOneRecordMore)),
    Canary("1 plan", "slices go by hash, changes by partition", _breaking(batches=scan.ReadsByHash)),
    Canary("1 plan", "the journal is written over a rival's", _breaking(storage=driver.BlindJournal)),
    Canary("1 plan", "an end beside the data is taken for an offset", barriers.TakesEndsForOffsets),
    Canary("2 lanes", "a producer is used again", _breaking(broker=lanes.KeepsProducers)),
    Canary("2 lanes", "rows do not follow the log", _breaking(store=lanes.FollowsNothing)),
    Canary("2 lanes", "rows follow whole files", _breaking(batches=lanes.FollowsWholeFiles), behind=True),
    Canary("2 lanes", "the looks come before init", _breaking(broker=lanes.InitsBehindLooks)),
    Canary("2 lanes", "a successor is not looked for", _breaking(storage=lanes.SeesNoSuccessor)),
    Canary("2 lanes", "the tails are not looked at", _breaking(broker=lanes.LooksAtNoTail)),
    Canary("2 lanes", "known ends are believed", _breaking(broker=lanes.BelievesKnownEnds)),
    Canary("2 lanes", "the tails are read uncommitted", _breaking(broker=lanes.LooksAtUncommitted)),
    Canary("2 lanes", "an unknown outcome counts as done", _breaking(broker=lanes.TakesUnknownForDone)),
    Canary("2 lanes", "a batch is two transactions", _breaking(broker=lanes.CommitsHalves)),
    Canary("2 lanes", "a barrier beside comes apart", _breaking(broker=lanes.CommitsBarriersApart)),
    Canary("2 lanes", "a full barrier lacks a vnode", barriers.SendsPartlyFullBarriers),
    Canary("2 lanes", "an end is from before the data", _breaking(broker=lanes.EndsBeforeTheData)),
    Canary("2 lanes", "a moved key's DELETE comes second", _breaking(broker=lanes.InsertsMovedKeysFirst)),
    Canary("2 lanes", "a fault keeps what was sent before it", _breaking(broker=lanes.CommitsFaultyParts)),
    Canary("3 replicate", "a part is appended again", _breaking(batches=driver.AppendsPartsAgain)),
    Canary(
        "3 replicate",
        "a restart builds from the beginning",
        _breaking(batches=driver.BuildsFromTheBeginning),
    ),
    Canary("3 replicate", "the log is not bound to its epoch", _breaking(batches=driver.UnboundLog)),
    Canary("3 replicate", "the log is written over a rival's", _breaking(storage=driver.BlindLog)),
    Canary("4 progress", "a batch is marked done before its lanes", _breaking(batches=driver.MarksFirst)),
    Canary("4 progress", "progress comes before the log", _breaking(batches=driver.ProgressBeforeLog)),
    Canary(
        "4 progress",
        "a batch that reads is done with its log",
        _breaking(batches=driver.ReadsAndIsDoneWithItsLog),
    ),
    Canary(
        "4 progress", "older progress is left", _breaking(batches=driver.LeavesProgressBehind), restored=True
    ),
    Canary("4 progress", "progress is not bound to its barrier", _breaking(batches=driver.ProgressTwice)),
    Canary("4 progress", "progress is written over a rival's", _breaking(storage=driver.BlindProgress)),
    Canary("5 mutations", "barriers to come are deleted", barriers.DeletesBarriersThatAreToCome),
    Canary("5 mutations", "a restart forgets them", _breaking(batches=driver.ForgetsMutations)),
    Canary("5 mutations", "a paused job reads after a hand-over", _breaking(batches=driver.ForgetsPauses)),
    Canary("5 mutations", "a start that pauses all reads", _breaking(batches=driver.ReadsThoughPaused)),
    Canary(
        "1 plan",
        "a job that begins now sends rows from before",
        _breaking(batches=extents.SendsRowsFromBefore),
    ),
    Canary("5 mutations", "a job that has ended goes on", _breaking(batches=extents.NeverEnds)),
    Canary(
        "5 mutations", "a restart goes on with what has ended", _breaking(batches=extents.SendsBehindTheEnd)
    ),
    Canary(
        "forward",
        "an output that has ended counts as behind",
        _breaking(forward=extents.CountsEnded),
        restored=True,
        crashes_of=jobs_that_begin_or_end,
    ),
    Canary("take over", "the journal keeps its owner", _breaking(journal=driver.TakesNothingOver)),
    Canary(
        "take over",
        "a lost answer is taken for a successor",
        _breaking(batches=driver.TakesConflictForSuccessor),
    ),
    *(
        Canary("3 replicate", broken, _breaking(batches=how), crashes_of=redeliveries)
        for broken, how in {
            "marks are not committed": driver.CommitsNoMarks,
            "marks are committed a batch late": driver.CommitsMarksLate,
            "a restart reads the last batch": driver.ReadsDoneBatches,
        }.items()
    ),
    Canary(
        "2 lanes",
        "records are not measured",
        _breaking(batches=plans.MeasuresNothing),
        crashes_of=long_rows,
    ),
    Canary(
        "1 plan",
        "a row that is too long takes slices that were sent",
        _breaking(batches=plans.GivesUpSentSlices),
        crashes_of=long_rows,
    ),
    *(
        Canary("5 mutations", broken, _breaking(batches=how), crashes_of=rescaled)
        for broken, how in {
            "a lane keeps vnodes that it gave away": rescales.KeepsVnodes,
            "what is half done is finished by other lanes": rescales.FinishesByOthers,
            "a restart takes the lanes of the file": rescales.ForgetsLanes,
        }.items()
    ),
    Canary("power", "the journal is not synced", _breaking(storage=disk.UnsyncedJournal), power=True),
    Canary("power", "the log is not synced", _breaking(storage=disk.UnsyncedLog), power=True),
    Canary("power", "files of the log are not synced", _breaking(storage=disk.UnsyncedLogFiles), power=True),
    Canary("power", "progress is not synced", _breaking(storage=disk.UnsyncedProgress), power=True),
    Canary("power", "the base is not synced", _breaking(storage=disk.UnsyncedBase), power=True),
    Canary("power", "nothing waits for its sync", _breaking(storage=disk.NeverWaits), power=True),
    Canary("power", "a torn commit stays", _breaking(storage=disk.LeavesTornCommits), power=True),
    *(
        Canary("partitions", broken, _breaking(batches=how), crashes_of=partial(gaining, 2, 4))
        for broken, how in {
            "a partition is read from its first barrier on": partitions.LeavesOutFirst,
            "a key's partitions are taken by their numbers": partitions.TakesByPartition,
            "a restart forgets that keys may move": partitions.ForgetsMoves,
        }.items()
    ),
    *(Canary("reading", broken, how, reading=True) for broken, how in _READING.items()),
    *(Canary("suspended", broken, how) for broken, how in _SUSPENDED.items()),
    *(Canary("altered", broken, how) for broken, how in _ALTERED.items()),
    *(
        Canary("altered", broken, how, crashes_of=partial(growing, 1, sends="upsert"))
        for broken, how in {
            "new columns are announced by one batch": altered.TellsInOneBatch,
            "a job gets columns at the next start": altered.GrowsAtTheNextStart,
        }.items()
    ),
    Canary(
        "altered",
        "records that are read again have what was ignored",
        altered.ReadsWhatWasIgnored,
        crashes_of=partial(growing, 6, is_asked=True, is_ignored=True),
    ),
    Canary(
        "power", "chunks are not synced", _breaking(storage=reading.UnsyncedChunks), power=True, reading=True
    ),
    *(
        Canary("forward", broken, _breaking(forward=how), restored=True)
        for broken, how in {
            "outputs that are ahead are not noticed": ahead.GoesOnRegardless,
            "positions are those of the barrier before": ahead.TakesPositionsEarly,
            "slices that some lanes have sent are not counted": ahead.ReadsNoSlices,
            "lanes are grouped as ever": ahead.GroupsLanesAsEver,
            "the last batch is taken for sent by all": ahead.SendsAllSilently,
            "an added job starts at once": ahead.StartsJobsAtOnce,
        }.items()
    ),
    Canary(
        "forward",
        "lost mutations are forgotten",
        _breaking(batches=ahead.ForgetsLostMutations),
        restored=True,
    ),
    Canary(
        "forward",
        "it sends while it replicates",
        _breaking(batches=ahead.SendsWhileReplicating),
        restored=True,
    ),
)

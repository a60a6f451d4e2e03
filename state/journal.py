"""The journal, which makes a batch exactly once: the plan of the open batch, and who owns the state.

A Delta table of exactly one row. Each entry replaces the one before in one conditional commit, so the table
never has more than one row, and the version number is a fence: the instance that commits the next version owns the
state, and all others can see that by checking for one file (`is_superseded`).

    owner    text that names the instance (host, process, start time), for the message of the one that was fenced
    lanes    how many transactional ids may be in use, those of the plan and of the one before, which a successor fences
    plan     the JSON of the last plan written; its batch may or may not have been done

The note of the newest commit is the last end of an owner (`state.values.last_end`); the first one brings it, and each
later commit repeats it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from schemas.errors import BackfillError, Code, CommitConflict, ConfigError, Fenced
from schemas.table import KEYS, TableSchema, declare
from state.ledger import Ledger
from state.storage import Storage, corrupt
from state.values.last_end import LastEnd
from state.values.plan import BatchPlan

PATH = "journal"
_ATTEMPTS = 10
"""To take over from an owner that goes on: it writes one plan a batch, a try takes some milliseconds."""
_SCHEMA = pa.schema(
    [("owner", pa.string()), ("lanes", pa.int32()), ("table", pa.string()), ("plan", pa.string())]
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The one row of the journal."""

    owner: str
    lanes: int
    table: str
    plan: BatchPlan | None


class Journal:
    """The handle of an owner, or of who becomes one: `take_over` comes before `write_plan`."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self._ledger = Ledger(storage, PATH, _SCHEMA)
        self._table = table
        self._current = self._read()
        self._committing = threading.RLock()
        """Held from a commit until its version is known, for `is_superseded` would mistake it for another owner's."""

    @property
    def version(self) -> int:
        """The version that this instance wrote or read last."""
        return self._ledger.version

    @property
    def current(self) -> Entry | None:
        """The entry that this instance wrote or read last; None for a new state."""
        return self._current

    @property
    def last_end(self) -> LastEnd | None:
        """The last end of an owner, as of the version seen; it counts until the next batch (`LastEnd.counts`)."""
        note = self._ledger.note
        return None if note is None else LastEnd.from_json(note)

    def end_since(self, epoch: int) -> LastEnd | None:
        """The last end, None if a batch was finished behind it; `epoch` is that of the last finished one."""
        end = self.last_end
        return end if end is not None and end.counts(epoch) else None

    def plan_with(self, epoch: int) -> BatchPlan | None:
        """The plan that holds the barrier `epoch`, searched from the newest entry back; None if there is none.

        Old entries are cleaned away: a barrier of some minutes ago may not be found.
        """
        for version in range(self.version, -1, -1):
            try:
                entry = self._read(version)
            except DeltaError:
                return None
            plan = None if entry is None else entry.plan
            if plan is None or plan.epoch < epoch:
                return None
            if any(barrier.epoch == epoch for barrier in plan.barriers):
                return plan
        return None

    def plans_after(self, epoch: int, upto: int) -> list[BatchPlan]:
        """The plans that lead from barrier `epoch` to `upto`, oldest first.

        Raises: StateError(STATE_TABLE_CORRUPT) when entries of them are gone.
        """
        plans: list[BatchPlan] = []
        for version in range(self.version, -1, -1):
            plan = self._plan_at(version)
            if plan is None:
                break
            if plan.epoch > upto or (
                plans and (plan.epoch, plan.until) == (plans[-1].epoch, plans[-1].until)
            ):
                continue
            if plan.epoch <= epoch:
                break
            plans.append(plan)
        plans.reverse()
        if not plans or (plans[0].start.epoch if plans[0].start else 0) != epoch:
            where = self._ledger.storage.uri(PATH)
            raise corrupt(where, f"no plans that lead from barrier {epoch}, where the log ends, to {upto}")
        return plans

    def _plan_at(self, version: int) -> BatchPlan | None:
        try:
            entry = self._read(version)
        except (BackfillError, DeltaError):  # cleaned since
            return None
        return None if entry is None else entry.plan

    def _read(self, version: int | None = None) -> Entry | None:
        """The entry of a version, by default the one seen."""
        rows = self._ledger.read(self._ledger.files(version=version)).to_pylist()
        if not rows:
            return None
        if len(rows) != 1:
            raise corrupt(self._ledger.storage.uri(PATH), f"{len(rows)} rows in the journal, not one")
        row = rows[0]
        plan = None if row["plan"] is None else self._plan(row["plan"], row["table"])
        return Entry(row["owner"], row["lanes"], row["table"], plan)

    def _plan(self, text: str, bound: str) -> BatchPlan:
        try:
            return BatchPlan.from_json(text, self._table)
        except ConfigError:  # a job of the state has columns that this table has not
            declared = {key: value for key, value in json.loads(bound).items() if key in KEYS}
            return BatchPlan.from_json(text, declare(declared, has_key=None))

    def take_over(
        self, owner: str, table_json: str, adapted: Callable[[BatchPlan], BatchPlan] = lambda plan: plan
    ) -> Entry | None:
        """Become the owner. Returns the entry of the owner before, whose transactional ids are to be fenced next.

        `adapted` gives the plan, which may be half done, for the table of from now on.

        An owner that is alive may write plans meanwhile; each is taken over in its turn, up to ten times.
        Raises: Fenced when another instance took over at the same moment; CommitConflict when the owner keeps writing,
        or has altered its table.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self._current
            try:
                lanes, plan = (0, None) if before is None else (before.lanes, before.plan)
                self._write(Entry(owner, lanes, table_json, None if plan is None else adapted(plan)))
            except CommitConflict as conflict:
                self._ledger.reload()
                self._current = self._read()
                if self._current is None or before is None or self._current.owner != before.owner:
                    raise self.fenced() from conflict
                # An owner that has altered its table has one that `table_json` may be behind.
                if attempt == _ATTEMPTS or self._current.table != before.table:
                    raise
            else:
                return before
        raise AssertionError("the last attempt returned or raised")

    def write_plan(self, plan: BatchPlan) -> None:
        """Write the plan of the next batch, before its first effect.

        Raises: Fenced when another instance took the state over since.
        """
        assert self._current is not None, "take_over comes first"
        before = self._current.plan
        lanes = 0 if before is None else before.lanes
        if before is not None and before.epoch == plan.epoch:  # it takes the place of that one
            lanes = self._current.lanes
        try:
            self._write(replace(self._current, lanes=max(lanes, plan.lanes), plan=plan))
        except CommitConflict as conflict:
            raise self.fenced() from conflict

    def write_end(self, end: LastEnd) -> None:
        """Write how this owner ended. Raises: Fenced when another instance took the state over since."""
        assert self._current is not None, "take_over comes first"
        try:
            self._write(self._current, note=end.to_json())
        except CommitConflict as conflict:
            raise self.fenced() from conflict

    @property
    def is_superseded(self) -> bool:
        """True once another instance has taken the state over. For any thread; waits for a commit under way."""
        with self._committing:
            return is_superseded(self._ledger.storage, self.version)

    def successor(self) -> str | None:
        """The owner that took the state over from this one, None as long as there is none."""
        if not self.is_superseded:
            return None
        entry = Journal(self._ledger.storage, self._table).current  # as `fenced`
        return None if entry is None else entry.owner

    def fenced(self) -> Fenced:
        """The error to stop with, naming the new owner as far as it can be read."""
        # A second handle: this one stays at the version it saw, and so superseded.
        entry = Journal(self._ledger.storage, self._table).current
        return Fenced(
            Code.FENCED, found=f"the state is owned by {entry.owner if entry else 'another instance'}"
        )

    def _write(self, entry: Entry, *, note: str | None = None) -> None:
        plan = None if entry.plan is None else entry.plan.to_json()
        row = pa.table([[entry.owner], [entry.lanes], [entry.table], [plan]], schema=_SCHEMA)
        file = self._ledger.storage.write_parquet(PATH, row, stem="entry")
        epoch = entry.plan.epoch if entry.plan else None
        with self._committing:
            self._ledger.commit([file], self._ledger.files(), epoch=epoch, note=note)
        self._ledger.storage.await_synced()
        self._current = entry


def is_superseded(storage: Storage, version: int) -> bool:
    """True if the journal has moved past `version`. Checks for two files, which is cheap enough for every lane task.

    The newest commit is never cleaned away, older ones are, in their order. So where both this commit and the next one
    are gone, the journal moved on long ago.

    Order matters to the caller: first init_transactions, then this, then send. A successor first writes the
    journal, then fences every transactional id. So either this check sees the successor, or the producer made
    before it is fenced by it; with the two swapped, a zombie could slip between.
    """
    if _has_commit(storage, version + 1):
        return True
    if _has_commit(storage, version):
        return False
    try:
        return int(storage.delta(PATH).version()) > version
    except DeltaError:  # a state that is gone or damaged has no owner; the next commit reports it
        return False


def _has_commit(storage: Storage, version: int) -> bool:
    return storage.exists(PATH, "_delta_log", f"{version:020d}.json")

"""The journal: the plan of the open batch, and who owns the state.

A Delta table of exactly one row. Each entry replaces the one before in one conditional commit, so the table
stays one row wide for ever, and the version number is a fence: whoever commits the next version owns the
state, and everybody else can see it by looking for one file (`is_superseded`).

    owner    text that names the instance (host, process, start time), for the message to the one who was fenced
    lanes    how many transactional ids were in use, so that a successor can fence each of them
    plan     the JSON of the last plan written; its batch may or may not have been done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from schemas.errors import Code, CommitConflict, Fenced
from schemas.table import TableSchema
from state.ledger import Ledger
from state.plan import BatchPlan
from state.storage import Storage, corrupt

PATH = "journal"
_ATTEMPTS = 10
"""To take over from an owner that goes on: he writes a plan a batch, a try takes some milliseconds."""
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
    """Opened by taking the state over: the constructor's caller must call `take_over` before anything else."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self._ledger = Ledger(storage, PATH, _SCHEMA)
        self._table = table
        self._current = self._read()

    @property
    def version(self) -> int:
        """The version that this instance wrote or read last."""
        return self._ledger.version

    @property
    def current(self) -> Entry | None:
        """The entry that this instance wrote or read last; None for a new state."""
        return self._current

    def plan_with(self, epoch: int) -> BatchPlan | None:
        """The plan that holds the barrier `epoch`, looked for from the newest entry back; None if there is none."""
        for version in range(self.version, -1, -1):
            files = self._ledger.files_at(version)
            entry = self._entry(self._ledger.read(files).to_pylist())
            plan = None if entry is None else entry.plan
            if plan is None or plan.epoch < epoch:
                return None
            if any(barrier.epoch == epoch for barrier in plan.barriers):
                return plan
        return None

    def _read(self) -> Entry | None:
        return self._entry(self._ledger.read().to_pylist())

    def _entry(self, rows: Sequence[Mapping[str, Any]]) -> Entry | None:
        if not rows:
            return None
        if len(rows) != 1:
            raise corrupt(self._ledger.storage.uri(PATH), f"{len(rows)} rows in the journal, not one")
        row = rows[0]
        plan = None if row["plan"] is None else BatchPlan.from_json(row["plan"], self._table)
        return Entry(row["owner"], row["lanes"], row["table"], plan)

    def take_over(self, owner: str, lanes: int, table_json: str) -> Entry | None:
        """Become the owner. Returns the entry of the owner before, whose transactional ids are to be fenced next.

        An owner that is alive may write one plan after another meanwhile; each is taken over in its turn.
        Raises: CommitConflict when another instance took over at the same moment.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            before = self._current
            try:
                self._write(Entry(owner, lanes, table_json, None if before is None else before.plan))
            except CommitConflict:
                self._ledger.reload()
                self._current = self._read()
                rival = self._current is None or before is None or self._current.owner != before.owner
                if rival or attempt == _ATTEMPTS:
                    raise
            else:
                return before
        raise AssertionError("the last attempt returned or raised")

    def write_plan(self, plan: BatchPlan) -> None:
        """Make a plan the one that counts, before its first effect.

        Raises: Fenced when another instance took the state over since.
        """
        assert self._current is not None, "take_over comes first"
        try:
            self._write(replace(self._current, plan=plan))
        except CommitConflict as conflict:
            raise self.fenced() from conflict

    @property
    def is_superseded(self) -> bool:
        """Whether another instance has taken the state over since."""
        return is_superseded(self._ledger.storage, self.version)

    def fenced(self) -> Fenced:
        """The error to stop with, naming the new owner as far as it can be read."""
        # Read apart: this journal stays at the version it saw, and so superseded.
        entry = Journal(self._ledger.storage, self._table).current
        return Fenced(
            Code.FENCED,
            found=f"the state is owned by {entry.owner if entry else 'another instance'}",
            expected="to be its only owner",
            next_step="nothing: the newer instance goes on where this one stopped",
        )

    def _write(self, entry: Entry) -> None:
        plan = None if entry.plan is None else entry.plan.to_json()
        row = pa.table([[entry.owner], [entry.lanes], [entry.table], [plan]], schema=_SCHEMA)
        file = self._ledger.storage.write_parquet(PATH, row, stem="entry")
        self._ledger.commit([file], self._ledger.files(), epoch=entry.plan.epoch if entry.plan else None)
        self._current = entry


def is_superseded(storage: Storage, version: int) -> bool:
    """Whether the journal has moved past `version`: one look for one file, cheap enough for every lane task.

    Order matters to the caller: first init_transactions, then this, then send. A successor first writes the
    journal, then fences every transactional id. So either this look sees the successor, or the producer made
    before it is fenced by him; with the two swapped, a zombie could slip between.
    """
    return storage.exists(PATH, "_delta_log", f"{version + 1:020d}.json")

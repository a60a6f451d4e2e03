"""The scan of the replica: slices add up to the table of a pin, and positions say which changes they hold."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import cycle
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import ConfigError
from schemas.job import JobDefinition
from schemas.kinds.configs import SCAN_KINDS, ReplicaScan, ScanConfig
from schemas.position import Key, position_from_text, position_to_text
from schemas.records import Op, Row
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import compact_part, parts_of
from state.maintenance.merge import Merge, merge_files
from state.replica import Replica, write_log_file
from state.storage import Storage
from state.values.aligned import Pin
from state.values.plan import Slice
from state.values.progress import Completed, NotStarted, Progress, after_slice
from streaming.core.planning import Amount
from streaming.scan.kinds import SCANS, Arrangement, PinnedScan, Scan
from streaming.source.decoded import Changes as LaneChanges
from tests.kit.live_changes import live_changes
from tests.kit.tables import table, vnode_of
from tests.kit.values import examples

TABLE = table({"id": "int", "n": "int", "v": "string"}, vnode_count=4)
Changes = Mapping[int, str | None]
"""By id the new value of `v`, None to delete the row. Deletes of absent rows are left out."""


def live(ids: Sequence[int]) -> LaneChanges:
    """Changes of keys, as a lane has them."""
    vnodes = np.array([vnode_of(TABLE, (id_,)) for id_ in ids], dtype=np.int32)
    return live_changes(vnodes, [pa.array(ids, pa.int32())], np.zeros(len(ids), np.int32))


class Stored:
    """A table that starts empty, on Delta tables in a folder, and its scan."""

    config = ReplicaScan()

    def __init__(self, folder: Path) -> None:
        self._storage, self._offset = Storage(str(folder / "state")), 0
        self.replica = Replica(self._storage, TABLE)
        self.rows: dict[Key, Row] = {}
        self.epoch = 0

    @property
    def parts(self) -> range:
        return range(self.config.part_count(TABLE.vnode_count, 2))

    def apply(self, changes: Changes) -> None:
        """The changes of one interval."""
        self.epoch += 1
        legal = [(id_, value) for id_, value in changes.items() if value is not None or (id_,) in self.rows]
        for id_, value in legal:
            self.rows.pop((id_,), None)
            if value is not None:
                self.rows[id_,] = (id_, self.epoch, value)
        rows = sorted((self._logged(id_, value) for id_, value in legal), key=lambda row: row[VNODE])
        data = pa.Table.from_pylist(rows, schema=log_schema(TABLE))
        files = [write_log_file(self._storage, data, f"log-{self.epoch}")] if rows else []
        self.replica.append(files, self.epoch)

    def _logged(self, id_: int, value: str | None) -> dict[str, Any]:
        self._offset += 1
        place = {PARTITION: 0, OFFSET: self._offset, EPOCH: self.epoch, VNODE: vnode_of(TABLE, (id_,))}
        op = Op.DELETE if value is None else Op.INSERT
        return {**place, OP: op, BEFORE_HASH: None, "id": id_, "n": self.epoch, "v": value}

    def tidy(self) -> None:
        """Even epochs compact the log into the base, odd ones merge its files."""
        replica = self.replica
        files = replica.files(replica.pin())
        if self.epoch % 2 and len(files.log) > 1:
            merged = merge_files(Merge(self._storage, TABLE, files.log))
            replica.replace_log_files(merged.files, merged.into)
        elif files.log:
            result = reduce(or_, map(compact_part, parts_of(self._storage, TABLE, files)))
            replica.commit_compaction(result.added, result.removed, self.epoch)
            replica.trim()

    def pin(self) -> Pin:
        """The plan that the planner would make now."""
        return Pin(self.replica.pin(), (self._offset,))

    def scan(self) -> Scan:
        """A scan as a service has it that was started just now."""
        return Arrangement(Replica(self._storage, TABLE))


EXAMPLES = examples(16)
IDS = range(24)
EVERY = live(IDS)
COLUMNS = ("v", "id")
MUCH = 1 << 40
INTERVAL = st.dictionaries(st.sampled_from(IDS), st.none() | st.sampled_from("ab"), max_size=len(IDS))
HISTORY = st.lists(INTERVAL, min_size=1, max_size=5)
AMOUNTS = st.lists(
    st.builds(Amount, st.integers(1, 6), st.just(MUCH))
    | st.builds(Amount, st.just(MUCH), st.integers(1, 300)),
    min_size=1,
    max_size=3,
)
some = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def after(history: Sequence[Changes], tidied: int = 0) -> Iterator[Stored]:
    """The table after these intervals, tidied up behind the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        made = Stored(Path(folder))
        for number, changes in enumerate(history, 1):
            made.apply(changes)
            if number <= tidied:
                made.tidy()
        yield made


def slices(scan: Scan, pin: Pin, part: int, amounts: Sequence[Amount]) -> Iterator[Slice]:
    """Slices of a part, from its beginning to its end."""
    position = None
    for _, amount in zip(range(len(IDS) + 1), cycle(amounts), strict=False):
        cut = scan.cut(pin, part, position, amount)
        yield Slice(part, position, cut.upto)
        if cut.upto is None:
            return
        position = cut.upto
    raise AssertionError("no end")


def every_slice(scan: Scan, pin: Pin, parts: range, amounts: Sequence[Amount]) -> list[Slice]:
    return [item for part in parts for item in slices(scan, pin, part, amounts)]


def read(
    pinned: PinnedScan, items: Sequence[Slice], columns: Sequence[str] = COLUMNS
) -> list[list[pa.Table]]:
    """The tables of each slice, read as a lane reads them."""
    read_slice = pinned.reader(frozenset(item.part for item in items), columns)
    return [list(read_slice(item)) for item in items]


def ids(tables: Sequence[pa.Table]) -> list[int]:
    return [id_ for rows in tables for id_ in rows["id"].to_pylist()]


def as_bytes(tables: Sequence[Sequence[pa.Table]]) -> list[list[bytes]]:
    return [[_ipc(rows.combine_chunks()) for rows in each] for each in tables]


def _ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@some
@given(history=HISTORY, tidied=st.integers(0, 5), amounts=AMOUNTS)
def test_slices_of_any_budgets_add_up_to_the_table_once(
    history: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(history, tidied) as made:
        scan, pin = made.scan(), made.pin()
        pinned = scan.pinned(pin, frozenset(made.parts))
        tables = read(pinned, every_slice(scan, pin, made.parts, amounts))
        found = [tuple(row.values()) for each in tables for rows in each for row in rows.to_pylist()]
        assert sorted(found) == sorted((v, id_) for id_, _, v in made.rows.values())
        assert {tuple(rows.column_names) for each in tables for rows in each} <= {COLUMNS}


@some
@given(history=HISTORY, tidied=st.integers(0, 5), amount=AMOUNTS)
def test_a_slice_has_a_row_if_there_is_one_and_its_position_rises(
    history: list[Changes], tidied: int, amount: list[Amount]
) -> None:
    # Rows that were deleted since they were stored may be counted, so here nothing is.
    kept = [{id_: value or "a" for id_, value in changes.items()} for changes in history]
    with after(kept, tidied) as made:
        scan, pin = made.scan(), made.pin()
        pinned = scan.pinned(pin, frozenset(made.parts))
        for part in made.parts:
            items = list(slices(scan, pin, part, amount))
            counts = [len(ids(tables)) for tables in read(pinned, items)]
            assert all(counts[:-1])
            assert all(item.upto > (item.after or ()) for item in items[:-1] if item.upto is not None)
            held = sum(int(found == part) for found in pinned.parts_of(live([key[0] for key in made.rows])))
            assert sum(counts) == held


@some
@given(history=HISTORY, more=HISTORY, tidied=st.integers(0, 5), amounts=AMOUNTS)
def test_a_read_at_a_pin_is_the_same_byte_for_byte_whatever_becomes_of_the_table(
    history: list[Changes], more: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(history, tidied) as made:
        scan, pin = made.scan(), made.pin()
        items = every_slice(scan, pin, made.parts, amounts)
        pinned = scan.pinned(pin, frozenset(made.parts))
        first = as_bytes(read(pinned, items))
        worker_copy = pickle.loads(pickle.dumps(pinned))  # noqa: S301
        for changes in more:
            made.apply(changes)
            made.tidy()
        assert as_bytes(read(worker_copy, items)) == first
        assert as_bytes(read(made.scan().pinned(pin, frozenset(made.parts)), items)) == first


@some
@given(history=HISTORY, tidied=st.integers(0, 5), amounts=AMOUNTS)
def test_a_change_is_covered_once_the_slices_so_far_would_hold_its_row(
    history: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(history, tidied) as made:
        scan, pin = made.scan(), made.pin()
        pinned = scan.pinned(pin, frozenset(made.parts))
        teller = pickle.loads(pickle.dumps(scan.pinned(pin, frozenset())))  # noqa: S301
        progress: dict[int, Progress] = {}
        seen: set[int] = set()
        covered = teller.covered(EVERY, progress).tolist()
        assert not any(covered)
        for item in every_slice(scan, pin, made.parts, amounts):
            (tables,) = read(pinned, [item])
            seen |= set(ids(tables))
            progress[item.part] = after_slice(progress.get(item.part, NotStarted()), item.upto, 0)
            covered = teller.covered(EVERY, progress).tolist()
            assert [covered[id_] for (id_,) in made.rows] == [id_ in seen for (id_,) in made.rows]
            done = [isinstance(progress.get(part), Completed) for part in teller.parts_of(EVERY)]
            assert all(is_covered for is_covered, is_done in zip(covered, done, strict=True) if is_done)
        assert all(covered)


@some
@given(history=HISTORY, amounts=AMOUNTS)
def test_lanes_that_read_some_of_the_parts_read_the_same(
    history: list[Changes], amounts: list[Amount]
) -> None:
    with after(history, 1) as made:
        scan, pin = made.scan(), made.pin()
        items = every_slice(scan, pin, made.parts, amounts)
        together = read(scan.pinned(pin, frozenset(made.parts)), items)
        for item, tables in zip(items, together, strict=True):
            (alone,) = read(scan.pinned(pin, frozenset({item.part})), [item])
            assert sorted(ids(alone)) == sorted(ids(tables))


def test_positions_are_of_the_declared_columns_and_come_back_from_their_text() -> None:
    with after([dict.fromkeys(IDS, "a")]) as made:
        scan, pin, columns = made.scan(), made.pin(), made.config.position_columns(TABLE)
        items = every_slice(scan, pin, made.parts, [Amount(2, MUCH)])
        ends = [item.upto for item in items if item.upto is not None]
        assert len(ends) > 1
        assert [position_from_text(position_to_text(end), columns) for end in ends] == ends


def test_every_change_belongs_to_a_part_of_the_lane_that_gets_it() -> None:
    with after([]) as made:
        parts = made.scan().pinned(made.pin(), frozenset()).parts_of(EVERY)
        lanes = 2
        assert (parts * lanes // len(made.parts)).tolist() == (
            EVERY.vnodes * lanes // TABLE.vnode_count
        ).tolist()


def test_every_kind_that_a_job_can_name_has_a_scan() -> None:
    kinds: Mapping[str, type[ScanConfig]] = SCAN_KINDS
    assert set(kinds.values()) == set(SCANS)
    for name, model in kinds.items():
        assert json.loads(model(kind=name).model_dump_json())["kind"] == name
        assert hash(model(kind=name)) == hash(model(kind=name))
        assert pickle.loads(pickle.dumps(model(kind=name))) == model(kind=name)  # noqa: S301


@pytest.mark.parametrize("read", [{"kind": "by-partition", "parts": 4}, "by-partition", 5])
def test_a_kind_that_is_not_there_is_refused_by_naming_those_that_are(read: object) -> None:
    with pytest.raises(ConfigError, match=r"read .* is not one of: replica, topic"):
        JobDefinition.declare({"name": "copy", "output": "copy", "read": read}, TABLE)
    assert "read" not in json.loads(
        JobDefinition.declare({"name": "copy", "output": "copy", "read": "replica"}, TABLE).to_json()
    )

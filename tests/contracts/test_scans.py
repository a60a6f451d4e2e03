"""What a service relies on in its scans holds for every one of them, real and in memory."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.kinds.kinds import SCAN_KINDS, ScanConfig
from schemas.position import position_from_text, position_to_text
from state.values.pin import Pin
from state.values.plan import Slice
from state.values.progress import Completed, NotStarted, Progress, after_slice
from streaming.core.planning import Amount
from streaming.scan.kinds import SCANS
from streaming.scan.protocol import PinnedScan, Scan
from tests.contracts.scans import TABLE, Changes, InMemory, Live, OnReplica, OnReplicaByPartition, TestScan
from tests.kit.examples import examples

EXAMPLES = examples(16)
IDS = range(24)
EVERY = Live(IDS)
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


@pytest.fixture(scope="module", params=[InMemory, OnReplica, OnReplicaByPartition])
def kind(request: pytest.FixtureRequest) -> type[TestScan]:
    made: type[TestScan] = request.param
    return made


@contextmanager
def after(kind: type[TestScan], history: Sequence[Changes], tidied: int = 0) -> Iterator[TestScan]:
    """The table after these intervals, tidied up behind the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        made = kind(Path(folder))
        for number, changes in enumerate(history, 1):
            made.apply(changes)
            if number <= tidied:
                made.tidy()
        yield made


def slices(scan: Scan, pin: Pin, part: int, amounts: Sequence[Amount]) -> Iterator[Slice]:
    """Those of a part, from its beginning to its end."""
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
    kind: type[TestScan], history: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(kind, history, tidied) as made:
        scan, pin = made.scan(), made.pin()
        pinned = scan.pinned(pin, frozenset(made.parts))
        tables = read(pinned, every_slice(scan, pin, made.parts, amounts))
        found = [tuple(row.values()) for each in tables for rows in each for row in rows.to_pylist()]
        assert sorted(found) == sorted((v, id_) for id_, _, v in made.rows.values())
        assert {tuple(rows.column_names) for each in tables for rows in each} <= {COLUMNS}


@some
@given(history=HISTORY, tidied=st.integers(0, 5), amount=AMOUNTS)
def test_a_slice_has_a_row_if_there_is_one_and_its_position_rises(
    kind: type[TestScan], history: list[Changes], tidied: int, amount: list[Amount]
) -> None:
    # Rows that were deleted since they were stored may be counted, so here nothing is.
    kept = [{id_: value or "a" for id_, value in changes.items()} for changes in history]
    with after(kind, kept, tidied) as made:
        scan, pin = made.scan(), made.pin()
        pinned = scan.pinned(pin, frozenset(made.parts))
        for part in made.parts:
            items = list(slices(scan, pin, part, amount))
            counts = [len(ids(tables)) for tables in read(pinned, items)]
            assert all(counts[:-1])
            assert all(item.upto > (item.after or ()) for item in items[:-1] if item.upto is not None)
            held = sum(int(found == part) for found in pinned.parts_of(Live([key[0] for key in made.rows])))
            assert sum(counts) == held


@some
@given(history=HISTORY, more=HISTORY, tidied=st.integers(0, 5), amounts=AMOUNTS)
def test_a_read_at_a_pin_is_the_same_byte_for_byte_whatever_becomes_of_the_table(
    kind: type[TestScan], history: list[Changes], more: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(kind, history, tidied) as made:
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
    kind: type[TestScan], history: list[Changes], tidied: int, amounts: list[Amount]
) -> None:
    with after(kind, history, tidied) as made:
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
    kind: type[TestScan], history: list[Changes], amounts: list[Amount]
) -> None:
    with after(kind, history, 1) as made:
        scan, pin = made.scan(), made.pin()
        items = every_slice(scan, pin, made.parts, amounts)
        together = read(scan.pinned(pin, frozenset(made.parts)), items)
        for item, tables in zip(items, together, strict=True):
            (alone,) = read(scan.pinned(pin, frozenset({item.part})), [item])
            assert sorted(ids(alone)) == sorted(ids(tables))


def test_positions_are_of_the_declared_columns_and_come_back_from_their_text(kind: type[TestScan]) -> None:
    with after(kind, [dict.fromkeys(IDS, "a")]) as made:
        scan, pin, columns = made.scan(), made.pin(), made.config.position_columns(TABLE)
        items = every_slice(scan, pin, made.parts, [Amount(2, MUCH)])
        ends = [item.upto for item in items if item.upto is not None]
        assert len(ends) > 1
        assert [position_from_text(position_to_text(end), columns) for end in ends] == ends


def test_every_change_belongs_to_a_part_of_the_lane_that_gets_it(kind: type[TestScan]) -> None:
    with after(kind, []) as made:
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

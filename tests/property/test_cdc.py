"""A table is read beside its changes, from a database whose commits are in another order than its log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.position import Key, order_key
from schemas.records import Op
from schemas.table import declare
from state.values.chunks import Chunk, KeyRange, Streamed, TransactionSnapshot, widened
from state.values.reading import IncompatibleChunkError, TableRead
from streaming.core.chunk_events import (
    NO_TRANSACTION,
    ChunkEvents,
    FoldedRows,
    Verdict,
    folded,
    seen_by,
    verdicts,
    widened_each,
)
from tests.kit.database import Connector, Event
from tests.kit.database_reader import UnlawfulError, Way, play
from tests.kit.values import examples
from tests.kit.verdict_oracle import Place, Sees, sees, slow_verdict

_CANARY_SEEDS = 400


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32))
def test_at_every_barrier_the_table_is_that_of_the_events_before_it(seed: int) -> None:
    play(seed)


def test_histories_have_what_they_are_for() -> None:
    """Releases while chunks wait, events of each verdict, LSNs that go back, redelivered records."""
    found, between, back, again = Counter[Verdict](), 0, 0, 0

    def counting(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
        nonlocal between
        given = Way().verdicts(read, due, events)
        found.update(Verdict(each) for each in given)
        between += 0 < due < len(read.chunks)
        return given

    for seed in range(60):
        reader = play(seed, Way(verdicts=counting))
        for events in reader.connector.topic:
            lsns = [event.position[1] for event in events]
            back += sum(low > high for low, high in pairwise(lsns))
            again += len(events) - len({(event.key, event.transaction, event.position) for event in events})
    assert min(found[verdict] for verdict in Verdict) > 50, found
    assert between > 10
    assert back > 50
    assert again > 50


def _by(sees: Sees) -> Way:
    def judged(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
        return [slow_verdict(read, due, (event.key,), event.transaction, sees) for event in events]

    return Way(verdicts=judged)


def _by_lsn(lsn: Callable[[Event], int]) -> Way:
    """An event counts as held where its LSN lies before that of the chunk."""

    def judged(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
        return [_lsn_verdict(read, due, event, lsn(event)) for event in events]

    return Way(verdicts=judged)


def _lsn_verdict(read: TableRead, due: int, event: Event, lsn: int) -> int:
    def before(place: Place, transaction: int) -> bool:
        if place.chunk is None:
            return sees(place, transaction)
        return lsn <= place.chunk.written_lsn

    return slow_verdict(read, due, (event.key,), event.transaction, before)


def _changed(change: Callable[[TableRead, Event, int], int]) -> Way:
    """Verdicts that are changed one by one."""

    def judged(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
        found = Way().verdicts(read, due, events)
        return [change(read, event, verdict) for event, verdict in zip(events, found, strict=True)]

    return Way(verdicts=judged)


def _all_folded(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
    nothing_seen = TransactionSnapshot(1, 1)
    blind = [replace(chunk, snapshot=nothing_seen) for chunk in read.chunks]
    unread = [replace(rest, since=nothing_seen) for rest in read.unread]
    return Way().verdicts(replace(read, chunks=tuple(blind), unread=tuple(unread)), due, events)


def _unread(read: TableRead, event: Event) -> bool:
    return any(rest.keys.holds((event.key,)) for rest in read.unread)


def _one_half_for_both(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
    found = [*Way().verdicts(read, due, events)]
    for place, (event, other) in enumerate(pairwise(events)):
        if event.transaction == other.transaction and event.position == other.position:
            found[place + 1] = found[place]
    return found


def _due_without_gaps(read: TableRead, ends: Sequence[int], proofs: Sequence[Streamed]) -> int:
    lsn = max((proof.lsn for proof in proofs if all(map(int.__le__, proof.ends, ends))), default=-1)
    return sum(chunk.written_lsn <= lsn for chunk in read.chunks)


def _due_of_lsn(read: TableRead, ends: Sequence[int], proofs: Sequence[Streamed]) -> int:
    return read.due(ends, [replace(proof, ends=(0,) * len(ends)) for proof in proofs])


def _due_of_earlier(read: TableRead, ends: Sequence[int], proofs: Sequence[Streamed]) -> int:
    chunks = tuple(replace(chunk, written_lsn=chunk.written_lsn - 20) for chunk in read.chunks)
    return replace(read, chunks=chunks).due(ends, proofs)


def _ends_first(connector: Connector) -> Callable[[], Streamed]:
    ends = connector.ends
    return lambda: Streamed(connector.confirmed_lsn, ends)


def _newest_event(connector: Connector) -> Callable[[], Streamed]:
    last = max((event.position[1] for events in connector.topic for event in events), default=0)
    return lambda: Streamed(last, connector.ends)


def _boundless(read: TableRead, due: int, events: Sequence[Event]) -> Sequence[int]:
    def holds(keys: KeyRange, key: Key) -> bool:
        return (keys.after is None or keys.after <= key) and (keys.upto is None or key < keys.upto)

    return [slow_verdict(read, due, (event.key,), event.transaction, holds=holds) for event in events]


def _near_for_unread(read: TableRead, event: Event, verdict: int) -> int:
    return Verdict.HELD if _unread(read, event) and read.near.sees(event.transaction) else verdict


def _without_deletes(rows: pa.Table, events: ChunkEvents) -> FoldedRows:
    kept = np.flatnonzero(events.ops != Op.DELETE)
    left_out = {column: np.flatnonzero(np.isin(kept, mine)) for column, mine in events.left_out.items()}
    return folded(rows, ChunkEvents(events.ops[kept], events.rows.take(pa.array(kept)), left_out), ["key"])


CANARIES = {
    "an event is held by a chunk behind its LSN": _by_lsn(lambda event: event.position[1]),
    "an event is held by a chunk behind the commit before it": _by_lsn(lambda event: event.position[0]),
    "events above the position are dropped as they come": _changed(
        lambda read, event, verdict: Verdict.HELD if _unread(read, event) else verdict
    ),
    "events of chunks that are not released yet are dropped": _changed(
        lambda read, event, verdict: Verdict.HELD if verdict == Verdict.WAITS else verdict
    ),
    "the rows of a chunk are released as they were read": _changed(
        lambda read, event, verdict: Verdict.HELD if verdict == Verdict.FOLDS else verdict
    ),
    "all events are folded": Way(verdicts=_all_folded),
    "only what is older than all open transactions is seen": _by(
        lambda place, transaction: transaction < place.snapshot.xmin
    ),
    "open transactions are seen": _by(lambda place, transaction: transaction < place.snapshot.xmax),
    "unread keys go by the newest snapshot of all": _changed(_near_for_unread),
    "the upper key belongs to the next chunk": Way(verdicts=_boundless),
    "both halves of a change of key go by one": Way(verdicts=_one_half_for_both),
    "the lower halves of numbers are compared": Way(widened=lambda transactions, near: transactions),
    "a chunk is released at the next barrier": Way(due=lambda read, ends, proofs: len(read.chunks)),
    "a chunk is released before the barrier has got to the ends of the proof": Way(due=_due_of_lsn),
    "a chunk is released before one below it": Way(due=_due_without_gaps),
    "the log's end is asked before the snapshot": Way(due=_due_of_earlier),
    "the topic is asked before the slot": Way(proof=_ends_first),
    "an event proves all before its LSN": Way(proof=_newest_event),
    "the snapshot is younger than the rows": Way(snapshot_first=False),
    "events are read from the end of the topic on": Way(starts_early=False),
    "events that wait are forgotten in a crash": Way(keeps_waiting=False),
    "records that come again apply again": Way(knows_repetitions=False),
    "values that are left out are null": Way(
        fold=lambda rows, events: folded(rows, replace(events, left_out={}), ["key"])
    ),
    "deletes are not folded": Way(fold=_without_deletes),
}


@pytest.mark.parametrize("name", CANARIES)
def test_a_canary_dies(name: str) -> None:
    for seed in range(_CANARY_SEEDS):
        try:
            play(seed, CANARIES[name])
        except (UnlawfulError, IncompatibleChunkError):
            return
    pytest.fail(f"nobody sees that {name}")


# the parts, one by one ------------------------------------------------------------------------------------


@st.composite
def reads(draw: st.DrawFn) -> TableRead:
    """A table of two key columns, read in any order of its ranges, and some of it released."""
    bounds = sorted(draw(st.sets(_KEYS, max_size=3)), key=order_key)
    read = TableRead.begin(draw(_snapshots(100)), bounds)
    for _ in range(draw(st.integers(0, 6))):
        if not read.unread:
            break
        rest = draw(st.sampled_from(read.unread))
        inside = [key for key in _ALL_KEYS if rest.keys.holds(key) and key != rest.keys.upto]
        upto = draw(st.sampled_from([*inside, rest.keys.upto]))
        snapshot = draw(_snapshots(rest.since.xmax + 3, known=rest.since))
        read = read.read(Chunk(KeyRange(rest.keys.after, upto), snapshot, draw(st.integers(0, 9)), 1))
    proof = Streamed(draw(st.integers(-1, 9)), (0,))
    return read.release(draw(st.integers(0, read.due((0,), [proof]))))


_ALL_KEYS = [(name, number) for name in ("", "a", "é", "😀") for number in (-1, 0, 7)]
_KEYS = st.sampled_from(_ALL_KEYS)
_COLUMNS = ((0, pa.string()), (1, pa.int64()))


def _snapshots(xmax: int, known: TransactionSnapshot | None = None) -> st.SearchStrategy[TransactionSnapshot]:
    open_before = {each for each in range(90, xmax) if known is None or not known.sees(each)}
    running = st.sets(st.sampled_from(sorted(open_before))) if open_before else st.just(set[int]())
    return running.map(lambda them: TransactionSnapshot(min(them, default=xmax), xmax, tuple(sorted(them))))


@given(reads(), st.lists(st.tuples(_KEYS, st.integers(85, 130) | st.just(NO_TRANSACTION))), st.data())
def test_verdicts_of_columns_are_those_of_one_event_at_a_time(
    read: TableRead, events: list[tuple[Key, int]], data: st.DataObject
) -> None:
    due = data.draw(st.integers(0, read.due((0,), [Streamed(9, (0,))])))
    names, numbers = (pa.array([key[place] for key, _ in events], kind) for place, kind in _COLUMNS)
    transactions = np.array([each for _, each in events], dtype=np.int64)
    found = verdicts(read, due, [names, numbers], transactions).tolist()
    assert found == [slow_verdict(read, due, key, each) for key, each in events]


@given(_snapshots(100), st.lists(st.integers(85, 105) | st.just(NO_TRANSACTION), min_size=1))
def test_what_a_snapshot_sees_of_columns(snapshot: TransactionSnapshot, transactions: list[int]) -> None:
    seen = seen_by(snapshot, np.array(transactions, dtype=np.int64)).tolist()
    assert seen == [each == NO_TRANSACTION or snapshot.sees(each) for each in transactions]


@given(st.integers(3, 2**40), st.lists(st.integers(0, 2**40), min_size=1))
def test_columns_of_numbers_are_widened(xmax: int, transactions: list[int]) -> None:
    near = TransactionSnapshot(xmax, xmax)
    found = widened_each(np.array([*transactions, NO_TRANSACTION], dtype=np.int64), near).tolist()
    assert found == [*(widened(each, near) for each in transactions), NO_TRANSACTION]


@given(reads())
def test_how_far_a_table_was_read_comes_back_from_json(read: TableRead) -> None:
    columns = declare(
        {"name": "t", "columns": {"a": "string", "b": "bigint"}, "primary_key": ["a", "b"]}
    ).key_columns
    assert TableRead.from_dict(json.loads(json.dumps(read.to_dict())), columns) == read


@given(reads(), _KEYS)
def test_each_key_is_in_one_place(read: TableRead, key: Key) -> None:
    ranges = [chunk.keys for chunk in read.chunks] + [rest.keys for rest in read.unread]
    if read.released is not None:
        ranges.append(read.released)
    assert sum(keys.holds(key) for keys in ranges) == 1


def test_a_chunk_has_to_go_on_from_what_was_read() -> None:
    first, later = TransactionSnapshot(8, 9, (8,)), TransactionSnapshot(9, 9)
    read = TableRead.begin(first, [(5,)]).read(Chunk(KeyRange(None, (2,)), later, 1, 0))
    for chunk, reason in [
        (Chunk(KeyRange((3,), (5,)), later, 1, 0), "begins where nothing"),
        (Chunk(KeyRange((2,), (6,)), later, 1, 0), "behind its range"),
        (Chunk(KeyRange((2,), None), later, 1, 0), "behind its range"),
        (Chunk(KeyRange((2,), (5,)), first, 1, 0), "older"),
        (Chunk(KeyRange((2,), (5,)), TransactionSnapshot(8, 8), 1, 0), "older"),
    ]:
        with pytest.raises(IncompatibleChunkError, match=reason):
            read.read(chunk)
    assert read.read(Chunk(KeyRange((5,), None), first, 1, 0)).near.xmax == 9


def test_events_that_every_chunk_to_come_holds_do_not_wait() -> None:
    """Or what waits would grow for as long as the table is read."""
    read = TableRead.begin(TransactionSnapshot(8, 9, (8,)))
    read = read.read(Chunk(KeyRange(None, (2,)), TransactionSnapshot(9, 12, (9,)), 1, 0))
    keys, transactions = [pa.array([7, 7, 7, 7], pa.int64())], np.array([8, 9, 11, 12])
    waits = Verdict.WAITS
    assert verdicts(read, 0, keys, transactions).tolist() == [Verdict.HELD, waits, Verdict.HELD, waits]


def test_a_value_that_is_left_out_comes_from_the_row_before_whatever_that_is() -> None:
    names = ["key", "small", "large"]
    stored = pa.table([[1, 2], ["a", "b"], ["A", "B"]], names=names)
    rows = pa.table([[2, 2, 1, 3, 3, 1], list("cdefgh"), [None, None, None, "E", None, None]], names=names)
    ops = np.array([Op.UPDATE, Op.UPDATE, Op.DELETE, Op.INSERT, Op.UPDATE, Op.UPDATE], dtype=np.int8)
    left_out = {2: np.array([0, 1, 4, 5])}
    found = folded(stored, ChunkEvents(ops, rows, left_out), ["key"])
    assert found.rows.slice(1).to_pylist() == [
        {"key": 2, "small": "d", "large": "B"},
        {"key": 3, "small": "g", "large": "E"},
    ]
    assert found.lacking.tolist() == [5]

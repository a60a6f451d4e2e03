"""Barriers: their epochs, and their bytes in Avro."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from dataclasses import replace
from io import BytesIO

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.codec import MAX_BARRIER_BYTES, barrier_header, decode_barrier, encode_barrier
from schemas.epoch import EPOCH_ZERO_UNIX_MS, NO_EPOCH, next_epoch, unix_ms_from_epoch
from schemas.errors import Code, InputError
from schemas.records import (
    Add,
    Alter,
    Barrier,
    BarrierKind,
    Drop,
    Lanes,
    Mutation,
    Other,
    Pause,
    Resume,
    Stop,
    Throttle,
    VnodeProgress,
)
from streaming.reading.barriers import read_barrier

clocks = st.integers(EPOCH_ZERO_UNIX_MS + 1, EPOCH_ZERO_UNIX_MS + 2**40)


def test_epochs_count_from_april_2021() -> None:
    start = dt.datetime(2021, 4, 1, tzinfo=dt.UTC)
    assert start.timestamp() * 1000 == EPOCH_ZERO_UNIX_MS
    assert next_epoch(NO_EPOCH, EPOCH_ZERO_UNIX_MS + 3) == 3 << 16


@given(clocks)
def test_an_epoch_tells_the_instant_it_was_made_from(clock: int) -> None:
    assert unix_ms_from_epoch(next_epoch(NO_EPOCH, clock)) == clock


@given(st.lists(clocks, min_size=1, max_size=20))
def test_epochs_rise_strictly_whatever_the_clock_does(clock_readings: list[int]) -> None:
    prev = NO_EPOCH
    for clock in clock_readings:
        curr = next_epoch(prev, clock)
        assert curr > prev
        assert unix_ms_from_epoch(curr) >= clock
        assert curr & 0xFFFF == 0
        prev = curr


def test_a_clock_that_fell_back_costs_one_millisecond_a_barrier() -> None:
    first = next_epoch(NO_EPOCH, EPOCH_ZERO_UNIX_MS + 5_000)
    assert next_epoch(first, EPOCH_ZERO_UNIX_MS + 1_000) == first + (1 << 16)
    assert next_epoch(first | 7, EPOCH_ZERO_UNIX_MS + 1_000) == first + (1 << 16)


PROGRESS = (VnodeProgress(3, '["é",1]', False, 90_000), VnodeProgress(4, None, True, 0))
BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.CHECKPOINT, 4, 1_700_000_000_123, Throttle("j", 5), PROGRESS)
MUTATIONS: list[Mutation | None] = [
    None,
    Add('{"name": "orders-copy"}'),
    Drop("j"),
    Pause(None),
    Pause("j"),
    Resume(None),
    Resume("j"),
    Throttle("j", None),
    Throttle("j", 0),
    Stop(),
    Lanes(4),
    Alter('[{"add":{"c":{"type":"int","fill":5}}},{"rename":{"a":"b"}},{"ignore":"\\u00e9"}]'),
    # Of a version to come.
    Other("Alter", '{"changes": [{"forget": "c"}]}'),
    Other("Alter", '{"add": {}}'),
]

texts = st.text(max_size=12)
mutations = st.one_of(
    st.none(),
    st.builds(Add, texts),
    st.builds(Drop, texts),
    st.builds(Pause, st.none() | texts),
    st.builds(Resume, st.none() | texts),
    st.builds(Throttle, texts, st.none() | st.integers(0, 2**63 - 1)),
    st.just(Stop()),
    st.builds(Lanes, st.integers(0, 2**31)),
    st.builds(Other, st.sampled_from(["Alter", "Later"]), st.sampled_from(["{}", '{"c": [1, "x"]}'])),
)
progress = st.builds(
    VnodeProgress, st.integers(0, 32_767), st.none() | texts, st.booleans(), st.integers(0, 2**63 - 1)
)
barriers = st.builds(
    lambda prev, step, *rest: Barrier(prev + step, prev, *rest),
    st.integers(0, 2**62),
    st.integers(1, 2**61),
    st.sampled_from(BarrierKind),
    st.integers(1, 2**31 - 1),
    st.integers(-(2**40), 2**45),
    mutations,
    st.lists(progress, max_size=5).map(tuple),
)


def error_of(header: bytes | None, data: bytes | None) -> InputError | None:
    """The InputError, None if this is a barrier. Any other error passes through."""
    try:
        decode_barrier(header, data, where="orders-0@7")
    except InputError as error:
        return error
    return None


def refusal(header: bytes | None, data: bytes | None) -> str | None:
    error = error_of(header, data)
    if error is None:
        return None
    assert error.code in (Code.BARRIER_MALFORMED, Code.BARRIER_UNSUPPORTED, Code.AVRO_LIMIT)
    assert error.where == "orders-0@7"
    return error.found


def written(barrier: Barrier) -> tuple[bytes, bytes]:
    return barrier_header(barrier), encode_barrier(barrier)


@given(barriers)
def test_the_reader_of_verify_reads_the_same(barrier: Barrier) -> None:
    assert read_barrier(*written(barrier)) == barrier


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Lanes", "{}"),
        ("Lanes", '{"lanes": "4"}'),
        ("Lanes", "4"),
        ("Lanes", "{"),
        ("Stop", "{}"),
        ("Alter", "?"),
        ("Later", '{"limit":Infinity}'),
    ],
)
def test_a_named_mutation_with_a_value_that_is_not_its_own_is_refused(name: str, value: str) -> None:
    header, data = written(replace(BARRIER, mutation=Other("Later", "{}")))
    later = b"\x0aLater\x04{}"
    assert later in data
    mine = b"".join(bytes([len(text) * 2]) + text.encode() for text in (name, value))
    for read in (decode_barrier, read_barrier):
        with pytest.raises(InputError) as caught:
            read(header, data.replace(later, mine), where="orders-0@7")
        assert caught.value.code is Code.BARRIER_MALFORMED


@pytest.mark.parametrize("mutation", MUTATIONS, ids=repr)
def test_every_mutation_reads_back(mutation: Mutation | None) -> None:
    barrier = replace(BARRIER, mutation=mutation)
    assert decode_barrier(*written(barrier)) == barrier


@given(barriers)
def test_a_barrier_reads_back_as_it_was(barrier: Barrier) -> None:
    assert decode_barrier(*written(barrier)) == barrier


def test_the_header_is_the_epoch_in_decimal() -> None:
    assert barrier_header(BARRIER) == b"131072"


@pytest.mark.parametrize(
    "header", [None, b"", b"131073", b"+131072", b"0131072", b"131072 ", b"x", "١".encode(), b"1" * 5000]
)
def test_a_header_that_is_not_the_epoch_of_the_value_is_refused(header: bytes | None) -> None:
    assert "different epochs" in (refusal(header, encode_barrier(BARRIER)) or "")


@pytest.mark.parametrize(
    ("barrier", "says"),
    [
        (replace(BARRIER, prev=BARRIER.curr), "curr is not above prev"),
        (replace(BARRIER, prev=BARRIER.curr + 1), "curr is not above prev"),
        (replace(BARRIER, prev=-1), "curr is not above prev"),
        (replace(BARRIER, curr=0, prev=0), "curr is not above prev"),
        (replace(BARRIER, partitions=0), "partitions is below 1"),
        (replace(BARRIER, partitions=-1), "partitions is below 1"),
        (replace(BARRIER, injected_at_ms=2**62), "outside 0001..9999"),
    ],
)
def test_a_barrier_that_makes_no_sense_is_refused(barrier: Barrier, says: str) -> None:
    assert says in (refusal(*written(barrier)) or "")


def test_a_barrier_cut_anywhere_is_refused() -> None:
    header, data = written(BARRIER)
    for size in range(len(data)):
        assert "truncated" in (refusal(header, data[:size]) or "")


def test_a_barrier_with_bytes_behind_or_no_value_is_refused() -> None:
    header, data = written(BARRIER)
    assert "1 bytes left over" in (refusal(header, data + b"\x00") or "")
    assert "null value" in (refusal(header, None) or "")


@pytest.mark.parametrize("choice", [b"\x10", b"\x01", b"\xfe\xff\xff\xff\x0f"])
def test_a_mutation_that_does_not_exist_is_unsupported(choice: bytes) -> None:
    header, data = written(replace(BARRIER, mutation=Stop(), progress=()))
    assert data[-2:] == b"\x0c\x00"
    error = error_of(header, data[:-2] + choice + b"\x00")
    assert error is not None
    assert error.code is Code.BARRIER_UNSUPPORTED


@pytest.mark.parametrize("kind", [b"\x06", b"\x01"])
def test_a_kind_that_does_not_exist_is_unsupported(kind: bytes) -> None:
    header, data = b"1", b"\x02\x00" + kind + b"\x02\x00\x00\x00"
    assert error_of(header, data[:2] + b"\x02" + data[3:]) is None
    error = error_of(header, data)
    assert error is not None
    assert error.code is Code.BARRIER_UNSUPPORTED


def claim(number: int) -> bytes:
    """Avro's form of a length or a count."""
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


HEAD = b"\x02\x00\x02\x02\x00"
BOMBS = {
    "a job's name of a terabyte": HEAD + b"\x04" + claim(2**40),
    "a job's name of a negative length": HEAD + b"\x04" + claim(-5),
    "progress of a billion vnodes": HEAD + b"\x00" + claim(10**9),
    "progress of a billion vnodes, sized": HEAD + b"\x00" + claim(-(10**9)) + claim(4),
    "progress in many blocks": HEAD + b"\x00" + (claim(30_000) + bytes(4 * 30_000)) * 2 + b"\x00",
    "a number without an end": b"\x80" * 40,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_barrier_that_claims_to_be_huge_is_refused_without_the_memory_for_it(bomb: bytes) -> None:
    tracemalloc.start()
    error = error_of(b"1", bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error is not None
    assert error.code is Code.AVRO_LIMIT
    assert peak < 4_000_000


def test_a_barrier_of_more_bytes_than_any_has_is_not_even_walked() -> None:
    header, data = written(BARRIER)
    error = error_of(header, data + bytes(MAX_BARRIER_BYTES))
    assert error is not None
    assert error.code is Code.AVRO_LIMIT


def test_a_flipped_bit_gives_a_named_error_or_a_barrier_that_makes_sense() -> None:
    header, data = written(BARRIER)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        if refusal(header, bytes(flipped)) is None:
            barrier = decode_barrier(header, bytes(flipped))
            assert barrier.curr > barrier.prev >= 0
            assert barrier.partitions >= 1


@given(st.binary(max_size=60))
def test_random_bytes_are_no_barrier(data: bytes) -> None:
    assert refusal(b"131072", data) is not None

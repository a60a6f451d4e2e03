"""Barriers of a barrier topic: what is written is read back, and everything else is refused by name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.codec import MAX_BARRIER_BYTES, barrier_header
from schemas.errors import Code, InputError
from schemas.json.barriers import BesideBarrier, decode_beside, encode_beside
from schemas.records import Barrier, Other
from streaming.reading.barriers import read_separate_barrier
from tests.unit.test_barrier_codec import BARRIER, barriers

HEADER = barrier_header(BARRIER)
VALUE = json.loads(encode_beside(BARRIER, 120))


def refused(value: object, *, header: bytes | None = HEADER, key: bytes | None = b"3") -> InputError:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    with pytest.raises(InputError) as caught:
        decode_beside(header, key, data, partition=3, where="beside-3@7")
    assert caught.value.where == "beside-3@7"
    return caught.value


@given(barriers, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_what_is_written_is_read_back(barrier: Barrier, end: int, partition: int) -> None:
    value = encode_beside(barrier, end)
    read = decode_beside(barrier_header(barrier), str(partition).encode(), value, partition=partition)
    assert read == BesideBarrier(barrier, end)
    again = read_separate_barrier(
        barrier_header(barrier), str(partition).encode(), value, partition=partition
    )
    if not isinstance(barrier.mutation, Other):  # its text is not kept as it was
        assert tuple(again) == (barrier, end)


def test_the_value_is_what_the_contract_says() -> None:
    assert VALUE == {
        "curr": "131072",
        "prev": "65536",
        "kind": "CHECKPOINT",
        "partitions": 4,
        "injected_at": 1_700_000_000_123,
        "mutation": {"Throttle": {"job": "j", "rate_limit": 5}},
        "progress": [
            {"vnode": 3, "position": '["é",1]', "finished": False, "row_count": 90_000},
            {"vnode": 4, "position": None, "finished": True, "row_count": 0},
        ],
        "end": 120,
    }


@pytest.mark.parametrize(
    "over",
    [
        {"curr": 131072},
        {"curr": "0131072"},
        {"curr": "65536"},
        {"prev": "131072"},
        {"prev": "-1"},
        {"kind": "checkpoint"},
        {"partitions": 0},
        {"partitions": 4.0},
        {"injected_at": "now"},
        {"mutation": {}},
        {"mutation": {"Throttle": {"job": "j"}, "Stop": {}}},
        {"mutation": {"Throttle": {"job": "j"}}},
        {"mutation": {"Throttle": {"job": "j", "rate_limit": "5"}}},
        {"mutation": {"Stop": {"job": "j"}}},
        {"mutation": {"Lanes": {}}},
        {"mutation": {"Lanes": {"lanes": "4"}}},
        {"mutation": {"Lanes": {"lanes": 4, "job": "j"}}},
        {"progress": None},
        {"progress": [{"vnode": 1}]},
        {"end": -1},
        {"end": None},
        {"end": 1.5},
        {"mutation": {"Later": {"limit": math.inf}}},
        {"note": -math.inf},
    ],
)
def test_a_field_that_is_wrong_is_named_and_its_value_is_not_shown(over: dict[str, Any]) -> None:
    error = refused({**VALUE, **over})
    assert error.code is Code.BARRIER_MALFORMED
    assert "{" not in error.found


@pytest.mark.parametrize("field", VALUE)
def test_a_field_that_is_missing_is_named(field: str) -> None:
    error = refused({name: value for name, value in VALUE.items() if name != field})
    assert error.code is Code.BARRIER_MALFORMED
    assert field in error.found


@pytest.mark.parametrize("data", [None, b"", b"null", b"[]", b"{", b"\xff", b'"text"', b"[" * 100_000])
def test_bytes_that_are_no_object_are_refused(data: bytes | None) -> None:
    assert refused(data).code is Code.BARRIER_MALFORMED


def test_header_and_key_have_to_agree_with_the_value_and_the_partition() -> None:
    assert refused(VALUE, header=b"131073").code is Code.BARRIER_MALFORMED
    assert refused(VALUE, header=None).code is Code.BARRIER_MALFORMED
    assert refused(VALUE, key=b"2").code is Code.BARRIER_MALFORMED
    assert refused(VALUE, key=None).code is Code.BARRIER_MALFORMED


def test_what_a_later_version_may_write_is_recognised() -> None:
    later = json.dumps({**VALUE, "mutation": {"Alter": {"c": 1}}}).encode()
    read = decode_beside(HEADER, b"3", later, partition=3).barrier
    assert read == replace(BARRIER, mutation=Other("Alter", '{"c": 1}'))
    data = json.dumps({**VALUE, "note": "new"}).encode()
    assert decode_beside(HEADER, b"3", data, partition=3).barrier == BARRIER


def test_more_bytes_than_a_barrier_has_are_refused() -> None:
    assert refused(b" " * MAX_BARRIER_BYTES + json.dumps(VALUE).encode()).code is Code.AVRO_LIMIT

"""Requests: what a hand on the control topic may write, and what it may not."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.errors import ConfigError
from schemas.json.barriers import decode_beside, encode_beside
from schemas.kinds.table_changes import AddColumn, IgnoreField, RenameField, changes_text
from schemas.records import (
    Add,
    Alter,
    Barrier,
    BarrierKind,
    Drop,
    Lanes,
    Mutation,
    Pause,
    Resume,
    Stop,
    Throttle,
)
from streaming.control.client import send_request
from streaming.kafka.clients import KafkaSettings
from streaming.reading.values.json_text import parsed
from streaming.source.barriers.injecting.control_requests import (
    MAX_REQUEST_BYTES,
    ControlRequest,
    MalformedRequestError,
    decode_request,
    encode_request,
)

TEXTS = st.text(st.characters(codec="utf-8"))
JSON_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(1 - 10**399, 10**399)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
JOBS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
MUTATIONS: st.SearchStrategy[Mutation] = st.one_of(
    JOBS.map(Drop),
    st.none().map(Pause) | JOBS.map(Pause),
    st.none().map(Resume) | JOBS.map(Resume),
    st.builds(Throttle, JOBS, st.none() | st.integers(0, 2**63 - 1)),
    st.just(Stop()),
    st.builds(Lanes, st.integers(1, 2**31 - 1)),
    st.sampled_from([(IgnoreField("é"),), (RenameField("a", "b"), AddColumn("c", '"int"'))]).map(
        lambda changes: Alter(changes_text(changes))
    ),
    JOBS.map(lambda name: Add(json.dumps({"name": name, "filter": "region = 'Ö'"}, separators=(",", ":")))),
)


@given(MUTATIONS, st.text(st.characters(codec="utf-8"), min_size=1, max_size=50))
def test_a_request_comes_back_as_it_was_written(mutation: Mutation, name: str) -> None:
    assert decode_request(encode_request(ControlRequest(name, mutation))) == ControlRequest(name, mutation)


@given(MUTATIONS, st.integers(1, 2**63 - 1))
def test_a_request_carries_the_age_up_to_which_a_barrier_may_take_it(
    mutation: Mutation, timeout_ms: int
) -> None:
    request = ControlRequest("1", mutation, timeout_ms)
    assert decode_request(encode_request(request)) == request


def test_a_request_that_is_too_long_is_refused_before_it_is_sent() -> None:
    definition = {"name": "wide", "columns": ["c" * 100] * (MAX_REQUEST_BYTES // 100)}
    with pytest.raises(ConfigError, match=r"a request of 6[0-9],[0-9]{3} bytes; expected at most 65,536"):
        send_request(KafkaSettings("127.0.0.1:1"), "up.control", Add(json.dumps(definition)))


def test_the_form_in_the_manual_is_read() -> None:
    text = b'{"id": "7f", "mutation": "Throttle", "job": "orders-copy", "rate_limit": 100}'
    assert decode_request(text) == ControlRequest("7f", Throttle("orders-copy", 100))


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"id":"1"}',
        b'{"mutation":"Stop"}',
        b'{"id":"","mutation":"Stop"}',
        b'{"id":1,"mutation":"Stop"}',
        b'{"id":"1","mutation":"stop"}',
        b'{"id":"1","mutation":null}',
        b'{"id":"1","mutation":["Stop"]}',
        b'{"id":"1","mutation":"Stop","job":"a"}',
        b'{"id":"1","mutation":"Pause"}',
        b'{"id":"1","mutation":"Stop","timeout_ms":0}',
        b'{"id":"1","mutation":"Stop","timeout_ms":true}',
        b'{"id":"1","mutation":"Stop","timeout_ms":null}',
        b'{"id":"1","mutation":"Stop","timeout_ms":1.5}',
        b'{"id":"1","mutation":"Pause","jobs":"a"}',
        b'{"id":"1","mutation":"Pause","job":""}',
        b'{"id":"1","mutation":"Drop","job":null}',
        b'{"id":"1","mutation":"Drop","job":"a","job":"b"}',
        b'{"id":"1","mutation":"Drop","job":"' + b"a" * 64 + b'"}',
        b'{"id":"1","mutation":"Drop","job":"\\ud800"}',
        b'{"id":"1","mutation":"Throttle","job":"a"}',
        b'{"id":"1","mutation":"Lanes"}',
        b'{"id":"1","mutation":"Alter"}',
        b'{"id":"1","mutation":"Alter","changes":[]}',
        b'{"id":"1","mutation":"Alter","changes":[{"forget":"c"}]}',
        b'{"id":"1","mutation":"Lanes","lanes":0}',
        b'{"id":"1","mutation":"Lanes","lanes":true}',
        b'{"id":"1","mutation":"Lanes","lanes":2147483648}',
        b'{"id":"1","mutation":"Throttle","job":"a","rate_limit":-1}',
        b'{"id":"1","mutation":"Throttle","job":"a","rate_limit":1.5}',
        b'{"id":"1","mutation":"Throttle","job":"a","rate_limit":true}',
        b'{"id":"1","mutation":"Throttle","job":"a","rate_limit":NaN}',
        b'{"id":"1","mutation":"Throttle","job":"a","rate_limit":9223372036854775808}',
        *(
            b'{"id":"1","mutation":"Alter","changes":[{"add":{"c":{"type":"double","fill":%s}}}]}' % fill
            for fill in (b"1e999", b"-1e999", b"9" * 401, b"0." + b"1" * 400, b"[" * 60 + b"]" * 60)
        ),
        b'{"id":"1","mutation":"Add","definition":{"topic_config":{"segment.ms":1e999}}}',
        b'{"id":"1","mutation":"Add","definition":"a"}',
        b'{"id":"1","mutation":"Add","job":"a"}',
        b'{"id":"1","mutation":"Add","definition":{"name":"\\udfff"}}',
        b'{"id":"1","mutation":"Drop","job":"a' + b" " * MAX_REQUEST_BYTES + b'"}',
    ],
)
def test_anything_else_is_malformed(data: bytes | None) -> None:
    with pytest.raises(MalformedRequestError):
        decode_request(data)


@given(
    st.recursive(
        JSON_VALUES,
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    )
)
@example(json.loads("[" * 56 + "]" * 56))
@example(10**399)
@example(sys.float_info.max)
def test_what_is_taken_comes_back_from_a_barrier_in_a_topic_of_its_own(fill: object) -> None:
    changes = [{"add": {"c": {"type": "int", "fill": fill}}}]
    mutation = decode_request(
        json.dumps({"id": "1", "mutation": "Alter", "changes": changes}).encode()
    ).mutation
    barrier = Barrier(2, 1, BarrierKind.CHECKPOINT, 1, 5, mutation)
    value = encode_beside(barrier, 7)
    assert decode_beside(b"2", b"0", value, partition=0).barrier.mutation == mutation
    parsed(value.decode())


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_read_or_be_refused(data: bytes) -> None:
    with suppress(MalformedRequestError):
        decode_request(data)


def test_a_slip_of_the_pen_is_hinted_at() -> None:
    with pytest.raises(MalformedRequestError, match="did you mean 'Throttle'"):
        decode_request(b'{"id":"1","mutation":"Throtle","job":"a","rate_limit":1}')

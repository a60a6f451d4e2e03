"""A frame that came before is not read again, and makes no difference."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from schemas.formats.events.frames import Frames

from schemas.json.parsing.tokens import MAX_DEPTH, JsonError

SCHEMAS = [
    {"fields": [{"field": "after", "fields": [{"field": "a", "name": "io.debezium.time.MicroTimestamp"}]}]},
    {"fields": [{"field": "after", "fields": [{"field": "a", "parameters": {"scale": "2"}}]}]},
    {"fields": [], "name": 'of a "payload": null'},
    None,
]
PAYLOADS = [{"a": 1}, {"a": {"b": [1.5, "x"]}, "payload": {}}, {"schema": {}}, {}, None, 7]
SPOILT = ['"payload":', "}", "{", ",", '"schema":', "null", " ", "\\", '"', ""]


@st.composite
def records(draw: st.DrawFn) -> bytes:
    schema, payload = draw(st.sampled_from(SCHEMAS)), draw(st.sampled_from(PAYLOADS))
    more = draw(st.sampled_from([{}, {}, {}, {"more": 1}]))
    text = json.dumps({"schema": schema, "payload": payload, **more}, separators=(",", ":"))
    if draw(st.integers(0, 3)) == 0:
        at, piece = draw(st.integers(0, len(text))), draw(st.sampled_from(SPOILT))
        text = text[:at] + piece + text[at + draw(st.integers(0, 2)) :]
    return text.encode()


def read(frames: Frames, data: bytes) -> Any:
    try:
        fields, schemas = frames.unframed(data)
    except JsonError as reason:
        return str(reason)
    return [(name, each.kind, each.text) for name, each in fields or ()], fields is None, schemas


@given(st.lists(records(), max_size=8))
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{},"payload":{"a":1}}'])
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{"a":1}} '])
@example(
    [
        b'{"schema":null,"payload":{}}',
        b'{"schema":null,"payload":{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}}",
    ]
)
@example(
    [
        b'{"schema":null,"payload":{}}',
        b'{"schema":null,"payload":{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}}",
    ]
)
def test_records_are_read_as_if_each_were_the_first(found: list[bytes]) -> None:
    frames = Frames("after")
    for data in found:
        assert read(frames, data) == read(Frames("after"), data)

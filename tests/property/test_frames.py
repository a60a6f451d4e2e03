"""A frame that came before is not read again, and makes no difference."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.json.tokens import MAX_DEPTH
from schemas.table import declare
from tests.kit.one_value import compact
from tests.kit.two_ways import results, results_alone

SCHEMAS = [
    {"fields": [{"field": "after", "fields": [{"field": "a", "name": "io.debezium.time.MicroTimestamp"}]}]},
    {"fields": [{"field": "after", "fields": [{"field": "a", "parameters": {"scale": "2"}}]}]},
    {"fields": [], "name": 'of a "payload": null'},
    None,
]
PAYLOADS = [{"a": 1}, {"a": {"b": [1.5, "x"]}, "payload": {}}, {"schema": {}}, {}, None, 7]
SPOILT = ['"payload":', "}", "{", ",", '"schema":', "null", " ", "\\", '"', ""]


KINDS = {"id": "bigint", "a": "string"}
KEYED = declare({"name": "t", "columns": KINDS, "primary_key": ["id"]})
CASES = [
    (DebeziumFormat(), KEYED, b'{"id":7}'),
    (UpsertFormat(), KEYED, b'{"id":7}'),
    (AppendFormat(), declare({"name": "t", "columns": KINDS}, has_key=False), None),
]


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@st.composite
def records(draw: st.DrawFn) -> bytes:
    schema, payload = draw(st.sampled_from(SCHEMAS)), draw(st.sampled_from(PAYLOADS))
    more = draw(st.sampled_from([{}, {}, {}, {"more": 1}]))
    text = json.dumps({"schema": schema, "payload": payload, **more}, separators=(",", ":"))
    if draw(st.integers(0, 3)) == 0:
        at, piece = draw(st.integers(0, len(text))), draw(st.sampled_from(SPOILT))
        text = text[:at] + piece + text[at + draw(st.integers(0, 2)) :]
    return text.encode()


@given(st.lists(records(), max_size=8))
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{},"payload":{"a":1}}'])
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{"a":1}} '])
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{"a":%s}}' % nested(MAX_DEPTH)])
@example([b'{"schema":null,"payload":{}}', b'{"schema":null,"payload":{"a":%s}}' % nested(MAX_DEPTH - 1)])
def test_records_are_read_as_if_each_were_the_first(found: list[bytes]) -> None:
    for format_, of, key in CASES:
        together = [(key, data) for data in found]
        assert results(format_, of, together) == results_alone(format_, of, together)


def test_blocks_of_many_frames_are_read_like_those_of_one() -> None:
    """Beyond some frames records are read one by one, for each frame is a pass over the block."""
    names = [f"n{number}" for number in range(40)]
    found = [compact({"schema": {"fields": [], "name": name}, "payload": {"a": name}}) for name in names * 2]
    for format_, of, key in CASES[1:]:
        together = [(key, data) for data in found]
        assert results(format_, of, together) == results_alone(format_, of, together)


@given(st.integers(0, 30))
def test_frames_that_are_none_leave_the_others_alone(broken: int) -> None:
    text = '{"schema":{"fields":[],"name":7"payload":'
    sound = compact({"schema": None, "payload": {"a": "x"}})
    format_, of, key = CASES[1]
    together = [(key, text.encode())] * broken + [(key, sound)] * 3
    assert results(format_, of, together) == results_alone(format_, of, together)

"""A connector's topic in canonical form, in chunks of any size.

Redelivered records are left out, and what a record leaves out is filled in, as by a reader of one record after another.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.formats.debezium import DebeziumFormat
from schemas.json.placeholder import UNAVAILABLE
from schemas.records import Change
from streaming.reading.entries import RowChange
from streaming.reading.records.forms import RecordForm
from streaming.verify.history import TopicEntry
from streaming.verify.records import canonical as module
from streaming.verify.records.canonical import canonical
from tests.kit.avro_codec import KeyCodec
from tests.kit.encoded_histories import ListSource
from tests.kit.in_order import InOrder
from tests.kit.values import examples
from tests.property.test_in_order import NOTE, TABLE, Connector, Sent

FORM = RecordForm.of(DebeziumFormat())
NAMES = TABLE.column_names
ROWS, KEYS = KeyCodec(TABLE.columns), KeyCodec(TABLE.key_columns)


def event_of(offset: int, sent: Sent) -> TopicEntry:
    key = json.dumps({NAMES[0]: sent.key}).encode()
    if sent.row is None and sent.position is None:
        return TopicEntry(offset, key, None)
    row = None if sent.row is None else dict(zip(NAMES, sent.row, strict=True))
    if row is not None and sent.leaves_out:
        row[NAMES[NOTE]] = UNAVAILABLE
    commit, lsn = sent.position or (0, 0)
    lsn += 1_000  # the stream goes below 0
    source = {
        "connector": "postgresql",
        "snapshot": "false" if sent.position else "true",
        "sequence": f'["{commit}","{lsn}"]',
        "lsn": lsn,
    }
    op = "d" if row is None else "u" if sent.position else "r"
    value = {"before": None, "after": row, "source": source, "op": op}
    return TopicEntry(offset, key, json.dumps(value).encode())


def expected_of(stream: list[Sent]) -> list[tuple[int, RowChange]]:
    reader = InOrder()
    taken = ((offset, sent.key, reader.take((sent.key,), sent.record)) for offset, sent in enumerate(stream))
    return [(offset, expected_change(key, change)) for offset, key, change in taken if change]


def expected_change(key: int, change: Change) -> RowChange:
    before, after = (None if row is None else ROWS.encode(row) for row in (change.before, change.after))
    return RowChange(KEYS.encode((key,)), before, after)


def recoded(entries: list[TopicEntry]) -> list[TopicEntry]:
    [source] = canonical([ListSource(entries)], FORM, TABLE.columns, TABLE.key_columns)
    return list(source.entries())


@settings(max_examples=examples(80))
@given(seed=st.integers(0, 2**32), chunk=st.sampled_from([1, 5, 2_000]))
def test_a_partition_s_changes_are_those_of_one_reader(seed: int, chunk: int) -> None:
    stream = list(Connector(random.Random(seed)).stream(30))
    entries = [event_of(offset, sent) for offset, sent in enumerate(stream)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_RECORDS", chunk)
        found = recoded(entries)
    assert [(entry.offset, entry.change) for entry in found] == expected_of(stream)
    assert [(entry.key, entry.value) for entry in found] == [
        (entries[entry.offset].key, entries[entry.offset].value) for entry in found
    ]


def test_a_value_that_is_left_out_of_a_row_that_is_not_there_is_at_fault() -> None:
    entry = event_of(0, Sent(1, (1, 0, "a"), (5, 7), leaves_out=True))
    assert recoded([entry]) == [entry]

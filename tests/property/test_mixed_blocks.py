"""Blocks in which invalid records, tombstones and records by unknown schemas stand anywhere between sound ones.

A columnar reader takes a block or refuses it; what it refuses is read in pieces. Wherever the others stand, each sound
record is read as it would be without them, and each of the others has its own error, or waits for its own schema.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from schemas.avro.registered import KnownSchemas, frame
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema
from state.columns import OFFSET, OP
from streaming.source.decoded import AWAITED, AWAITS, ERROR
from tests.kit import avro_events, avro_records, json_records
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.decoding import Record, batch_of, by_reference, differences, raw
from tests.kit.values import drawn
from tests.property import test_decoded_append, test_decoded_events
from tests.property.test_decoded_changes import legal_changes
from tests.property.test_decoded_upserts import WIDE

COUNT, UNKNOWN = 120, 99


@dataclass(frozen=True)
class Form:
    """A form of records, with sound ones."""

    format: UpstreamFormat
    table: TableSchema
    sound: list[Record]


def _changes() -> Form:
    values, keys = ChangeCodec(WIDE.columns), KeyCodec(WIDE.key_columns)
    changes = drawn(legal_changes(WIDE), COUNT)
    sound = [(keys.encode(WIDE.key_of(each.row)), values.encode(each)) for each in changes]
    return Form(ChangeFormat(), WIDE, list(sound))


def _upserts() -> Form:
    return Form(UpsertFormat(), WIDE, drawn(json_records.records(WIDE, key="record", odd=False), COUNT))


def _events() -> Form:
    format_, table = test_decoded_events.FRAMED, test_decoded_events.TABLE
    return Form(format_, table, drawn(test_decoded_events.events(table, format_, odd=False), COUNT))


def _rows() -> Form:
    table = test_decoded_append.WIDE
    found = drawn(json_records.objects(table.columns, odd=False), COUNT)
    return Form(AppendFormat(), table, [(b"k", text.encode()) for text in found])


def _registered_upserts() -> Form:
    *_, (schemas, found) = drawn(avro_records.batches(WIDE, key="record", odd=False), 3)
    format_ = UpsertFormat(encoding="avro-registry")
    return Form(format_.with_schemas(KnownSchemas(schemas)), WIDE, found)


def _registered_events() -> Form:
    *_, (schemas, found) = drawn(avro_events.events(WIDE, odd=False), 3)
    format_ = DebeziumFormat(encoding="avro-registry")
    return Form(format_.with_schemas(KnownSchemas(schemas)), WIDE, found)


def _registered_rows() -> Form:
    table = test_decoded_append.WIDE
    *_, (schemas, found) = drawn(avro_records.batches(table, key="record", odd=False), 3)
    format_ = AppendFormat(encoding="avro-registry")
    return Form(format_.with_schemas(KnownSchemas(schemas)), table, [each for each in found if each[1]])


FORMS: dict[str, Callable[[], Form]] = {
    "change": _changes,
    "upsert in JSON": _upserts,
    "debezium in JSON": _events,
    "append in JSON": _rows,
    "upsert in Avro": _registered_upserts,
    "debezium in Avro": _registered_events,
    "append in Avro": _registered_rows,
}


def others(form: Form, record: Record, draw: random.Random) -> list[Record]:
    """Each kind of record that is no sound row, made of one that is."""
    key, value = record
    assert value
    found: list[Record] = [
        (key, None),
        (key, b""),
        (key, value[: draw.randrange(1, len(value))]),
        (key, value[:-1] + b"\xff"),
        (key, b"\xff" + value),
    ]
    if not isinstance(form.format, ChangeFormat):  # whose key is compared behind the decoder
        found += [(None, value), (b"\xff", value), (b"", value)]
    if form.format.framed.value:
        found.append((key, frame(UNKNOWN) + value[5:]))
    if form.format.framed.key and key is not None:
        found.append((frame(UNKNOWN) + key[5:], value))
    return found


def mixed(form: Form, draw: random.Random, many: bool) -> list[tuple[Record, bool]]:
    """Sound records, with others between them: one, or `many`."""
    found = [(each, True) for each in form.sound]
    filled = [each for each in form.sound if each[1]]
    for _ in range(3 if many else 1):
        odd = others(form, draw.choice(filled), draw)
        for each in odd if many else [draw.choice(odd)]:
            found.insert(draw.randrange(len(found) + 1), (each, False))
    return found


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_records_between_sound_ones_keep_to_themselves(name: str, many: bool) -> None:
    form = FORMS[name]()
    assert not [each for each in by_reference(form.format, form.table, form.sound) if isinstance(each, str)]
    found = mixed(form, random.Random(f"{name} 0"), many)
    records = [record for record, _ in found]
    filled = [each for each in records if each[1] is not None]  # null is no change, or no record, to some
    assert differences(form.format, form.table, filled) == []
    batch = batch_of(form.format, form.table, raw(records))
    sound = [row for row, (_, is_sound) in enumerate(found) if is_sound]
    assert batch[ERROR].take(sound).null_count == len(sound)
    assert said(batch.take(sound)) == said(batch_of(form.format, form.table, raw(form.sound)))
    waiting = [row for row, ids in enumerate(batch[AWAITED].to_pylist()) if ids]
    assert [batch[OP][row].as_py() for row in waiting] == [AWAITS] * len(waiting)
    assert all(UNKNOWN in (batch[AWAITED][row].as_py()) for row in waiting)
    assert bool(waiting) or not (many and form.format.framed)


def said(batch: pa.RecordBatch) -> list[str]:
    """The records of a batch, in which NaN equals itself."""
    return [repr(row) for row in batch.drop_columns([OFFSET]).to_pylist()]

"""The output format `debezium` in Avro: the constants of an envelope, and the strict reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.avro.columnar import PRESENT
from schemas.avro.limits import MalformedError
from schemas.avro.output_schemas import envelope
from schemas.avro.reader import Ranges
from schemas.avro.registered import SchemaIds
from schemas.errors import Code
from schemas.formats.outputs.avro_records import FramedKeyRows, FramedRecord, same
from schemas.formats.outputs.envelope import CONNECTOR, OPS, READ
from schemas.formats.outputs.halves import EventRows, Events
from schemas.formats.protocol import Origin
from schemas.records import Barrier, BarrierKind, Change, Row
from schemas.table import Column

_ANY_TOPIC = "_"


def source_bytes(job: str, table: str, letter: str, barrier: Barrier, written_by: str) -> bytes:
    """The bytes between the row after and the number of the part."""
    snapshot = "true" if letter == READ else "false"
    first, rest = (written_by, CONNECTOR, job), (snapshot, "", table, str(barrier.curr))
    return b"".join([*map(_text, first), _number(barrier.injected_at_ms), *map(_text, rest)])


def tail_bytes(letter: str, barrier: Barrier) -> bytes:
    """The bytes behind the number of the part."""
    return _text(letter) + PRESENT + _number(barrier.injected_at_ms)


def _number(value: int) -> bytes:
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


def avro_event_rows(
    columns: Sequence[Column], key_columns: Sequence[Column], ids: SchemaIds, *, tombstones: bool
) -> EventRows:
    """The reference implementation."""
    keys, events = FramedKeyRows(key_columns, ids.key), _AvroEvents(columns, ids.value)
    return EventRows(columns, keys, events, tombstones=tombstones)


class _AvroEvents(Events):
    """Reads an event by writing it again from its content, and comparing: any other form is refused."""

    def __init__(self, columns: Sequence[Column], schema_id: int) -> None:
        schema = envelope(columns, _ANY_TOPIC)
        self._record = FramedRecord(schema, schema_id, "a value", Code.CHANGE_MALFORMED)
        self._names, self._ranges = [column.name for column in columns], Ranges(columns)

    def read(self, data: bytes, where: str | None) -> Change:
        """Raises: InputError: UNKNOWN_OP, CHANGE_MALFORMED in general, and as `FramedRows.read`."""
        try:
            return self._change(data)
        except MalformedError as reason:
            raise self._record.error(reason, data, where) from None

    def _change(self, data: bytes) -> Change:
        event = self._record.read(data)
        letter = event["op"]
        if letter not in OPS:
            raise MalformedError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
        before, after = (self._row(event[half]) for half in ("before", "after"))
        change = Change(OPS[letter], before, after)
        if not change.is_well_formed():
            raise MalformedError(f"an event {letter} with other rows than it has")
        same(data, self.write(letter, change, *_origin(event["source"])))
        return change

    def _row(self, fields: dict[str, Any] | None) -> Row | None:
        if fields is None:
            return None
        row = tuple(fields.values())
        self._ranges.check(row)
        return row

    def write(self, letter: str, change: Change, origin: Origin, by: str) -> bytes:
        before, after = (
            None if row is None else dict(zip(self._names, row, strict=True))
            for row in (change.before, change.after)
        )
        barrier = origin.barrier
        source = {
            "version": by,
            "connector": CONNECTOR,
            "name": origin.job,
            "ts_ms": barrier.injected_at_ms,
            "snapshot": "true" if letter == READ else "false",
            "db": "",
            "table": origin.table,
            "epoch": str(barrier.curr),
            "vnode": origin.part,
        }
        event = {"before": before, "after": after, "source": source, "op": letter}
        return self._record.write({**event, "ts_ms": barrier.injected_at_ms})


def _origin(source: dict[str, Any]) -> tuple[Origin, str]:
    """The origin in an event's source, and the version that wrote it. Raises: MalformedError."""
    epoch = source["epoch"]
    if not (epoch.isascii() and epoch.isdigit()):
        raise MalformedError("an epoch that is no number")
    barrier = Barrier(int(epoch), 0, BarrierKind.BARRIER, 1, source["ts_ms"])
    return Origin(source["name"], source["table"], source["vnode"], barrier), source["version"]

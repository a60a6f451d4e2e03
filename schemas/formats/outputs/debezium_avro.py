"""The constants of an envelope in Avro."""

from __future__ import annotations

from schemas.avro.columnar import PRESENT
from schemas.formats.outputs.envelope import CONNECTOR, READ
from schemas.records import Barrier


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

"""Messages as records of the contract, and values as text for people and their tools."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from confluent_kafka import Message

from schemas.avro.codec import decode_barrier
from schemas.epoch import NO_EPOCH
from schemas.errors import Code, InputError
from schemas.formats.protocol import Format, Images
from schemas.formats.registry import DEFAULT
from schemas.position import Key
from schemas.records import BARRIER_HEADER, Barrier, Change
from schemas.table import Column
from streaming.kafka.consumer import header_of, located, location


@dataclass(frozen=True, slots=True)
class Record:
    """A change with its key, or a barrier (`key` None), at its place in a partition.

    `epoch` is the barrier's own, and for a change that of the barrier before it in its partition (0: none
    yet): the interval that holds the change began there, and where it ends is not known yet. Of a row without identity
    the key is one value, the record's key as it came.
    """

    where: str
    partition: int
    epoch: int
    key: Key | None
    body: Change | Barrier


class RecordDecoder:
    """Decodes the messages of one topic, those of each partition in order.

    `columns` are those of the topic's `Row`: the table's for an upstream, the job's for an output.
    """

    def __init__(
        self, columns: Sequence[Column], key_columns: Sequence[Column], format_: Format = DEFAULT
    ) -> None:
        self._rows, self._tombstones = format_.rows(columns, key_columns), format_.may_be_null
        self._has_identity = format_.images is not Images.ROWS
        self._epochs: dict[int, int] = {}

    def decode(self, message: Message) -> Record | None:
        """None for one that says nothing of the table.

        Raises: InputError with the record's place, when it is none of the contract.
        """
        where, (partition, _) = location(message), located(message)
        header = header_of(message, BARRIER_HEADER)
        if header is not None:
            barrier = decode_barrier(header, message.value(), where=where)
            self._epochs[partition] = barrier.curr
            return Record(where, partition, barrier.curr, None, barrier)
        key, value = _bytes(message.key()), _bytes(message.value())
        if value is None and not self._tombstones:
            raise _misfit(Code.TOMBSTONE_UNSUPPORTED, where, "a record without a value")
        if key is None and self._has_identity and not self._tombstones:
            raise _misfit(Code.KEY_MISMATCH, where, "a record without a key")
        change = self._rows.read_record(key, value, where=where).change
        if change is None:
            return None
        row_key = self._rows.read_key(key or b"", where=where) if self._has_identity else (key,)
        return Record(where, partition, self._epochs.get(partition, NO_EPOCH), row_key, change)


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def _misfit(code: Code, where: str, found: str) -> InputError:
    return InputError(code, where=where, found=found, expected="a change with key and value, or a barrier")


def plain(value: object) -> object:
    """A value as JSON can say it: numbers and booleans as such, the rest as text, bytes in base64."""
    match value:
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value

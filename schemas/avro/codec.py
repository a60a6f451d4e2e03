"""Records to bytes and back with fastavro, one at a time.

For the edges: barriers, `produce`, `consume`, `verify`, tests. The path of every row in the service does not
come through here: `schemas.avro.columns` decodes and `schemas.avro.columnar` encodes, both columnar.
This is the readable reference that both are tested against.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.binary import BARRIER_SCHEMA, change_schema, key_schema
from schemas.avro.limits import MalformedError, check_claims
from schemas.avro.reader import INT_MAX, Ranges, RecordReader, check_op
from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import (
    Add,
    Barrier,
    BarrierKind,
    Change,
    Drop,
    Mutation,
    Op,
    Pause,
    Resume,
    Row,
    Stop,
    Throttle,
    VnodeProgress,
)
from schemas.table import Column
from schemas.types import TypeName, Value

HALVES = "INSERT with after, DELETE with before, UPDATE with both"
MUTATIONS: dict[str, type[Mutation]] = {
    kind.__name__: kind for kind in (Add, Drop, Pause, Resume, Throttle, Stop)
}


def _avro_error(reason: MalformedError, code: Code, what: str, data: bytes, where: str | None) -> InputError:
    return InputError(
        reason.code or code,
        where=where,
        found=f"{len(data)} bytes that are no {what} ({reason})",
        expected=f"schemaless Avro of {what} as the table declares it",
    )


class ChangeCodec:
    """Changes over one list of columns. Rows are tuples in that order.

    The same codec reads an upstream (all columns of the table) and an output (the job's columns).
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._names = tuple(column.name for column in columns)
        self._schema = fastavro.parse_schema(change_schema(columns))
        self._reader = RecordReader(self._schema)
        self._ranges = Ranges(columns)

    def encode(self, change: Change) -> bytes:
        """The record's value. ValueError, TypeError or the like for a row that the columns can't hold."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, self._to_avro(change))
        return out.getvalue()

    def _to_avro(self, change: Change) -> dict[str, Any]:
        before, after = self._named(change.before), self._named(change.after)
        return {"op": change.op.name, "before": before, "after": after}

    def _named(self, row: Row | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))

    def decode(self, data: bytes, *, where: str | None = None) -> Change:
        """Read a change.

        Raises:
            InputError: UNKNOWN_OP; AVRO_TRUNCATED; AVRO_TRAILING; AVRO_LIMIT, a length that no value has;
                BAD_ENCODING, a text that is not UTF-8; VALUE_OUT_OF_RANGE; CHANGE_MALFORMED, anything else, images
                that the op forbids included.
        """
        try:
            check_op(data)
            value = self._reader.read(data)
            change = Change(Op[value["op"]], _values(value["before"]), _values(value["after"]))
            for row in (change.before, change.after):
                if row is not None:
                    self._ranges.check(row)
        except MalformedError as reason:
            raise _avro_error(reason, Code.CHANGE_MALFORMED, "Change", data, where) from None
        if not change.is_well_formed():
            raise InputError(
                Code.CHANGE_MALFORMED,
                where=where,
                found=f"{change.op.name} with before={'null' if change.before is None else 'set'}, "
                f"after={'null' if change.after is None else 'set'}",
                expected=HALVES,
            )
        return change


def _values(record: dict[str, Any] | None) -> Row | None:
    return None if record is None else tuple(record.values())


class KeyCodec:
    """The key record of a table."""

    def __init__(self, key_columns: Sequence[Column]) -> None:
        self._names = tuple(column.name for column in key_columns)
        self._schema = fastavro.parse_schema(key_schema(key_columns))
        self._reader = RecordReader(self._schema)
        self._ranges = Ranges(key_columns)

    def encode(self, key: Key) -> bytes:
        """The record's key. ValueError, TypeError or the like for a key that the columns can't hold."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, dict(zip(self._names, key, strict=True)))
        return out.getvalue()

    def decode(self, data: bytes, *, where: str | None = None) -> Key:
        """Read a key. InputError as from `ChangeCodec.decode`, but KEY_MISMATCH where no other code fits."""
        try:
            key = tuple(self._reader.read(data).values())
            self._ranges.check(key)
        except MalformedError as reason:
            raise _avro_error(reason, Code.KEY_MISMATCH, "Key", data, where) from None
        return key


_BARRIER = fastavro.parse_schema(BARRIER_SCHEMA)
_BARRIERS = RecordReader(_BARRIER, named=True)
MAX_BARRIER_BYTES = 16 << 20
"""An entry for each of the most vnodes there can be, with positions of hundreds of bytes."""


def encode_barrier(barrier: Barrier) -> bytes:
    """Value of a barrier record; its header is `barrier_header`."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _BARRIER, _barrier_to_avro(barrier))
    return out.getvalue()


def barrier_header(barrier: Barrier) -> bytes:
    """Value of the `barrier` header."""
    return str(barrier.curr).encode("ascii")


def _barrier_to_avro(barrier: Barrier) -> dict[str, Any]:
    return {
        "curr": barrier.curr,
        "prev": barrier.prev,
        "kind": barrier.kind.name,
        "partitions": barrier.partitions,
        "injected_at": barrier.injected_at_ms,
        "mutation": _mutation_to_avro(barrier.mutation),
        "progress": [
            {"vnode": p.vnode, "position": p.position, "finished": p.finished, "row_count": p.row_count}
            for p in barrier.progress
        ],
    }


def _mutation_to_avro(mutation: Mutation | None) -> tuple[str, dict[str, Any]] | None:
    if mutation is None:
        return None
    fields = {name: getattr(mutation, name) for name in mutation.__dataclass_fields__}
    return type(mutation).__name__, fields


def decode_barrier(header: bytes | None, data: bytes | None, *, where: str | None = None) -> Barrier:
    """Read a barrier record from its header and value, which must agree.

    Raises:
        InputError: BARRIER_MALFORMED for bytes that are no barrier, a header that is not the value's epoch,
            `curr` not above `prev`, or a count of partitions below 1; BARRIER_UNSUPPORTED for a kind or a mutation
            that is not known; AVRO_LIMIT for lengths and counts that no barrier has, and more than
            `MAX_BARRIER_BYTES`.
    """
    code = Code.BARRIER_MALFORMED
    try:
        if data is None:
            raise MalformedError("null value")
        if len(data) > MAX_BARRIER_BYTES:
            raise MalformedError("more than a barrier can have", Code.AVRO_LIMIT)
        code = Code.BARRIER_UNSUPPORTED
        check_claims(data, _BARRIER)
        code = Code.BARRIER_MALFORMED
        barrier = _barrier_from_avro(_BARRIERS.read(data))
        check_barrier(barrier, header)
    except MalformedError as reason:
        raise InputError(
            Code.AVRO_LIMIT if reason.code is Code.AVRO_LIMIT else code,
            where=where,
            found=f"a record with the header `barrier` that is no barrier ({reason})",
        ) from None
    return barrier


def check_barrier(barrier: Barrier, header: bytes | None) -> None:
    """The conditions on a barrier in the data and in a separate topic. Raises: MalformedError."""
    if header != barrier_header(barrier):
        raise MalformedError("header and value name different epochs")
    if not barrier.curr > barrier.prev >= 0:
        raise MalformedError("curr is not above prev")
    if not 1 <= barrier.partitions <= INT_MAX:
        raise MalformedError("partitions is below 1 or no int")


def _barrier_from_avro(value: dict[str, Any]) -> Barrier:
    injected_at = value["injected_at"]
    return Barrier(
        curr=value["curr"],
        prev=value["prev"],
        kind=BarrierKind[value["kind"]],
        partitions=value["partitions"],
        injected_at_ms=_unix_ms(injected_at) if isinstance(injected_at, dt.datetime) else injected_at,
        mutation=_mutation_from_avro(value["mutation"]),
        progress=tuple(VnodeProgress(**dict(item)) for item in value["progress"]),
    )


def _mutation_from_avro(value: tuple[str, dict[str, Any]] | None) -> Mutation | None:
    if value is None:
        return None
    name, fields = value
    return MUTATIONS[name](**fields)


_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _unix_ms(instant: dt.datetime) -> int:
    return (instant - _UNIX_ZERO) // dt.timedelta(milliseconds=1)


def canonical(value: Value, column: Column) -> Value:
    """A value as the codec would give it back.

    Decimals at the declared scale and without a negative zero, timestamps in UTC, floats rounded to 32 bits.

    Raises:
        ValueError: a decimal that does not fit the declared precision and scale exactly, a timestamp without
            a time zone (fastavro would take it for local time), a float beyond 32 bits.
    """
    match value:
        case Decimal():
            return _fixed_point(value, column)
        case dt.datetime():
            if value.tzinfo is None:
                raise ValueError(f"{column.name}: a timestamp needs a time zone")
            return value.astimezone(dt.UTC)
        case float() if column.type.name is TypeName.FLOAT:
            try:
                return struct.unpack("<f", struct.pack("<f", value))[0]
            except OverflowError:
                raise ValueError(f"{column.name}: a value beyond 32-bit floats") from None
        case _:
            return value


def _fixed_point(value: Decimal, column: Column) -> Decimal:
    fixed = column.type.exact(value)
    if fixed is None:
        raise ValueError(f"{column.name}: a value does not fit {column.type}")
    return fixed

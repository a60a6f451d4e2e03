"""Records to bytes and back with fastavro, one at a time: for the edges (tests, `produce`, `consume`, `verify`, barriers).

The path of every row in the service does not come through here: Spark decodes upstream changes in the JVM
and `schemas.columnar` encodes whole columns. This is the readable twin that both are tested against.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro import BARRIER_SCHEMA, change_schema, key_schema
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

_MUTATIONS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Add, Drop, Pause, Resume, Throttle, Stop)}


class _Malformed(ValueError):
    """Why bytes are not a record; the caller knows the place and the code."""


def _decode(data: bytes, schema: Any, *, named: bool = False) -> Any:
    stream = BytesIO(data)
    try:
        value = fastavro.schemaless_reader(
            stream, schema, None, return_record_name=named, return_record_name_override=named
        )
    except EOFError:
        raise _Malformed("truncated") from None
    except Exception as error:  # fastavro raises whatever its C code meets
        raise _Malformed(type(error).__name__) from None
    if stream.tell() != len(data):
        raise _Malformed("trailing")
    return value


def _avro_error(reason: _Malformed, code: Code, what: str, size: int, where: str | None) -> InputError:
    code = {"truncated": Code.AVRO_TRUNCATED, "trailing": Code.AVRO_TRAILING}.get(str(reason), code)
    return InputError(
        code,
        where=where,
        found=f"{size} bytes that are no {what} ({reason})",
        expected=f"schemaless Avro of {what} as the table declares it",
        next_step="check the producer's schema against the table's declaration",
    )


class ChangeCodec:
    """Changes over one list of columns. Rows are tuples in that order.

    The same codec reads an upstream (all columns of the table) and an output (the job's columns).
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._names = tuple(column.name for column in columns)
        self._schema = fastavro.parse_schema(change_schema(columns))

    def encode(self, change: Change) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, self._to_avro(change))
        return out.getvalue()

    def _to_avro(self, change: Change) -> dict[str, Any]:
        return {"op": change.op.name, "before": self._named(change.before), "after": self._named(change.after)}

    def _named(self, row: Row | None) -> dict[str, Any] | None:
        return None if row is None else dict(zip(self._names, row, strict=True))

    def decode(self, data: bytes, *, where: str | None = None) -> Change:
        """Raises InputError: AVRO_TRUNCATED, AVRO_TRAILING, or CHANGE_MALFORMED (also for halves that the op forbids)."""
        try:
            value = _decode(data, self._schema)
        except _Malformed as reason:
            raise _avro_error(reason, Code.CHANGE_MALFORMED, "Change", len(data), where) from None
        change = Change(Op[value["op"]], _values(value["before"]), _values(value["after"]))
        if not change.is_well_formed():
            raise InputError(
                Code.CHANGE_MALFORMED,
                where=where,
                found=f"{change.op.name} with before={'set' if change.before else 'null'}, "
                f"after={'set' if change.after else 'null'}",
                expected="INSERT with after, DELETE with before, UPDATE with both",
                next_step="mend the producer",
            )
        return change


def _values(record: dict[str, Any] | None) -> Row | None:
    return None if record is None else tuple(record.values())


class KeyCodec:
    """The key record of a table."""

    def __init__(self, key_columns: Sequence[Column]) -> None:
        self._names = tuple(column.name for column in key_columns)
        self._schema = fastavro.parse_schema(key_schema(key_columns))

    def encode(self, key: Key) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, dict(zip(self._names, key, strict=True)))
        return out.getvalue()

    def decode(self, data: bytes, *, where: str | None = None) -> Key:
        try:
            return tuple(_decode(data, self._schema).values())
        except _Malformed as reason:
            raise _avro_error(reason, Code.KEY_MISMATCH, "Key", len(data), where) from None


_BARRIER = fastavro.parse_schema(BARRIER_SCHEMA)


def encode_barrier(barrier: Barrier) -> bytes:
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

    Raises: InputError(BARRIER_MALFORMED) for bytes that are no barrier, a header that is no epoch or not the
    value's, `curr` not above `prev`, or a count of partitions below 1.
    """
    try:
        if data is None:
            raise _Malformed("null value")
        value = _decode(data, _BARRIER, named=True)
        barrier = _barrier_from_avro(value)
        _check(barrier, header)
    except _Malformed as reason:
        raise InputError(
            Code.BARRIER_MALFORMED,
            where=where,
            found=f"a record with the header `barrier` that is no barrier ({reason})",
            expected="header = curr in decimal, value = Avro of Barrier with curr > prev >= 0 and partitions >= 1",
            next_step="mend whatever injects barriers into this topic",
        ) from None
    return barrier


def _check(barrier: Barrier, header: bytes | None) -> None:
    if header is None or not header.isdigit() or int(header) != barrier.curr:
        raise _Malformed("header and value name different epochs")
    if not barrier.curr > barrier.prev >= 0:
        raise _Malformed("curr is not above prev")
    if barrier.partitions < 1:
        raise _Malformed("partitions is below 1")


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


def _mutation_from_avro(value: Any) -> Mutation | None:
    if value is None:
        return None
    name, fields = value
    mutation: Mutation = _MUTATIONS[name](**fields)
    return mutation


_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _unix_ms(instant: dt.datetime) -> int:
    return (instant - _UNIX_ZERO) // dt.timedelta(milliseconds=1)


def canonical(value: Any, column: Column) -> Any:
    """A value as the codec would give it back: decimals at the declared scale, timestamps in UTC.

    ValueError when a decimal does not fit the declared precision and scale exactly.
    """
    if isinstance(value, Decimal):
        assert column.type.precision is not None and column.type.scale is not None
        fixed = value.quantize(Decimal(1).scaleb(-column.type.scale))
        if fixed != value or len(fixed.as_tuple().digits) > column.type.precision:
            raise ValueError(f"{column.name}: {value} does not fit {column.type}")
        return fixed
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    return value

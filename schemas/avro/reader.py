"""Avro bytes to fastavro's values, with one error for all that can be wrong with them.

fastavro is built for files whose writer can be trusted. From a topic, where bytes may be anything, it lets
some things pass and names others by whatever its C code ran into:

- a truncated number is an IndexError, as is a union branch that does not exist;
- a negative index of a symbol counts from the end, so op -1 would be a DELETE;
- an int may have 64 bits;
- a decimal of more digits than declared is rounded;
- a date or timestamp that Python can't hold is an OverflowError or a ValueError;
- a negative union index counts from the end too, any byte but 0 is TRUE, a decimal of no byte is 0,
  and numbers may have any number of bytes (`schemas.avro.strict`).
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, cast

import fastavro
from fastavro.types import Schema

from schemas.avro.limits import MalformedError, check_claims, is_unbounded
from schemas.avro.strict import strict_step
from schemas.errors import Code
from schemas.records import Op, Row
from schemas.table import Column
from schemas.types import TypeName

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
_OP_BYTES = frozenset(bytes([2 * op]) for op in Op)


class RecordReader:
    """Reads records of one schema. With a `reader` the fields that it lacks are passed over.

    Both are as `fastavro.parse_schema` gives them. Records in unions are (name, fields) if `named`.
    """

    def __init__(self, schema: Schema, reader: Schema | None = None, *, named: bool = False) -> None:
        self._schema, self._reader, self._named = schema, reader, named
        self._end = strict_step(schema, passes_over=reader is not None)
        self._is_unbounded = is_unbounded(schema)

    def read(self, data: bytes) -> dict[str, Any]:
        """All of `data` as one record. Raises: MalformedError."""
        if self._is_unbounded:
            check_claims(data, self._schema)
        stream = BytesIO(data)
        try:
            value = _read(stream, self._schema, self._reader, named=self._named)
        except MalformedError as reason:
            raise self._why(data) if reason.code is Code.AVRO_TRUNCATED else reason from None
        left = len(data) - stream.tell()
        if left:
            raise MalformedError(f"{left} bytes left over", Code.AVRO_TRAILING)
        self._check(data)
        return cast("dict[str, Any]", value)

    def _check(self, data: bytes) -> None:
        try:
            is_whole = self._end(data, 0) <= len(data)
        except IndexError:
            is_whole = False
        if not is_whole:
            raise self._why(data)

    def _why(self, data: bytes) -> MalformedError:
        """The error for truncated bytes. Nothing was built of missing bytes, so a false claim may be the cause."""
        try:
            check_claims(data, self._schema)
        except MalformedError as reason:
            return reason
        return MalformedError("truncated", Code.AVRO_TRUNCATED)


def check_op(data: bytes) -> None:
    """MalformedError(UNKNOWN_OP) unless the bytes of a Change begin with an op that exists."""
    if data[:1] in _OP_BYTES:
        return
    index = cast("int", _read(BytesIO(data), "int"))
    if not 0 <= index < len(Op):
        raise MalformedError(f"op {index} where 0..{len(Op) - 1} exist", Code.UNKNOWN_OP)


def _read(stream: BytesIO, schema: Schema, reader: Schema | None = None, *, named: bool = False) -> object:
    try:
        return fastavro.schemaless_reader(
            stream, schema, reader, return_record_name=named, return_record_name_override=named
        )
    except EOFError:
        raise MalformedError("truncated", Code.AVRO_TRUNCATED) from None
    except UnicodeDecodeError:
        raise MalformedError("a text is not UTF-8", Code.BAD_ENCODING) from None
    except (OverflowError, ValueError):
        raise MalformedError("a date or timestamp outside 0001..9999", Code.VALUE_OUT_OF_RANGE) from None
    except IndexError:
        if _ends_inside_number(stream):
            raise MalformedError("truncated", Code.AVRO_TRUNCATED) from None
        raise MalformedError("a union branch or symbol that does not exist") from None
    except Exception as error:  # noqa: BLE001 (whatever the C code meets)
        raise MalformedError(type(error).__name__) from None


def _ends_inside_number(stream: BytesIO) -> bool:
    data = stream.getvalue()
    return stream.tell() == len(data) and data[-1:] >= b"\x80"


class Ranges:
    """Checks the values of rows whose declared range is narrower than what fastavro reads."""

    def __init__(self, columns: Sequence[Column]) -> None:
        ints = [(index, c) for index, c in enumerate(columns) if c.type.name is TypeName.INT]
        decimals = [(index, c) for index, c in enumerate(columns) if c.type.name is TypeName.DECIMAL]
        self._ints = ints
        self._decimals = [(i, c, (c.type.precision or 0) - (c.type.scale or 0)) for i, c in decimals]

    def check(self, row: Row) -> None:
        """MalformedError(VALUE_OUT_OF_RANGE) for the first column whose value does not fit its type."""
        for index, column in self._ints:
            value = row[index]
            if value is not None and not INT_MIN <= value <= INT_MAX:
                raise _out_of_range(column)
        for index, column, whole_digits in self._decimals:
            value = row[index]
            # Rounding keeps the magnitude, so it still shows that there were too many digits.
            if value is not None and value.adjusted() >= whole_digits:
                raise _out_of_range(column)


def _out_of_range(column: Column) -> MalformedError:
    return MalformedError(f"column {column.name} does not fit {column.type}", Code.VALUE_OUT_OF_RANGE)

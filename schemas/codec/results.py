"""Decoded records, columnar, with an error for each record that is invalid.

An *encoding* (JSON, Avro) turns the keys or the values of n records into n structs, and does not know what they mean.
An *envelope* (`change`, `upsert`, `debezium`, `append`) asks for the structs that it needs, and makes of them what each
record says of the table. Errors are never raised for a record: they are a column of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import in_order
from schemas.errors import Code, InputError
from schemas.table import Column

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Found = TypeVar("Found")


@dataclass
class RowErrors:
    """The errors of some of n records, by row; the first one that was found of each."""

    by_row: dict[int, InputError] = field(default_factory=dict)

    def add(self, row: int, error: InputError) -> None:
        """Keeps the error that a row has already."""
        self.by_row.setdefault(row, error)

    def add_where(self, flags: Flags, error: InputError) -> None:
        """Adds one error for each row that has the flag."""
        for row in np.flatnonzero(flags).tolist():
            self.add(row, error)

    def add_of(self, rows: Rows, errors: Mapping[int, InputError]) -> None:
        """Errors of records that were read apart: the i-th of them is row `rows[i]`."""
        for index, error in errors.items():
            self.add(int(rows[index]), error)

    def flags(self, count: int) -> Flags:
        """Flags for `count` records: True if a record has an error."""
        found = np.zeros(count, np.bool_)
        if self.by_row:
            found[list(self.by_row)] = True
        return found


class ReadStructs(NamedTuple):
    """Keys or values of n records as structs of the fields that were asked for.

    A struct is null where the record has an error, and where its value is a null within a frame. `late` are errors of
    values within a struct whose other fields are valid: an envelope reports its own errors, and those of keys, before.
    """

    structs: pa.StructArray
    errors: dict[int, InputError]
    late: dict[int, InputError]

    @classmethod
    def of(cls, structs: pa.StructArray, errors: dict[int, InputError] | None = None) -> ReadStructs:
        """A result without late errors."""
        return cls(structs, errors or {}, {})


class StructReader(Protocol):
    """The keys or the values of records in one encoding."""

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        """Reads n keys or values, none of which is null; slices are fine.

        Raises: what looking up a schema raises; no error of a record.
        """


class Decoded(NamedTuple):
    """The content of n records. Everything is null for a record with an error.

    `ops` are values of `records.Op` or `NO_DATA`; `before` and `after` structs of the table's columns, null for none.
    `unchanged` are lists of columns by index, never null; `positions` are as `log_positions` has them. Of these and
    `transactions` a format may have none.
    """

    ops: pa.Int8Array
    before: pa.StructArray
    after: pa.StructArray
    errors: dict[int, InputError]
    unchanged: pa.ListArray | None = None
    positions: pa.StructArray | None = None
    transactions: pa.Int64Array | None = None


class Decoder(Protocol):
    """Reads the records of an upstream in one format, over one list of columns. For one thread."""

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        """Decodes n records; values are null only where `Format.may_be_null` allows it.

        Raises: what looking up a schema raises; no error of a record.
        """

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        """Decodes n keys, none of which is null: the key columns, none of which is null."""


def read_where(
    reader: StructReader, records: pa.BinaryArray, wanted: Flags, errors: RowErrors
) -> pa.StructArray:
    """The structs of those of n records that are wanted, and nulls at the others. All errors are added."""
    rows = np.flatnonzero(wanted)
    read = reader.read(taken(records, rows))
    errors.add_of(rows, read.errors)
    errors.add_of(rows, read.late)
    return in_order([(rows, read.structs)], len(wanted))


def read_keys(
    reader: StructReader,
    keys: pa.BinaryArray,
    wanted: Flags,
    errors: RowErrors,
    *,
    may_be_empty: bool = False,
) -> pa.StructArray:
    """The keys of those of n records that are wanted, and nulls at the others.

    A wanted record without a key is invalid, and one whose key has no bytes, unless that `may_be_empty`.
    """
    has_key = flags_of(keys.is_valid() if may_be_empty else pc.greater(pc.binary_length(keys), 0))
    errors.add_where(wanted & ~has_key, InputError(Code.KEY_MISMATCH, found="a record without a key"))
    return read_where(reader, keys, wanted & has_key, errors)


def row_type(columns: Iterable[Column]) -> pa.StructType:
    """Rows of these columns."""
    return pa.struct([pa.field(column.name, column.type.arrow) for column in columns])


def rows_of(columns: Sequence[Column], arrays: Sequence[pa.Array], is_there: Flags) -> pa.StructArray:
    """Rows of these columns, null where none is there."""
    mask = None if is_there.all() else pa.array(~is_there)
    return pa.StructArray.from_arrays(list(arrays), fields=list(row_type(columns)), mask=mask)


def fields_of(structs: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of structs by name, null where the struct is."""
    return dict(zip((each.name for each in structs.type), structs.flatten(), strict=True))


def null_where(structs: pa.StructArray, flags: Flags) -> pa.StructArray:
    """These structs, null also where a flag is set."""
    if not flags.any():
        return structs
    mask = pa.array(flags | ~flags_of(structs.is_valid()))
    return pa.StructArray.from_arrays(structs.flatten(), fields=list(structs.type), mask=mask)


def replaced(array: pa.Array, rows: Rows, values: pa.Array) -> pa.Array:
    """The array with these values at these rows, which are in rising order."""
    places = np.arange(len(array))
    places[rows] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, values]).take(pa.array(places))


def read_marked(
    records: pa.BinaryArray, marked: Flags, read: Callable[[Any], Found]
) -> tuple[Rows, list[Found | None], dict[int, InputError]]:
    """The marked records, each read alone from bytes or None: rows, results (None with an error), errors by row."""
    rows, found, errors = np.flatnonzero(marked), list[Found | None](), dict[int, InputError]()
    for row in rows.tolist():
        try:
            found.append(read(records[row].as_py()))
        except InputError as error:
            errors[row] = error
            found.append(None)
    return rows, found, errors


def with_names(structs: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """Structs with the names of another type for their fields, which are taken by position."""
    return pa.StructArray.from_arrays(structs.flatten(), fields=list(kind), mask=structs.is_null())


def taken(array: pa.Array, rows: Rows) -> pa.Array:
    """These rows of an array, in rising order; not copied where these are all."""
    return array if len(rows) == len(array) else array.take(pa.array(rows))


def bytes_in(array: pa.BinaryArray) -> list[bytes]:
    """The values of an array without nulls; far faster than `to_pylist`."""
    values: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def flags_of(found: pa.BooleanArray) -> Flags:
    """Booleans as flags; a null is False."""
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)

"""Decoded records, columnar, with an error for each record that is invalid.

An *encoding* (JSON, Avro) turns the keys or the values of n records into n structs, and does not know what they mean.
An *envelope* (`change`, `upsert`, `debezium`, `append`) asks for the structs that it needs, and makes of them what each
record says of the table. Errors are never raised for a record: they are a column of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import InputError
from schemas.table import Column

Flags = npt.NDArray[np.bool_]


@dataclass
class RowErrors:
    """The errors of some of n records, by row; the first one that was found of each."""

    by_row: dict[int, InputError] = field(default_factory=dict)

    def add(self, row: int, error: InputError) -> None:
        """Keeps the error that a row has already."""
        self.by_row.setdefault(row, error)

    def add_all(self, rows: Iterable[int] | npt.NDArray[np.intp], error: InputError) -> None:
        """The same error for each of these rows."""
        for row in rows:
            self.add(int(row), error)

    def add_of(self, rows: npt.NDArray[np.intp], errors: Mapping[int, InputError]) -> None:
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


def row_type(columns: Iterable[Column]) -> pa.StructType:
    """Rows of these columns."""
    return pa.struct([pa.field(column.name, column.type.arrow) for column in columns])


def structs_at(structs: pa.StructArray, rows: npt.NDArray[np.intp], count: int) -> pa.StructArray:
    """Structs put at these of `count` rows, in rising order; nulls between them."""
    if len(rows) == count:
        return structs
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    mask = np.ones(count, np.bool_)
    mask[rows] = False
    return structs.take(pa.array(places, mask=mask))


def with_names(structs: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """The same fields, by position, under the names of another type."""
    arrays = [structs.field(index) for index in range(kind.num_fields)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=structs.is_null())

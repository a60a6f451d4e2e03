"""The door for formats: how changes of a table are written as records of a topic, and read back.

A format is chosen by its name in the configuration (`schemas.formats.registry`), once for the upstream and once for
each job: the two are separate values, whatever their kinds. Its fields are the keys that it takes there. Who calls it:

    the driver, once               validates the keys
    before the exchange            `UpstreamFormat.decoder`, for keys: the vnode of a record follows from its key
    a lane                         `UpstreamFormat.decoder`, `Format.keys` and `OutputFormat.values`

So a format is a small value: immutable, hashable, picklable, without open files or clients, and all that it makes may
be made again in another process. What encodes must be repeatable: the same rows give the same bytes in every process
and version, in batches of any size, and one primary key has one encoding for the life of an output. What decodes must
depend on nothing but the record.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict

from schemas.avro.registered import KnownSchemas, SchemaIds, Schemas, WriterSchema
from schemas.records import Barrier
from schemas.table import Column, TableSchema

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa  # commands that only ask for jobs do without it

    from schemas.codec.json.frame_columns import FrameColumns
    from schemas.codec.results import Decoder


Half: TypeAlias = Literal["key", "value"]
"""The name of a record's key or value."""


class Images(Enum):
    """The rows that come with a change."""

    FULL = "full"
    """INSERT has `after`, DELETE has `before`, UPDATE has both."""
    AFTER_ONLY = "after only"
    """INSERT says what the row is now, whether it was there or not; `before` of a DELETE has the key columns alone."""
    ROWS = "rows"
    """Rows without identity, each an INSERT into a table without a primary key; the record's key goes on as it came."""


@dataclass(frozen=True, slots=True)
class Framed:
    """Flags: True if a key or value begins with the id of a schema (its form: `schemas.avro.registered`)."""

    key: bool = False
    value: bool = False

    def __bool__(self) -> bool:
        return self.key or self.value


class KeyEncoder(Hashable, Protocol):
    """Encodes record keys, columnar. The keys of an encoder may be reused for another one that is equal."""

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        """One key for each row, from the key columns in key order.

        The arrays are of one length, each of its column's exact Arrow type; slices are fine, chunked arrays are not.
        The result has no nulls, offset 0 and 32-bit offsets.

        Raises: InputError(PK_NULL); TypeError and ValueError for arrays that are not these columns;
        pa.ArrowException for 2 GiB or more.
        """


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of n rows of one job, for formats that write them; `parts` and `intervals` have length n.

    Row i is in the part `parts[i]`, a vnode or what a job has instead, and in the interval that the upstream's barrier
    `barriers[intervals[i]]` closes.
    """

    job: str
    table: str
    parts: npt.NDArray[np.int32]
    intervals: npt.NDArray[np.int64]
    barriers: Sequence[Barrier]

    def __len__(self) -> int:
        return len(self.parts)

    def of(self, rows: npt.NDArray[np.int64] | None) -> Origins:
        """The origins of some of the rows; None: all."""
        return self if rows is None else replace(self, parts=self.parts[rows], intervals=self.intervals[rows])


class ValueEncoder(Protocol):
    """Encodes record values, columnar, from an output's columns in its order. Arrays and errors as in `KeyEncoder`.

    The result as well, but with a null for each record without a value, where `Format.may_be_null` allows that.
    """

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        """Rows of a snapshot read, each an INSERT."""

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        """Changes in the order of `ops` (values of `records.Op`), which may be mixed.

        Both images have full length; `before` of an INSERT and `after` of a DELETE hold arbitrary values.
        """


class Format(BaseModel):
    """The common part of upstreams' and outputs' formats. See the module for what a format may be and do.

    An implementation declares `format: Literal[<its name>]` and the further keys that it takes, with defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    may_hold_barriers: ClassVar[bool] = False
    """True if barriers may be records of the topic."""
    comes_again: ClassVar[bool] = False
    """True if records may be redelivered; they are recognised by `Decoded.positions`."""

    @property
    def form(self) -> str:
        """Format and encoding, for people: `debezium json`."""
        return " ".join(str(getattr(self, key)) for key in ("format", "encoding") if hasattr(self, key))

    @property
    def images(self) -> Images:
        """The row images that decoded changes must have; a lane refuses a change with others."""
        return Images.FULL

    @property
    def barriers_are_beside(self) -> bool:
        """True if barriers are in the separate topic `<topic>.barriers` by default, False if in the topic itself."""
        return not self.may_hold_barriers

    @property
    def may_be_null(self) -> bool:
        """True if a null value is a record of the format; if False, it is TOMBSTONE_UNSUPPORTED."""
        return False

    @property
    def may_be_unchanged(self) -> bool:
        """True if a change may leave out unchanged values (`Decoded.unchanged`)."""
        return False

    @property
    def reads_transactions(self) -> bool:
        """True if the transaction of each change is read (`Decoded.transactions`)."""
        return False

    @property
    def framed(self) -> Framed:
        """Flags: True if a record's key or value begins with the id of its writer's schema."""
        return Framed()

    @property
    def known(self) -> KnownSchemas:
        """The schemas that `with_schemas` gave it as a value. A record that names another one waits for it."""
        return KnownSchemas()

    def with_schemas(self, schemas: Schemas) -> Self:
        """This format, looking schemas up in these. For lanes and decoders they must be `KnownSchemas`."""
        return self

    def incompatibility_of_schema(self, half: Half, schema: WriterSchema, table: TableSchema) -> str | None:
        """The reason why no record by this schema can be a row of the table, for a `framed` key or value; else None."""
        return None

    def incompatibility(self, table: TableSchema) -> str | None:
        """The reason why records of this format can't hold the table, by the configuration alone; None if they can."""
        name = self.model_dump()["format"]
        if self.images is not Images.ROWS and not table.primary_key:
            return f"format {name!r} needs a table with a primary key; without one there is `append`"
        if self.images is Images.ROWS and table.primary_key:
            return f"format {name!r} is for a table without a primary key"
        return self.incompatibility_of_columns(table)

    def incompatibility_as_upstream(self, table: TableSchema) -> str | None:
        """The reason of an upstream, which has to read all keys of columns (`column_keys`) as well; else None."""
        for each in table.columns:
            if unread := sorted(each.keys_in_records.keys() - self.column_keys):
                return f"{unread[0]} of column {each.name} is not read by format {self.form!r}"
        return self.incompatibility(table)

    @property
    def column_keys(self) -> frozenset[str]:
        """The names of those of a column's keys `field`, `time`, `decimal`, `unsigned` and `fill` that are read."""
        return frozenset()

    def incompatibility_of_columns(self, table: TableSchema) -> str | None:
        """The reason by a format's own conditions on the columns and on its keys; None if they hold."""
        return None

    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder | None:
        """Encodes the keys that records should have: an equal key is right. None if the decoder compares keys."""
        return None


class UpstreamFormat(Format):
    """The format of an upstream: all that is needed to read it."""

    def frame_columns(self, table: TableSchema) -> FrameColumns | None:
        """The reader of the columns that a frame around a record lacks; None where that is no error."""
        return None

    @abstractmethod
    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> Decoder:
        """A columnar decoder of records to rows of these columns, with an error for each invalid record."""


class OutputFormat(Format):
    """The format of an output: all that is needed to write it, and to read it back."""

    names_origin: ClassVar[bool] = False
    """True if values depend on the `Origins` of their rows. If False, equal outputs are encoded once."""

    @property
    def tombstone_follows(self) -> bool:
        """True if each DELETE is followed by a tombstone: a record of the same key without a value."""
        return False

    @property
    def ids(self) -> SchemaIds | None:
        """The ids of schemas that records begin with, of a format that is `framed`; None until `with_ids`."""
        return None

    def with_ids(self, ids: SchemaIds) -> Self:
        """This format, its records beginning with these ids, if it is `framed`; without ids that raises ValueError."""
        return self

    @abstractmethod
    def keys(self, key_columns: Sequence[Column]) -> KeyEncoder | None:
        """Encodes the keys of an output. None where records keep the keys that they came with: with `Images.ROWS`."""

    @abstractmethod
    def values(self, columns: Sequence[Column]) -> ValueEncoder:
        """Encodes values over these columns, the job's, in its order."""

    @abstractmethod
    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        """The schemas of `key` and `value` for readers of this topic, as JSON values.

        They must not change between versions: another text is another schema in a registry.
        """

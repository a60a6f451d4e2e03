"""The Spark half of an upstream's format: records to the columns of `streaming.source.decoded`.

The driver makes a decoder once a source, and its columns once; the executors evaluate them for every record of a batch,
in the JVM: no Python function may be among them. They must be repeatable, as a batch that is run again has to decode
what it has decoded before, and they never raise: whatever a record holds, it becomes a row, with a null op where it is
no change. Which fault is reported then is decided by the strict twin (`schemas.formats.protocol.Rows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Decoded:
    """Spark columns of one record, named as in `streaming.source.decoded`.

    `op`: a number of `records.Op`, `NO_DATA`, null where the record does not decode, `AWAITS` where it names a schema
    that the format does not know. `before` and `after`: structs of the table's columns, in their order and types, or
    null. `value`: the record's value where the strict twin has to look at it, which is where `op` is null and where
    these columns might say something else than the twin; else null. Where the record has no value it may be empty in
    its place. `unchanged` and `position` are those of `records.UpstreamRecord`, an array of int and a struct of two
    bigint, null for none; of formats that have them. `transaction` is a bigint, likewise.
    """

    op: Column
    before: Column
    after: Column
    value: Column
    unchanged: Column | None = None
    position: Column | None = None
    transaction: Column | None = None


class Decoder(Protocol):
    """Makes the columns for one format and table. Called in the driver, once for each value of the format."""

    def read(self, key: Column, value: Column) -> Column:
        """The expensive part: one column, evaluated once a record. `key` and `value` are binary and may be null."""

    def checked(self, read: Column, key: Column, value: Column) -> Column | None:
        """A second expensive part, made from the first, which takes the place of `read` then. None: there is none."""
        return None

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        """The columns of the decoded record. `read` is evaluated by then: it may be used any number of times."""

"""Invalid upstream records, and those that wait for a schema: detection is columnar, reports are one by one.

Those that are no records of the upstream's format were found when they were decoded (`streaming.source.decoded`).
Checked here is what the contract forbids in every format: limits, marks of barriers, which images a change has, what a
value may be, which key an UPDATE keeps, and a record key that is another than its row's, where the decoder does not
compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.fallback import HALVES
from schemas.codec.results import flags_of
from schemas.error_table import expectation
from schemas.errors import Code
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.records import Op
from schemas.settings.limits import Limits
from schemas.table import Column, TableSchema
from state.columns import OFFSET, PARTITION
from state.values.arrays import invalid_values
from streaming.source.decoded import AFTER, AWAITED, BEFORE, ERROR, KEY, MARKED, SIZE, Changes
from streaming.source.records import Bools

Found = tuple[int, Code, str, str]
"""Row by index, code, what was found, what was expected."""

_SETTING = "limits.record_bytes"
MOST_FAULTS = 1_000
"""Reported by one lane of one batch."""
MOST_IDS = 1_000
"""Reported by one lane at a time; the rest is reported once these are known."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An upstream record that the contract forbids, or whose change the `output` of a job does not take."""

    partition: int
    offset: int
    code: Code
    found: str
    expected: str
    output: str | None = None


def awaited_ids(changes: Changes) -> frozenset[int]:
    """The schema ids in records of which the registry has not been asked yet, `MOST_IDS` at most."""
    ids = pc.unique(pc.list_flatten(changes.rows[AWAITED])).to_pylist()
    return frozenset(sorted(ids)[:MOST_IDS])


def find_faults(
    changes: Changes,
    table: TableSchema,
    record_bytes: int = Limits().record_bytes,
    format_: UpstreamFormat = DEFAULT,
) -> list[Fault]:
    """The first few invalid records, by location; each is reported with its first error."""
    faults: dict[int, Fault] = {}
    for row, code, text, expected in islice(_all(changes, table, record_bytes, format_), MOST_FAULTS):
        if row not in faults:
            partition, offset = (int(changes.rows[name][row].as_py()) for name in (PARTITION, OFFSET))
            faults[row] = Fault(partition, offset, code, text, expected)
    return sorted(faults.values(), key=lambda fault: (fault.partition, fault.offset))


def _all(changes: Changes, table: TableSchema, record_bytes: int, format_: UpstreamFormat) -> Iterator[Found]:
    yield from _marked(changes)
    yield from _too_large(changes, record_bytes)
    yield from _undecoded(changes)
    if format_.images is Images.FULL:
        yield from _wrong_halves(changes)
    for index, column in enumerate(table.columns):
        for half in (changes.before, changes.after):
            yield from _wrong_values(half[index], column)
    yield from _wrong_keys(changes, table)
    yield from _other_keys(changes, table, format_)


def _found(row: int | np.intp, code: Code, text: str, **values: object) -> Found:
    """A fault with the expectation of its code, in which `values` are filled in."""
    return int(row), code, text, expectation(code, **values)


def _differs(left: pa.Array, right: pa.Array | pa.ChunkedArray) -> Bools:
    """True where both are set and not equal."""
    return np.asarray(pc.fill_null(pc.not_equal(left, right), False), dtype=np.bool_)


def _is_set(values: pa.Array | pa.ChunkedArray) -> Bools:
    """True where there is a value."""
    return np.asarray(pc.is_valid(values), dtype=np.bool_)


def _undecoded(changes: Changes) -> Iterator[Found]:
    errors = changes.rows[ERROR]
    for row in np.flatnonzero(_is_set(errors)):
        error = errors[row].as_py()
        yield int(row), Code(error["code"]), error["found"], error["expected"]


def _other_keys(changes: Changes, table: TableSchema, format_: UpstreamFormat) -> Iterator[Found]:
    """Records whose key is another than the row's, where the decoder has not compared them."""
    encoder = format_.keys(table.key_columns)
    if encoder is None:
        return
    record_keys = changes.record_keys
    rows = np.flatnonzero(_differs(changes.encoded_keys(encoder), record_keys) & (changes.ops >= 0))
    if not len(rows):
        return
    # A key may be written in several ways: a decimal in Avro has any number of leading sign bytes.
    decoder = format_.decoder(table.columns, table.key_columns)
    read = decoder.decode_keys(record_keys.take(pa.array(rows)))
    is_other = ~flags_of(read.structs.is_valid())
    for own, found in zip(changes.keys, read.structs.flatten(), strict=True):
        is_other |= _differs(own.take(pa.array(rows)), found)
    for row in rows[is_other]:
        yield _found(row, Code.KEY_MISMATCH, "a record key that is not the row's")


def _marked(changes: Changes) -> Iterator[Found]:
    for row in np.flatnonzero(changes.ops == MARKED):
        yield _found(row, Code.AMBIGUOUS_RECORD, "a record that is marked as a barrier and is none")


def _too_large(changes: Changes, record_bytes: int) -> Iterator[Found]:
    sizes = changes.rows[SIZE].to_numpy()
    for row in np.flatnonzero(sizes > record_bytes):
        yield _found(row, Code.RECORD_TOO_LARGE, f"{sizes[row]} bytes", limit=record_bytes, setting=_SETTING)


def _wrong_halves(changes: Changes) -> Iterator[Found]:
    ops = changes.ops
    has_before, has_after = (_is_set(changes.rows[name]) for name in (BEFORE, AFTER))
    wrong = (has_before != (ops != Op.INSERT)) | (has_after != (ops != Op.DELETE))
    for row in np.flatnonzero(wrong & (ops >= 0)):
        halves = {"before": has_before[row], "after": has_after[row]}
        text = " and ".join(f"{name} {'set' if there else 'null'}" for name, there in halves.items())
        yield int(row), Code.CHANGE_MALFORMED, f"{Op(ops[row]).name} with {text}", HALVES


def _wrong_values(values: pa.Array, column: Column) -> Iterator[Found]:
    invalid = invalid_values(values, column)
    if invalid is not None:
        for row in invalid.rows:
            yield _found(row, invalid.code, invalid.text, column=column.name)


def _wrong_keys(changes: Changes, table: TableSchema) -> Iterator[Found]:
    moved = np.zeros(len(changes), dtype=np.bool_)
    for index in table.key_indices:
        moved |= _differs(changes.before[index], changes.after[index])  # a missing image differs from nothing
    for row in np.flatnonzero(moved):
        text = "an UPDATE whose before and after have different primary keys"
        yield _found(row, Code.UPDATE_CHANGES_PK, text)
    for row in np.flatnonzero(~_is_set(changes.rows[KEY])) if table.has_key else ():
        yield _found(row, Code.PK_NULL, "a record without a key")

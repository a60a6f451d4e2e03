"""Spark's columns and the strict twin of `upsert` agree, on sound records and on broken ones."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from schemas.avro.codec import ChangeCodec
from schemas.avro.columnar import encode_changes
from schemas.errors import InputError
from schemas.formats.protocol import Format, Images
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.records import Barrier, BarrierKind
from schemas.table import Column, TableSchema, declare
from schemas.types import ColumnType, TypeName
from state.columns import BEFORE_HASH
from state.values.plan import AlignedBarrier, BatchPlan, ReplicaVersion
from streaming.kafka.clients import KafkaSettings
from streaming.lane.changes import Changes, order_changes
from streaming.lane.faults import MOST_FAULTS, find_faults
from streaming.source import few_records
from streaming.source.decoded import VALUE
from streaming.source.kafka import UpstreamSource
from tests.kit.drawn import drawn
from tests.kit.json_records import ODD, TAILS, records
from tests.kit.thorough import pairs
from tests.kit.values import KEY_TYPES, TYPES

Record = tuple[bytes | None, bytes | None]
SCHEMA = (
    "partition int, offset long, key binary, value binary, headers array<struct<key string, value binary>>"
)
WIDE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "name": "string", "price": "decimal(9,2)"}
        | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)},
        "primary_key": ["name", "id", "price"],
    }
)


def decoded(spark: SparkSession, format_: Format, table: TableSchema, found: Sequence[Record]) -> Changes:
    """All records by Spark's columns, in their order."""
    return _decoded(spark, format_, table, tuple(found))


@lru_cache(maxsize=1)  # a test looks at the same records more than once, and wide plans take Spark seconds
def _decoded(spark: SparkSession, format_: Format, table: TableSchema, found: tuple[Record, ...]) -> Changes:
    source = UpstreamSource(
        lambda: spark, KafkaSettings("unused"), "up", table, format_=format_, holds_barriers=False
    )
    rows = [(0, offset, *record, None) for offset, record in enumerate(found)]
    lane = source.lane_rows(spark.createDataFrame(rows, SCHEMA), 1)
    arrow: pa.Table = lane.toArrow().cast(to_arrow_schema(lane.schema))
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (len(rows),), in_data=False)
    plan = BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1)
    return order_changes(arrow.to_batches(), arrow.schema, plan, table)


def by_the_columns(changes: Changes, table: TableSchema) -> list[bytes | None]:
    """Each as bytes in which NaN equals itself, None where it did not decode."""
    sound = [row for row, op in enumerate(changes.ops) if op >= 0]
    halves = (
        [column.take(pa.array(sound, pa.int64())) for column in half]
        for half in (changes.before, changes.after)
    )
    ops = pa.array(changes.ops[sound], pa.int8())
    found = dict(zip(sound, encode_changes(table.columns, ops, *halves).to_pylist(), strict=True))
    return [found.get(row) for row in range(len(changes))]


def by_the_twin(format_: Format, table: TableSchema, found: Sequence[Record]) -> list[bytes | str]:
    """Each in the same bytes, or the code of its error."""
    rows, codec = format_.rows(table.columns, table.key_columns), ChangeCodec(table.columns)

    def read(record: Record) -> bytes | str:
        try:
            change = rows.read_record(*record, where="t-0@7").change
        except InputError as error:
            return error.code
        assert change is not None
        return codec.encode(change)

    return list(map(read, found))


def differences(
    spark: SparkSession, format_: Format, table: TableSchema, found: Sequence[Record]
) -> list[object]:
    """Records of which the twin and the columns say different things."""
    changes = decoded(spark, format_, table, found)
    handed_on = changes.rows[VALUE].is_valid().to_pylist()
    columns, twin = by_the_columns(changes, table), by_the_twin(format_, table, found)
    wrong: list[object] = []
    for record, seen, said, second_look in zip(found, columns, twin, handed_on, strict=True):
        # What is no UTF-8 may be left to the lane, which looks for it by column: the faults below must have it.
        by_column = said == "BAD_ENCODING" and not second_look
        if isinstance(said, bytes) or not (second_look or by_column):
            wrong += [] if seen == said else [(record, seen, said, second_look)]
    faults = {fault.offset: str(fault.code) for fault in find_faults(changes, table, format_=format_)}
    assert len(faults) < MOST_FAULTS
    if format_.images is Images.AFTER_ONLY:
        assert changes.rows[BEFORE_HASH].null_count == len(found)  # the row that was there is not known
    refused = [(offset, said) for offset, said in enumerate(twin) if isinstance(said, str)]
    # A lane reports so many faults at most, and looks at every record for that.
    wrong += [
        (found[offset], faults.get(offset), said) for offset, said in refused if faults.get(offset) != said
    ]
    sound = [offset for offset, said in enumerate(twin) if isinstance(said, bytes)]
    return wrong + few_differences(changes, format_, table, {offset: found[offset] for offset in sound})


def few_differences(
    changes: Changes, format_: Format, table: TableSchema, sound: Mapping[int, Record]
) -> list[object]:
    """Records, by offset, of which a lane that decodes them itself has other columns than Spark."""
    at = {offset: row for row, offset in enumerate(changes.offsets.tolist())}
    spark_rows = changes.rows.take(pa.array([at[offset] for offset in sound], pa.int64()))
    few = [(0, offset, *record) for offset, record in sound.items()]
    own = few_records.decoded_columns(few_records.Records.of(few), format_, table)
    assert set(own.schema.names) == set(spark_rows.schema.names)
    pairs = zip(spark_rows.to_pylist(), own.to_pylist(), strict=True)
    return [
        (record, name, theirs[name], ours[name])
        for record, (theirs, ours) in zip(sound.values(), pairs, strict=True)
        for name in set(ours) - {VALUE}
        if repr(theirs[name]) != repr(ours[name])  # as equal as NaN is to NaN, and -0.0 is not to 0.0
    ]


def one_by_one() -> list[Record]:
    """Each odd cell in each column, alone and beside others, and each odd end."""
    key = written_key(WIDE.key_columns)
    cells = [f'{{"{column.name}":{cell}}}' for column in WIDE.columns for cell in ODD]
    cells += [f'{{"c1":1, "other" : {cell},"c2":2}} ' for cell in ODD]
    cells += [f'{{"c6":"a","c2":{cell},"c2":3}}' for cell in ("1", "null")]
    ends = [f'{{"c1":{cell}}}{tail}' for cell in ("1", '{"a":[]}', '"}"') for tail in TAILS]
    names = ['{"C1":1}', r'{"c\u0031":1}', '{"c1 ":"x"}', '{"c5":"c5","c1":1}', r'{"a\"c5":"1.5","c5":1.5}']
    names += [
        r'{"c\u0035":1.5,"x":{"c5":"1.5"}}',
        '{"c5":1.5,"x":{"c5":"1.5"}}',
        '{"x":{"c5":1.5},"c5":"1.5"}',
    ]
    for name in (column.name for column in WIDE.columns if column.type.name is TypeName.DECIMAL):
        long, other = f'"{name}":1234567890123.1234567890', f'"{name}":2.5'
        for first, last in ((long, other), (other, long)):
            names += [f'{{{first},"x":{{{last}}}}}', f'{{"x":{{{first}}},{last}}}', f"{{{first},{last}}}"]
        names += [f'{{{other},"\\u00{ord(name[0]):x}{name[1:]}":1.5}}', f'{{"{name}" : 1.50 ,"x":[1.5]}}']
    names += ['{"c5":"_bf_e1a75c0d"}', '{"_bf_e1a75c0db":{}}']
    not_utf8 = [b'{"%s":"%s"}' % (name, bytes_) for name in (b"c5", b"x") for bytes_ in NOT_UTF8]
    texts = (*cells, *ends, *names)
    return [(key, value) for value in (*(text.encode("utf-8", "surrogatepass") for text in texts), *not_utf8)]


NOT_UTF8 = [b"\xff", b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]


def written_key(columns: Sequence[Column]) -> bytes:
    cells = {"id": "7", "name": '"a"', "price": "1.50"}
    return ("{" + ",".join(f'"{column.name}":{cells[column.name]}' for column in columns) + "}").encode()


@pytest.mark.timeout(600)
def test_every_odd_cell_is_the_same_to_both_in_every_column(spark: SparkSession) -> None:
    found = one_by_one()
    for start in range(0, len(found), MOST_FAULTS - 1):
        assert differences(spark, UpsertFormat(), WIDE, found[start : start + MOST_FAULTS - 1]) == []


@pytest.mark.timeout(600)
def test_records_of_every_type_are_the_same_to_both(spark: SparkSession) -> None:
    sound, odd = (drawn(records(WIDE, key="record", odd=odd), 250) for odd in (False, True))
    assert differences(spark, UpsertFormat(), WIDE, [*sound, *odd]) == []
    refused = [isinstance(each, str) for each in by_the_twin(UpsertFormat(), WIDE, [*sound, *odd])]
    assert not any(refused[: len(sound)])
    assert any(refused[len(sound) :])


def odd_keys(form: KeyForm) -> list[Record]:
    """Each odd cell as a key, of rows and of deletes, alone and with something behind it."""
    quotes = {'"'} if form == "text" else set()
    keys = ODD + [cell.strip('"') for cell in ODD if quotes] + [""]
    keys += [f"{cell}{tail}" for cell in ("7", '"a"', '"a,b}"') for tail in TAILS]
    if form == "record":
        wrapped = [f'{{"id":{key}}}' for key in keys]
        keys = [
            *wrapped,
            *(f'{{"id":7}}{tail}' for tail in TAILS),
            '{"id":7,"id":7}',
            '{"id":7,"x":1}',
            "{}",
            "[]",
        ]
    found = [(key.encode("utf-8", "surrogatepass"), value) for key in keys for value in (b"{}", None)]
    return [
        *found,
        (None, b"{}"),
        *((each, b"{}") for each in NOT_UTF8),
        *((b"7", value) for value in OWN_KEYS),
    ]


OWN_KEYS = [
    b'{"id":7}',
    b'{"id":"7"}',
    b'{"id":8}',
    b'{"id":null}',
    b'{"id":7.0}',
    b'{"id":true}',
    b'{"id":"7"}{}',
]


@pytest.mark.parametrize(("form", "kind"), pairs(("record", "json", "text"), KEY_TYPES))
@pytest.mark.timeout(600)
def test_keys_of_every_type_are_the_same_to_both(
    spark: SparkSession, form: KeyForm, kind: ColumnType
) -> None:
    table = declare({"name": "t", "columns": {"id": str(kind), "note": "string"}, "primary_key": ["id"]})
    random = drawn(records(table, key=form, odd=True), 100)
    assert differences(spark, UpsertFormat(key=form), table, [*odd_keys(form), *random]) == []


@pytest.mark.timeout(600)
def test_bytes_of_any_length_are_read(spark: SparkSession) -> None:
    columns = {"id": "bigint", "raw": "binary"}
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    lengths = (0, 1, 2, 56, 57, 58, 59, 76, 3_000)
    found: list[Record] = [
        (b'{"id":1}', b'{"raw":"%s"}' % base64.b64encode(bytes(length))) for length in lengths
    ]
    assert differences(spark, UpsertFormat(), table, found) == []
    assert decoded(spark, UpsertFormat(), table, found).after[1].to_pylist() == list(map(bytes, lengths))

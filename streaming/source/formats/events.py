"""Change events of Debezium, apart from their encoding: from the columns of an event to those of a decoded record."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.events.rows import (
    CREATE,
    DELETE,
    MESSAGE,
    READ,
    UPDATE,
    UPSERTS,
)
from schemas.logs import INCREMENTAL, POSTGRESQL, SEQUENCE
from schemas.records import NO_DATA, Op
from streaming.source.formats.protocol import Decoded


def decoded_event(said: Column, value: Column, *, transactions: bool = False) -> Decoded:
    """The decoded record of an event without the row before, from these fields of `said`.

    `op`, `has_row`, `row`; `has_key` and `is_sound`, the key and the value can be read; `agree`, the row is of that
    key; `is_no_data`; `doubt` and `key_doubt`; `unchanged` and `position` as in `Decoded`. `transactions`: also
    `transaction`.
    """
    op, row, has_row = (said.getField(name) for name in ("op", "row", "has_row"))
    readable = said.getField("has_key") & said.getField("is_sound")
    number = (
        F.when(is_deleted(value), F.when(said.getField("has_key"), F.lit(Op.DELETE.value)))
        .when(said.getField("is_sound") & said.getField("is_no_data"), F.lit(NO_DATA))
        .when(readable & (op == DELETE) & ~has_row, F.lit(Op.DELETE.value))
        .when(readable & op.isin(*UPSERTS) & has_row & said.getField("agree"), F.lit(Op.INSERT.value))
    )
    return Decoded(
        op=number,
        before=F.when(number == Op.DELETE.value, row),
        after=F.when(number == Op.INSERT.value, row),
        value=_in_doubt(number, said, value),
        unchanged=F.when(number == Op.INSERT.value, said.getField("unchanged")),
        position=_comparable(number, said),
        transaction=F.when(number >= 0, said.getField("transaction")) if transactions else None,
    )


def decoded_whole(said: Column, value: Column) -> Decoded:
    """The decoded record of an event with the row before, from the fields of `decoded_event` and these of `said`.

    `has_before`, `before`, `before_agrees`, `before_unchanged`; `snapshot`.
    """
    op, row, before, has_row = (said.getField(name) for name in ("op", "row", "before", "has_row"))
    readable = said.getField("has_key") & said.getField("is_sound")
    is_known = has_row & said.getField("agree") & said.getField("unchanged").isNull()
    was_known = said.getField("has_before") & said.getField("before_agrees")
    was_known &= said.getField("before_unchanged").isNull()
    is_new = (op == CREATE) | ((op == READ) & ~said.getField("snapshot").eqNullSafe(INCREMENTAL))
    number = (
        F.when(is_deleted(value) | (said.getField("is_sound") & said.getField("is_no_data")), F.lit(NO_DATA))
        .when(readable & (op == DELETE) & ~has_row & was_known, F.lit(Op.DELETE.value))
        .when(readable & (op == UPDATE) & is_known & was_known, F.lit(Op.UPDATE.value))
        .when(readable & is_new & is_known, F.lit(Op.INSERT.value))
    )
    return Decoded(
        op=number,
        before=F.when(number.isin(Op.UPDATE.value, Op.DELETE.value), before),
        after=F.when(number.isin(Op.INSERT.value, Op.UPDATE.value), row),
        value=_in_doubt(number, said, value),
        position=_comparable(number, said),
    )


def _comparable(number: Column, said: Column) -> Column:
    """The place of a change; null where that can't be compared."""
    position = said.getField("position")
    return F.when((number >= 0) & position["commit"].isNotNull(), position)


def _in_doubt(number: Column, said: Column, value: Column) -> Column:
    """The value where the strict twin has to look at it."""
    unsure = said.getField("key_doubt") | (~is_deleted(value) & said.getField("doubt"))
    return F.when(number.isNull() | (number >= 0) & unsure, F.coalesce(value, F.lit(b"")))


def is_deleted(value: Column) -> Column:
    """Whether a record has no value. Never null."""
    return F.coalesce(F.length(value) == 0, F.lit(True))


def is_no_data(op: Column, ts_ms: Column, others: Column) -> Column:
    """Whether an event says nothing of the table; `others`: whether it has a row or a source. Never null."""
    return F.coalesce(op == MESSAGE, op.isNull() & ~others & ts_ms.isNotNull())


def _is_change(connector: Column, snapshot: Column) -> Column:
    return (connector == POSTGRESQL) & (snapshot == "false")


def transaction_of(connector: Column, snapshot: Column, number: Column) -> Column:
    """The transaction that made a change; null where the event is none of PostgreSQL."""
    return F.when(_is_change(connector, snapshot), number)


def position_of(connector: Column, snapshot: Column, sequence: Column, lsn: Column) -> Column:
    """Where a change stands in its database's log; without its `commit` where that can't be compared."""
    commit = F.regexp_extract(sequence, f"^{SEQUENCE}\\z", 1).try_cast("bigint")
    comparable = _is_change(connector, snapshot) & lsn.isNotNull()
    return F.struct(F.when(comparable, commit).alias("commit"), lsn.alias("lsn"))

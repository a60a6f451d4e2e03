"""Change events of Debezium in whatever encoding: what columns of one say, and what they amount to."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.events.rows import COMPARABLE, DELETE, MESSAGE, SEQUENCE, UPSERTS
from schemas.records import Op
from streaming.source.decoded import NO_DATA
from streaming.source.formats.protocol import Decoded


def decoded_event(said: Column, value: Column) -> Decoded:
    """What an event amounts to, by the fields that `streaming.source.formats.debezium` lists."""
    op, has_row, row = (said.getField(name) for name in ("op", "has_row", "row"))
    has_key, is_sound = said.getField("has_key"), said.getField("is_sound")
    deleted = is_deleted(value)
    number = (
        F.when(deleted, F.when(has_key, F.lit(Op.DELETE.value)))
        .when(is_sound & said.getField("is_no_data"), F.lit(NO_DATA))
        .when(has_key & is_sound & (op == DELETE) & ~has_row, F.lit(Op.DELETE.value))
        .when(
            has_key & is_sound & op.isin(*UPSERTS) & has_row & said.getField("agree"), F.lit(Op.INSERT.value)
        )
    )
    unsure = said.getField("key_doubt") | (~deleted & said.getField("doubt"))
    doubt = number.isNull() | (number >= 0) & unsure
    return Decoded(
        op=number,
        before=F.when(number == Op.DELETE.value, row),
        after=F.when(number == Op.INSERT.value, row),
        value=F.when(doubt, F.coalesce(value, F.lit(b""))),
        unchanged=F.when(number == Op.INSERT.value, said.getField("unchanged")),
        position=F.when(
            (number >= 0) & said.getField("position")["commit"].isNotNull(), said.getField("position")
        ),
    )


def is_deleted(value: Column) -> Column:
    """Whether a record has no value. Never null."""
    return F.coalesce(F.length(value) == 0, F.lit(True))


def is_no_data(op: Column, ts_ms: Column, others: Column) -> Column:
    """Whether an event says nothing of the table; `others`: whether it has a row or a source. Never null."""
    return F.coalesce(op == MESSAGE, op.isNull() & ~others & ts_ms.isNotNull())


def position_of(connector: Column, snapshot: Column, sequence: Column, lsn: Column) -> Column:
    """Where a change stands in its database's log; without its `commit` where that can't be compared."""
    commit = F.regexp_extract(sequence, f"^{SEQUENCE}\\z", 1).try_cast("bigint")
    comparable = (connector == COMPARABLE) & (snapshot == "false") & lsn.isNotNull()
    return F.struct(F.when(comparable, commit).alias("commit"), lsn.alias("lsn"))

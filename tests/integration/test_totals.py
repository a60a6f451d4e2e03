"""Topics that add up to the same have the same rows, however these came about, and others do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, TopicError
from schemas.records import Change, Op
from schemas.table import declare
from streaming.kafka.clients import KafkaSettings
from streaming.verify.history import TopicEntry
from tests.bench.totals import Totals, last_common_epoch, totals
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.barriers import barrier
from tests.kit.kafka_topics import Writer

pytestmark = pytest.mark.kafka
TABLE = declare({"name": "t", "columns": {"id": "int", "a": "string", "b": "double"}, "primary_key": ["id"]})
FIRST, SECOND, THIRD = (barrier(number, 2) for number in (1, 2, 3))
ONE, OTHER, TWO = (1, "x", 0.5), (1, "y", None), (2, None, 1.5)


def changes(*found: Change) -> list[TopicEntry]:
    codec, keys = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
    return [TopicEntry(0, keys.encode((each.row[0],)), codec.encode(each)) for each in found]


def closing(number: int) -> list[TopicEntry]:
    closed = (FIRST, SECOND, THIRD)[number]
    return [TopicEntry(0, None, encode_barrier(closed), barrier_header(closed))]


INSERTS = changes(Change(Op.INSERT, None, ONE), Change(Op.INSERT, None, TWO))
WRITTEN = changes(Change(Op.UPDATE, ONE, OTHER), Change(Op.DELETE, TWO, None))


@pytest.fixture
def added_up(bootstrap: str, topic: Callable[..., str]) -> Callable[..., Totals]:
    settings = KafkaSettings(bootstrap)

    def build(*partitions: Sequence[TopicEntry], counted: Sequence[str] = TABLE.column_names) -> Totals:
        name = topic(partitions=2)
        Writer(bootstrap, name).write([list(each) for each in partitions])
        return totals(settings, name, TABLE.columns, counted, last_common_epoch(settings, name))

    return build


def test_changes_add_up_to_the_rows_that_are_there(added_up: Callable[..., Totals]) -> None:
    nothing = closing(0)
    found = added_up([*closing(0), *INSERTS, *closing(1), *WRITTEN, *closing(2)], [*nothing, *closing(2)])
    assert found.rows == 1
    assert found == added_up(nothing, [*changes(Change(Op.INSERT, None, OTHER)), *closing(0)])
    for other in (ONE, (3, "y", None), (1, "y", 0.0)):
        assert found != added_up(nothing, [*changes(Change(Op.INSERT, None, other)), *closing(0)])
    twice = changes(Change(Op.INSERT, None, OTHER)) * 2
    assert found != added_up(nothing, [*twice, *closing(0)])
    assert added_up(nothing, nothing) == Totals()


def test_what_lies_behind_the_last_barrier_of_all_partitions_does_not_count(
    added_up: Callable[..., Totals],
) -> None:
    early, late = [*INSERTS, *closing(0)], [*WRITTEN, *closing(1)]
    assert added_up([*early, *late], [*closing(0), *changes(Change(Op.INSERT, None, OTHER))]) == added_up(
        early, closing(0)
    )


def test_only_the_columns_that_are_named_count(added_up: Callable[..., Totals]) -> None:
    one, other = ([*changes(Change(Op.INSERT, None, row)), *closing(0)] for row in (ONE, (1, "x", 9.5)))
    assert added_up(one, closing(0)) != added_up(other, closing(0))
    assert added_up(one, closing(0), counted=["id", "a"]) == added_up(other, closing(0), counted=["id", "a"])


def test_a_partition_without_a_barrier_has_no_totals(added_up: Callable[..., Totals]) -> None:
    with pytest.raises(TopicError) as caught:
        added_up(closing(0), INSERTS)
    assert caught.value.code is Code.NO_BARRIERS

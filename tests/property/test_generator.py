"""Whatever the table, the seed and the mix: what the generator makes is a legal changelog."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import KnownSchemas, SchemaIds, WriterSchema
from schemas.codec.logs import LogPosition, Position
from schemas.errors import ConfigError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import TableSchema, declare
from streaming.events.forms import FORMATS, EventForm, SchemasOf, events_of, form_of
from streaming.events.generator import ChangeGenerator, ChangeMix, GeneratedChanges
from tests.kit.single_records import single_records
from tests.kit.values import examples

KEY_TYPES = ["boolean", "int", "bigint", "decimal(3,1)", "decimal(38,9)", "string", "date", "timestamp"]
TYPES = [*KEY_TYPES, "float", "double", "binary"]
SEEDS = st.integers(0, 2**32)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    keys = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4))
    others = draw(st.lists(st.sampled_from(TYPES), max_size=5))
    declared = {f"k{n}": kind for n, kind in enumerate(keys)}
    key = list(declared)
    declared |= {f"v{n}": kind for n, kind in enumerate(others)}
    columns = dict(draw(st.permutations(list(declared.items()))))
    return declare({"name": "t", "columns": columns, "primary_key": key})


@st.composite
def shares(draw: st.DrawFn) -> ChangeMix:
    updates = draw(st.floats(0, 1))
    return ChangeMix(updates, draw(st.floats(0, 1)) * (1 - updates))


class Store:
    """The slow and obvious reader: a dict, and a complaint for each change that does not fit it."""

    def __init__(self, table: TableSchema, format_: UpstreamFormat = DEFAULT) -> None:
        self.table, self.rows, self._format = table, dict[Key, Row](), format_
        self._reader = single_records(format_, table.columns, table.key_columns)
        self._position: Position = (0, 0)

    def apply(self, changes: GeneratedChanges) -> list[Op]:
        ops, deleted = [], None
        for key_bytes, value in zip(changes.keys.to_pylist(), changes.values.to_pylist(), strict=True):
            if deleted is not None and self._format.comes_again:
                assert (key_bytes, value) == (deleted, None)  # the tombstone says nothing new
                deleted = None
                continue
            record = self._reader.read_record(key_bytes, value)
            assert record.change is not None
            self._rise(record.position)
            ops.append(self._apply(self._reader.read_key(key_bytes), record.change))
            deleted = key_bytes if ops[-1] is Op.DELETE else None
        assert ops == list(changes.ops)
        return ops

    def _rise(self, where: LogPosition | None) -> None:
        if self._format.comes_again:
            assert where is not None
            assert where.position is not None
            assert where.position > self._position
            self._position = where.position

    def _apply(self, key: Key, change: Change) -> Op:
        """The op that the change has here: those who don't see the row before don't see whether it is an INSERT."""
        before = self.rows.pop(key, None)
        if self._format.images is Images.FULL:
            assert change.before == before
        if change.after is None:
            assert before is not None
            return Op.DELETE
        assert self.table.key_of(change.after) == key
        self.rows[key] = change.after
        return Op.INSERT if before is None else Op.UPDATE


@given(tables(), SEEDS, st.integers(0, 400), shares(), st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=examples(150))
def test_every_change_is_legal_and_the_count_of_live_keys_is_right(
    table: TableSchema, seed: int, rows: int, mix: ChangeMix, batches: list[int]
) -> None:
    generator, store = ChangeGenerator(table, seed), Store(table)
    store.apply(generator.inserts(min(rows, generator.capacity)))
    for count in batches:
        store.apply(generator.mixed(count, mix))
        assert generator.live == len(store.rows)


@given(tables(), SEEDS)
@settings(max_examples=examples(30))
def test_the_same_seed_gives_the_same_changes(table: TableSchema, seed: int) -> None:
    first, second = ChangeGenerator(table, seed), ChangeGenerator(table, seed)
    assert first.inserts(2).values.equals(second.inserts(2).values)
    assert first.mixed(50, ChangeMix()).values.equals(second.mixed(50, ChangeMix()).values)


def test_the_shares_are_kept() -> None:
    table = declare({"name": "t", "columns": {"id": "bigint", "x": "int"}, "primary_key": ["id"]})
    generator = ChangeGenerator(table)
    generator.inserts(5_000)
    ops = np.bincount(generator.mixed(10_000, ChangeMix(updates=0.6, deletes=0.2)).ops, minlength=3) / 10_000
    assert ops[Op.UPDATE] == pytest.approx(0.6, abs=0.03)
    assert ops[Op.DELETE] == pytest.approx(0.2, abs=0.03)
    assert ops[Op.INSERT] == pytest.approx(0.2, abs=0.03)


def test_later_inserts_land_between_earlier_keys_and_deleted_keys_come_back() -> None:
    table = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]})
    generator, store = ChangeGenerator(table), Store(table)
    store.apply(generator.inserts(1_000))
    first = set(store.rows)
    store.apply(generator.mixed(500, ChangeMix(updates=0, deletes=1)))
    store.apply(generator.mixed(500, ChangeMix(updates=0, deletes=0)))
    new = set(store.rows) - first
    assert len([key for key in new if key < max(first)]) > len(new) / 2
    assert len(first & set(store.rows)) > 500


def test_a_composite_key_has_many_keys_with_equal_first_columns() -> None:
    columns = {"region": "string", "day": "date", "id": "bigint"}
    table = declare({"name": "t", "columns": columns, "primary_key": ["region", "day", "id"]})
    store = Store(table)
    store.apply(ChangeGenerator(table).inserts(640))
    assert len(store.rows) == 640
    assert len({key[:2] for key in store.rows}) == 64


def test_a_key_too_narrow_for_the_rows_is_an_error_before_anything_is_made() -> None:
    table = declare({"name": "t", "columns": {"b": "boolean"}, "primary_key": ["b"]})
    generator = ChangeGenerator(table)
    with pytest.raises(ConfigError, match="at most 2"):
        generator.inserts(3)
    assert generator.live == 0
    assert len(generator.inserts(2)) == 2


FORMS = [
    *(each for each in FORMATS.values() if each.images is not Images.ROWS),  # those have no keys to fold by
    UpsertFormat(key="json"),
    UpsertFormat(key="text"),
    UpsertFormat(encoding="avro-registry"),
    DebeziumFormat(time="nanoseconds", decimal="string"),
    DebeziumFormat(time="isostring", decimal="string"),
    DebeziumFormat(encoding="avro-registry"),
]


def registered(schemas_of: SchemasOf) -> tuple[SchemaIds, KnownSchemas]:
    schemas = schemas_of("t")
    texts = text_of(schemas["key"]), text_of(schemas["value"])
    return SchemaIds(1, 2), KnownSchemas(tuple(WriterSchema(n, text) for n, text in enumerate(texts, 1)))


@pytest.mark.parametrize(
    "format_",
    FORMS,
    ids=lambda form: " ".join(map(str, form.model_dump(exclude_defaults=True).values())) or form.format,
)
@given(tables(), SEEDS, st.lists(st.integers(0, 20), max_size=2))
@settings(max_examples=examples(20))
def test_in_every_form_the_records_are_the_same_changes(
    format_: UpstreamFormat, table: TableSchema, seed: int, batches: list[int]
) -> None:
    assume(format_.incompatibility(table) is None)
    known = [KnownSchemas(())]

    def register(schemas_of: SchemasOf) -> SchemaIds:
        ids, known[0] = registered(schemas_of)
        return ids

    generator = ChangeGenerator(table, seed, events_of(format_, table, register))
    store = Store(table, format_.with_schemas(known[0]))
    plain, model = ChangeGenerator(table, seed), Store(table)
    rows = min(30, generator.capacity)
    for made, kept in ((generator, store), (plain, model)):
        kept.apply(made.inserts(rows))
        for count in batches:
            kept.apply(made.mixed(count, ChangeMix(0.4, 0.3)))
    assert store.rows == model.rows


def test_milliseconds_are_written_as_such_but_are_no_keys() -> None:
    table = declare({"name": "t", "columns": {"id": "int", "at": "timestamp"}, "primary_key": ["id"]})
    millis = DebeziumFormat(time="connect")
    store, exact = Store(table, millis), Store(table)
    store.apply(ChangeGenerator(table, 1, events_of(millis, table)).inserts(100))
    exact.apply(ChangeGenerator(table).inserts(100))
    cut = {
        key: at and at.replace(microsecond=at.microsecond // 1000 * 1000)
        for key, (_, at) in exact.rows.items()
    }
    assert {key: at for key, (_, at) in store.rows.items()} == cut
    with pytest.raises(ConfigError, match="milliseconds"):
        events_of(millis, declare({"name": "t", "columns": {"at": "timestamp"}, "primary_key": ["at"]}))


def test_a_form_is_found_again_by_its_format() -> None:
    assert [form_of(format_) for format_ in FORMATS.values()] == list(EventForm)
    assert form_of(UpsertFormat(encoding="avro-registry")) is None


@pytest.mark.parametrize(
    ("format_", "complaint"),
    [
        (UpsertFormat(encoding="avro-registry"), "without a registry"),
        (UpsertFormat(encoding="avro-registry", key="text"), "keys as 'text'"),
        (DebeziumFormat(encoding="avro-registry"), "without a registry"),
        (AppendFormat(encoding="avro-registry"), "rows in 'avro-registry'"),
    ],
    ids=str,
)
def test_events_that_cannot_be_written_are_refused(format_: UpstreamFormat, complaint: str) -> None:
    table = declare({"name": "t", "columns": {"id": "int"}, "primary_key": ["id"]})
    with pytest.raises(ConfigError, match=complaint):
        events_of(format_, table)


@pytest.mark.parametrize("wrong", [(-0.1, 0.5), (0.5, -0.1), (0.8, 0.3)])
def test_impossible_shares_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ConfigError):
        ChangeMix(*wrong)

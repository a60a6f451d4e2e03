"""Chunks of a real table: every row once, in order, and each as one snapshot sees it."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from schemas.errors import Code, InputError
from state.initial.start import Survey
from state.values.chunks import KeyRange
from streaming.postgres import reader as reading
from streaming.postgres.reader import ChunkReader
from tests.kit.connect.table import Pieces, by_key
from tests.kit.real import await_condition
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
COLUMNS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"}
MADE = (
    'CREATE TABLE orders (region text COLLATE "C", id bigint, amount numeric(18,2), note text, '
    "PRIMARY KEY (region, id))",
    "INSERT INTO orders SELECT (ARRAY['EU', 'US', 'größer 🙂'])[1 + i % 3], i, i / 100.0, "
    "nullif(repeat('é\"\n', i % 4), '') FROM generate_series(1, 2000) i",
)


def all_of(reader: ChunkReader, survey: Survey, most_rows: int) -> tuple[Pieces, list[KeyRange]]:
    pieces, ranges = Pieces(), []
    for keys in survey.ranges:
        left = keys
        while True:
            chunk = reader.read(left, most_rows, pieces).chunk
            ranges.append(chunk.keys)
            if chunk.keys.upto == keys.upto:
                break
            left = KeyRange(chunk.keys.upto, keys.upto)
    return pieces, ranges


@pytest.mark.parametrize("ranges", [1, 3])
def test_chunks_have_every_row_once_in_key_order(database_of: DatabaseOf, ranges: int) -> None:
    database = database_of(*MADE, "ANALYZE orders")
    declared = database.declared(COLUMNS, ("region", "id"))
    with database.reader(declared) as reader:
        survey = reader.survey(ranges)
        pieces, chunks = all_of(reader, survey, 130)
    assert len(survey.ranges) == ranges
    assert survey.rows == 2_000
    assert survey.tail is not None
    assert survey.tail.rows == 0
    assert survey.tail.keys == KeyRange(survey.ranges[-1].upto, None)
    assert len(chunks) >= 2_000 // 130
    assert [keys.after for keys in chunks] == [None, *(keys.upto for keys in chunks[:-1])]
    with database.postgres.connect(database.name) as session:
        there = session.execute(f"SELECT {', '.join(COLUMNS)} FROM orders ORDER BY region, id").fetchall()
    assert pieces.rows == there
    assert None in {row[3] for row in there}


def test_a_chunk_holds_what_its_snapshot_sees(database_of: DatabaseOf) -> None:
    database = database_of(*MADE)
    declared = database.declared(COLUMNS, ("region", "id"))
    at = "SELECT pg_current_xact_id()::text::bigint"
    with (
        database.reader(declared) as reader,
        database.postgres.connect(database.name, autocommit=False) as early,
        database.postgres.connect(database.name, autocommit=False) as late,
    ):
        [[open_]] = early.execute(at).fetchall()
        early.execute("SAVEPOINT here")
        early.execute("UPDATE orders SET note = 'open' WHERE id = 1")
        [[over]] = late.execute(at).fetchall()
        late.execute("UPDATE orders SET note = 'over' WHERE id = 2")
        late.commit()
        pieces = Pieces()
        chunk = reader.read(KeyRange(), 10_000, pieces).chunk
        early.commit()
        again = reader.read(KeyRange(), 10_000, Pieces()).chunk
    assert open_ < over
    assert (chunk.snapshot.sees(open_), chunk.snapshot.sees(over)) == (False, True)
    assert again.snapshot.sees(open_)
    assert chunk.written_lsn < again.written_lsn
    notes = {row[0]: row[3] for row in pieces.rows}
    assert (notes[1], notes[2]) == ('é"\n', "over")
    assert (chunk.keys, chunk.rows) == (KeyRange(), 2_000)


def test_a_rewrite_between_the_snapshot_and_the_rows_can_not_be(database_of: DatabaseOf) -> None:
    """A rewritten table looks empty to an older snapshot: so the lock comes first."""
    database = database_of(*MADE)
    waits = "SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted"
    with (
        database.reader(database.declared(COLUMNS, ("region", "id"))) as reader,
        database.postgres.connect(database.name, autocommit=False) as holder,
        ThreadPoolExecutor(1) as threads,
    ):
        holder.execute("ALTER TABLE orders ALTER note TYPE text USING note || ''")
        found = threads.submit(reader.read, KeyRange(), 10_000, Pieces())
        await_condition(
            lambda: found.done() or database.postgres.value(database.name, waits) == 1,
            "a chunk that waits for the lock",
        )
        holder.commit()
        assert found.result(60).chunk.rows == 2_000


def test_a_table_that_grows_does_not_keep_the_copy_from_its_end(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1), (5)"
    )
    with database.reader(database.declared({"id": "bigint"})) as reader:
        survey = reader.survey(4)
        database.execute("INSERT INTO orders VALUES (3), (6)")
        pieces, _ = all_of(reader, survey, 10)
    assert pieces.rows == [(1,), (3,), (5,)]
    assert survey.tail is not None
    assert survey.tail.keys == KeyRange((5,), None)


def test_a_table_without_rows_is_its_tail(database_of: DatabaseOf) -> None:
    database = database_of("CREATE TABLE orders (id bigint PRIMARY KEY)")
    with database.reader(database.declared({"id": "bigint"})) as reader:
        survey = reader.survey(2)
        chunk = reader.read(KeyRange(), 10, Pieces()).chunk
    assert survey.tail is not None
    assert (survey.ranges, survey.tail.keys, chunk.rows) == ((), KeyRange(), 0)


def test_a_wide_chunk_comes_in_pieces(database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 100_000)
    made = (
        "INSERT INTO orders SELECT i, repeat(chr(64 + i), 30000), decode(repeat('0a22', 15000), 'hex') "
        "FROM generate_series(1, 9) i"
    )
    database = database_of("CREATE TABLE orders (id int PRIMARY KEY, note text, raw bytea)", made)
    pieces = Pieces()
    with database.reader(database.declared({"id": "int", "note": "string", "raw": "binary"})) as reader:
        found = reader.read(KeyRange(), 100, pieces)
    assert found.size > 9 * 90_000
    assert len(pieces.tables) == 5
    assert pieces.rows == [(i, chr(64 + i) * 30_000, b'\n"' * 15_000) for i in range(1, 10)]


@pytest.mark.parametrize(
    ("kind", "declared", "values"),
    [
        ("uuid", "string", "gen_random_uuid()"),
        ("numeric(20,3)", "decimal(20,3)", "i * 1.125 - 700"),
        ("date", "date", "DATE '1960-01-01' + i * 30"),
        ("timestamp", "timestamp", "TIMESTAMP '0900-01-01 00:00:00.000001' + i * INTERVAL '1 day'"),
        (
            "timestamptz",
            "timestamp",
            "TIMESTAMPTZ '1969-12-31 23:59:59.999999Z' + (i - 300) * INTERVAL '1 ms'",
        ),
        ('varchar(9) COLLATE "C"', "string", "chr(32 + i)"),
        ("smallint", "int", "i - 300"),
    ],
)
def test_positions_of_every_key_type_lead_on(
    database_of: DatabaseOf, kind: str, declared: str, values: str
) -> None:
    database = database_of(
        f"CREATE TABLE orders (id {kind} PRIMARY KEY)",
        f"INSERT INTO orders SELECT {values} FROM generate_series(1, 500) i",
    )
    as_declared = database.declared({"id": declared})
    with database.reader(as_declared) as reader:
        pieces, chunks = all_of(reader, reader.survey(2), 60)
    assert len(by_key(pieces.rows, as_declared)) == 500
    for keys in chunks:
        raw = KeyRange.from_list(keys.to_list(), as_declared.table.key_columns)
        assert raw == keys


def test_only_select_is_needed(database_of: DatabaseOf) -> None:
    role = "reads_only"
    database = database_of(*MADE, f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN")
    database.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC", f"GRANT USAGE ON SCHEMA public TO {role}")
    database.execute(f"GRANT SELECT ON orders TO {role}")
    declared = database.declared(COLUMNS, ("region", "id"))
    try:
        with database.reader(declared, database.as_role(role)) as reader:
            pieces, _ = all_of(reader, reader.survey(3), 500)
            assert reader.confirmed_lsn() > 0
        assert len(pieces.rows) == 2_000
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_whole_table_needs_no_order(database_of: DatabaseOf) -> None:
    database = database_of(
        'CREATE TABLE orders (id text COLLATE "unicode" PRIMARY KEY, n int)',
        "INSERT INTO orders SELECT chr(60 + i), i FROM generate_series(1, 60) i",
    )
    pieces = Pieces()
    with database.reader(database.declared({"id": "string", "n": "int"}, mode="whole")) as reader:
        survey = reader.survey(3)
        chunk = reader.read_whole(pieces).chunk
    assert (survey.ranges, survey.tail) == ((KeyRange(),), None)
    assert (chunk.keys, chunk.rows) == (KeyRange(), 60)
    assert sorted(pieces.rows, key=lambda row: int(row[1])) == [(chr(60 + i), i) for i in range(1, 61)]


def test_a_partitioned_table_is_read_through_its_root(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (50) TO (1000)",
        "INSERT INTO orders SELECT generate_series(1, 100)",
    )
    database.execute(f"ALTER PUBLICATION {database.name} SET (publish_via_partition_root = true)")
    with database.reader(database.declared({"id": "int"})) as reader:
        pieces, _ = all_of(reader, reader.survey(2), 30)
    assert pieces.rows == [(i,) for i in range(1, 101)]


def test_names_are_those_of_sql(database_of: DatabaseOf) -> None:
    database = database_of(
        'CREATE SCHEMA "Sales"',
        'CREATE TABLE "Sales"."Or""ders" ("nullif" numeric(4,1) PRIMARY KEY, "Order" text)',
    )
    database.execute('INSERT INTO "Sales"."Or""ders" VALUES (2.5, \'x\'), (10, NULL)')
    declared = database.declared(
        {"nullif": "decimal(4,1)", "Order": "string"}, ("nullif",), name='"Sales"."Or""ders"'
    )
    with database.reader(declared) as reader:
        pieces, _ = all_of(reader, reader.survey(1), 1)
    assert pieces.rows == [(Decimal("2.5"), "x"), (Decimal("10.0"), None)]


def test_a_domain_is_its_base_type(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE DOMAIN cents AS numeric(9,2)",
        "CREATE DOMAIN price AS cents",
        "CREATE TABLE orders (id int PRIMARY KEY, amount price, day date)",
        "INSERT INTO orders VALUES (1, 3.10, '2024-02-29')",
    )
    pieces = Pieces()
    declared = database.declared({"id": "int", "amount": "decimal(9,2)", "day": "date"})
    with database.reader(declared) as reader:
        reader.read(KeyRange(), 10, pieces)
    assert pieces.rows == [(1, Decimal("3.10"), dt.date(2024, 2, 29))]


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        ("date", "date", "infinity"),
        ("date", "date", "0044-03-15 BC"),
        ("date", "date", "0001-01-01 BC"),
        ("timestamp", "timestamp", "-infinity"),
        ("timestamptz", "timestamp", "10000-01-01 00:00:00Z"),
        ("numeric", "decimal(5,2)", "1000"),
        ("numeric", "decimal(5,2)", "0.001"),
        ("numeric", "decimal(38,2)", "Infinity"),
    ],
)
def test_a_value_that_no_event_could_have_is_refused(
    database_of: DatabaseOf, kind: str, declared: str, value: str
) -> None:
    database = database_of(
        f"CREATE TABLE orders (id int PRIMARY KEY, v {kind})",
        f"INSERT INTO orders VALUES (1, NULL), (2, '{value}')",
    )
    columns = database.declared({"id": "int", "v": declared})
    with database.reader(columns) as reader, pytest.raises(InputError) as refused:
        reader.read(KeyRange(), 10, Pieces())
    assert refused.value.code is Code.VALUE_OUT_OF_RANGE
    assert refused.value.where == "public.orders.v"
    assert value not in str(refused.value)


def test_digits_that_are_zeros_fit(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id int PRIMARY KEY, v numeric)",
        "INSERT INTO orders VALUES (1, 100.000), (2, 999.990000), (3, 'NaN'), (4, -0.00)",
    )
    pieces = Pieces()
    with database.reader(database.declared({"id": "int", "v": "decimal(5,2)"})) as reader:
        reader.read(KeyRange(), 10, pieces)
    assert [row[1] for row in pieces.rows] == [Decimal("100.00"), Decimal("999.99"), None, Decimal("0.00")]


def test_a_not_a_number_in_the_key_is_no_key(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id numeric(4,1) PRIMARY KEY)", "INSERT INTO orders VALUES (1), ('NaN')"
    )
    with (
        database.reader(database.declared({"id": "decimal(4,1)"})) as reader,
        pytest.raises(InputError) as refused,
    ):
        reader.read(KeyRange(), 10, Pieces())
    assert refused.value.code is Code.PK_NULL

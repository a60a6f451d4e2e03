"""Tables that can't be copied right are refused before anything is read, each on a real server that has them so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from schemas.errors import BackfillError, Code
from state.values.chunks import KeyRange
from streaming.postgres.checks import Mode
from streaming.postgres.reader import ChunkReader
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.table import Database, Pieces, refusal
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
ID = {"id": "bigint"}
MADE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def test_texts_of_a_language_have_no_order_of_bytes(database_of: DatabaseOf) -> None:
    database = database_of('CREATE TABLE orders (id text COLLATE "unicode" PRIMARY KEY)')
    declared = database.declared({"id": "string"})
    text = refusal(declared, database.access, Code.POSTGRES_KEY_ORDER)
    assert "collation und" in text
    assert "whole" in text
    with database.reader(replace(declared, mode="whole")):
        pass


@pytest.mark.parametrize(
    ("locale", "bytewise"),
    [
        ("LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'", True),
        ("LOCALE_PROVIDER icu ICU_LOCALE 'de-DE'", False),
    ],
)
def test_the_databases_own_collation_counts(
    server: Postgres, tmp_path: Path, locale: str, bytewise: bool
) -> None:
    name = f"own_{int(bytewise)}"
    with server.connect("postgres") as session:
        session.execute(f"CREATE DATABASE {name} TEMPLATE template0 {locale} LC_COLLATE 'C' LC_CTYPE 'C'")
    database = Database(server, name, tmp_path)
    database.execute("CREATE TABLE orders (id varchar(20) PRIMARY KEY)")
    database.publish()
    database.stream()
    try:
        declared = database.declared({"id": "string"})
        if bytewise:
            with database.reader(declared):
                pass
        else:
            assert "collation de-DE" in refusal(declared, database.access, Code.POSTGRES_KEY_ORDER)
    finally:
        database.end()


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        ("mood", "string"),
        ("char(5)", "string"),
        ("citext_like", "string"),
        ("inet", "string"),
        ("time", "bigint"),
    ],
)
def test_types_with_an_order_of_their_own(database_of: DatabaseOf, kind: str, declared: str) -> None:
    database = database_of(
        "CREATE TYPE mood AS ENUM ('b', 'a')",
        'CREATE DOMAIN citext_like AS text COLLATE "unicode"',
        f"CREATE TABLE orders (id {kind} PRIMARY KEY)",
    )
    refusal(database.declared({"id": declared}), database.access, Code.POSTGRES_KEY_ORDER)


def test_milliseconds_of_a_key_that_has_more(database_of: DatabaseOf) -> None:
    database = database_of("CREATE TABLE orders (id timestamp PRIMARY KEY)")
    declared = database.declared({"id": "timestamp"}, time="connect")
    assert "milliseconds" in refusal(declared, database.access, Code.POSTGRES_KEY_ORDER)
    database.execute("ALTER TABLE orders ALTER id TYPE timestamp(3)")
    with database.reader(declared):
        pass


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("", "no primary key"),
        (", UNIQUE (id)", "no primary key"),
        (", PRIMARY KEY (other)", "the primary key (other)"),
        (", PRIMARY KEY (id, other)", "the primary key (id, other)"),
    ],
)
def test_a_key_that_is_none_or_another(database_of: DatabaseOf, key: str, found: str) -> None:
    database = database_of(f"CREATE TABLE orders (id bigint NOT NULL, other int{key})")
    modes: tuple[Mode, ...] = ("chunks", "whole")
    for mode in modes:
        text = refusal(
            database.declared(ID | {"other": "int"}, mode=mode),
            database.access,
            Code.POSTGRES_KEY_MISFIT,
        )
        assert found in text
        assert "the primary key (id), as table.primary_key says" in text


def test_a_key_in_another_order_will_do_for_a_whole_table(database_of: DatabaseOf) -> None:
    database = database_of("CREATE TABLE orders (a int, b int, PRIMARY KEY (a, b))")
    declared = database.declared({"a": "int", "b": "int"}, ("b", "a"))
    refusal(declared, database.access, Code.POSTGRES_KEY_MISFIT)
    with database.reader(replace(declared, mode="whole")):
        pass


def test_columns_that_differ_are_all_named(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id bigint PRIMARY KEY, amount text, made int GENERATED ALWAYS AS (1) STORED, at time, "
        "span interval)"
    )
    columns = ID | {"amont": "string", "amount": "int", "made": "int", "at": "bigint", "span": "string"}
    text = refusal(database.declared(columns, time=None), database.access, Code.POSTGRES_TABLE_MISFIT)
    assert "no column amont (did you mean 'amount'?)" in text
    assert "column amount is text, not int" in text
    assert "column made is generated" in text
    assert "column at is time, not bigint whose unit is known (upstream.time)" in text
    assert "column span is interval, not string" in text


def test_no_such_table_or_something_else(database_of: DatabaseOf) -> None:
    database = database_of(MADE, "CREATE VIEW seen AS SELECT * FROM orders")
    for name in ("public.missing", "orders", "nowhere.orders", "not a name"):
        refusal(database.declared(ID, name=name), database.access, Code.POSTGRES_TABLE_MISSING)
    text = refusal(database.declared(ID, name="public.seen"), database.access, Code.POSTGRES_TABLE_MISSING)
    assert "a view" in text


def test_a_role_without_rights(database_of: DatabaseOf) -> None:
    database = database_of(MADE, "DROP ROLE IF EXISTS nobody", "CREATE ROLE nobody LOGIN")
    access = database.as_role("nobody")
    try:
        text = refusal(database.declared(ID), access, Code.POSTGRES_RIGHTS)
        assert "may not read" in text
        # A part of the columns is not enough: the table can't be locked by it.
        database.execute("GRANT SELECT (id) ON orders TO nobody")
        refusal(database.declared(ID), access, Code.POSTGRES_RIGHTS)
        database.execute("GRANT SELECT ON orders TO nobody")
        with database.reader(database.declared(ID), access):
            pass
    finally:
        database.execute("DROP OWNED BY nobody", "DROP ROLE nobody")


def test_row_level_security_hides_rows(database_of: DatabaseOf) -> None:
    database = database_of(MADE, "DROP ROLE IF EXISTS halfblind", "CREATE ROLE halfblind LOGIN")
    access, declared = database.as_role("halfblind"), database.declared(ID)
    database.execute(
        "GRANT SELECT ON orders TO halfblind", "CREATE POLICY late ON orders FOR SELECT USING (id > 5)"
    )
    try:
        with database.reader(declared, access) as reader:
            database.execute(
                "INSERT INTO orders VALUES (1), (9)", "ALTER TABLE orders ENABLE ROW LEVEL SECURITY"
            )
            # One that begins later does not hide rows either: it is an error.
            with pytest.raises(BackfillError) as refused:
                reader.read(KeyRange(), 10, Pieces())
            assert refused.value.code is Code.POSTGRES_RIGHTS
        refusal(declared, access, Code.POSTGRES_ROWS_HIDDEN)
        with database.reader(declared):
            pass
    finally:
        database.execute("DROP OWNED BY halfblind", "DROP ROLE halfblind")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("ALTER TABLE orders REPLICA IDENTITY NOTHING", "REPLICA IDENTITY NOTHING"),
        ("ALTER TABLE orders SET UNLOGGED", "unlogged"),
        ("CREATE TABLE younger () INHERITS (orders)", "inherit"),
        ("DROP PUBLICATION {name}", "no publication"),
        (
            "ALTER PUBLICATION {name} SET (publish = 'insert, update')",
            "leaves out inserts, updates or deletes",
        ),
        ("{some} (id)", "leaves out columns"),
        ("{some} WHERE (id > 5)", "leaves out rows"),
        (
            "ALTER TABLE orders ALTER note SET NOT NULL; CREATE UNIQUE INDEX other ON orders (note); "
            "ALTER TABLE orders REPLICA IDENTITY USING INDEX other",
            "without the primary key",
        ),
    ],
)
def test_tables_whose_events_are_not_their_rows(database_of: DatabaseOf, change: str, found: str) -> None:
    database = database_of(MADE)
    some = f"DROP PUBLICATION {database.name}; CREATE PUBLICATION {database.name} FOR TABLE orders"
    database.execute(change.format(name=database.name, some=some))
    declared = database.declared(ID | {"note": "string"})
    assert found in refusal(declared, database.access, Code.POSTGRES_EVENTS_MISFIT)


def test_one_publication_that_fits_will_do_unless_the_connectors_is_known(database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    database.execute("CREATE PUBLICATION aside FOR TABLE orders WHERE (id > 5)")
    declared = database.declared(ID)
    with database.reader(declared):
        pass
    text = refusal(replace(declared, publication="aside"), database.access, Code.POSTGRES_EVENTS_MISFIT)
    assert "aside, which leaves out rows" in text
    refusal(replace(declared, publication="nothing"), database.access, Code.POSTGRES_EVENTS_MISFIT)


def test_partitions_have_events_of_their_own_without_the_root(database_of: DatabaseOf) -> None:
    database = database_of(
        "CREATE TABLE orders (id bigint PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (50)",
    )
    text = refusal(database.declared(ID), database.access, Code.POSTGRES_EVENTS_MISFIT)
    assert "publish_via_partition_root" in text
    with database.reader(database.declared(ID, name="public.low")):
        pass
    database.execute(f"ALTER PUBLICATION {database.name} SET (publish_via_partition_root = true)")
    refusal(database.declared(ID, name="public.low"), database.access, Code.POSTGRES_EVENTS_MISFIT)


def test_slots_that_are_not_the_connectors(database_of: DatabaseOf) -> None:
    database, other = database_of(MADE, streaming=False), database_of(MADE)
    refusal(database.declared(ID), database.access, Code.POSTGRES_SLOT_MISSING)
    text = refusal(
        replace(database.declared(ID), slot=other.name), database.access, Code.POSTGRES_SLOT_MISFIT
    )
    assert "another database" in text
    database.execute("SELECT pg_create_physical_replication_slot('bodily')")
    try:
        text = refusal(
            replace(database.declared(ID), slot="bodily"), database.access, Code.POSTGRES_SLOT_MISFIT
        )
        assert "a physical slot" in text
    finally:
        database.execute("SELECT pg_drop_replication_slot('bodily')")


def test_a_slot_of_another_plugin(database_of: DatabaseOf) -> None:
    database = database_of(MADE, streaming=False)
    try:
        database.execute(f"SELECT pg_create_logical_replication_slot('{database.name}', 'test_decoding')")
    except psycopg.errors.UndefinedFile:
        pytest.skip("this server has no other plugin")
    assert "test_decoding" in refusal(database.declared(ID), database.access, Code.POSTGRES_SLOT_MISFIT)


def test_a_slot_that_nobody_reads(database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    database.pause()
    refusal(database.declared(ID), database.access, Code.POSTGRES_NOT_STREAMING)
    # Later the connector may rest for a while: its slot keeps what it has not read.
    reader, identity = ChunkReader.open(database.access, database.declared(ID))
    reader.close()
    assert identity.database == database.name


def test_a_table_that_was_made_anew_is_another_one(database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    reader, identity = ChunkReader.open(database.access, database.declared(ID))
    database.execute("DROP TABLE orders", MADE)
    with pytest.raises(BackfillError) as refused:
        ChunkReader.open(database.access, database.declared(ID), expected=identity)
    assert refused.value.code is Code.POSTGRES_TABLE_CHANGED
    with pytest.raises(BackfillError) as refused:
        reader.read(KeyRange(), 10, Pieces())
    assert refused.value.code is Code.POSTGRES_TABLE_CHANGED
    reader.close()


def test_a_column_that_is_altered_between_chunks(database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    with database.reader(database.declared(ID | {"note": "string"})) as reader:
        reader.read(KeyRange(), 10, Pieces())
        database.execute("ALTER TABLE orders ADD further int")
        reader.read(KeyRange(), 10, Pieces())
        database.execute("ALTER TABLE orders ALTER note TYPE varchar(10)")
        with pytest.raises(BackfillError) as refused:
            reader.read(KeyRange(), 10, Pieces())
    assert refused.value.code is Code.POSTGRES_TABLE_CHANGED


def test_a_scale_that_events_do_not_tell_has_to_be_the_databases(database_of: DatabaseOf) -> None:
    database = database_of("CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(9,2))")
    columns = ID | {"amount": "decimal(20,5)"}
    text = refusal(database.declared(columns), database.access, Code.POSTGRES_TABLE_MISFIT)
    assert (
        "column amount is numeric, not decimal(20,5): its events are read at the scale of the database, 2"
        in text
    )
    with database.reader(database.declared(columns, scale_is_in_events=True)):
        pass

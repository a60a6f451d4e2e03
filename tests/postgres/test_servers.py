"""Servers that can't be read from, and doors that stay shut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.errors import BackfillError, Code
from streaming.broker.embedded import free_port
from streaming.postgres.catalog import server_of
from streaming.postgres.checks import check_server
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Gone, Session
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.table import refusal
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
ID = {"id": "bigint"}
MADE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"


def test_doors_that_stay_shut(database_of: DatabaseOf, tmp_path: Path) -> None:
    database = database_of(MADE)
    declared = database.declared(ID)
    text = refusal(declared, database.as_role("stranger"), Code.POSTGRES_REFUSED)
    assert "stranger" not in text
    refusal(declared, database.as_role("postgres", dbname="elsewhere"), Code.POSTGRES_REFUSED)
    refusal(declared, database.as_role("postgres", sslmode="require", password="x"), Code.POSTGRES_REFUSED)
    with pytest.raises(Gone):
        ChunkReader.open(database.as_role("postgres", port=str(free_port())), declared)
    far = database.as_role("postgres", host="db.example.org", password="hush", a="")
    text = refusal(declared, replace(far), Code.CONFIG_INVALID)
    assert "hush" not in text
    assert "db.example.org" not in text
    assert far.dsn.file is not None
    far.dsn.file.chmod(0o644)
    refusal(declared, far, Code.SECRET_FILE_MODE)


@pytest.fixture
def standby(server: Postgres) -> Iterator[str]:
    """The files of another server, at rest, and again as one that waits for the log of a primary."""
    folder = Path(tempfile.mkdtemp(prefix="standby-"))
    folder.chmod(0o755)
    primary = Postgres(folder)
    primary.begin()
    primary.await_ready()
    primary.stop()
    (folder / "data" / "standby.signal").touch()
    try:
        primary.start()
        primary.await_ready()
        yield f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres"
    finally:
        primary.stop()
        shutil.rmtree(folder)


def test_a_standby_does_not_name_what_runs(standby: str, database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    access = database.as_role("standby")
    assert access.dsn.file is not None
    access.dsn.file.write_text(standby)
    assert "in recovery" in refusal(database.declared(ID), access, Code.POSTGRES_UNFIT)


def test_a_server_that_is_too_old(database_of: DatabaseOf) -> None:
    database = database_of(MADE)
    session = Session.open(database.access)
    try:
        found = server_of(session)
    finally:
        session.close()
    assert found.version >= 170_000
    with pytest.raises(BackfillError) as refused:
        check_server(replace(found, version=120_021))
    assert refused.value.code is Code.POSTGRES_UNFIT
    assert "PostgreSQL 12" in str(refused.value)

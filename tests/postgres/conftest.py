"""A real server of PostgreSQL, and nothing beside it; each test has a database of its own."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.connect.postgres import Postgres
from tests.kit.connect.table import Database


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    # pytest's own folders can't be entered by the user that PostgreSQL runs as.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    folder.chmod(0o755)
    found = Postgres(folder)
    found.begin()
    try:
        found.await_ready()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)


DatabaseOf = Callable[..., Database]


@pytest.fixture
def database_of(server: Postgres, tmp_path: Path) -> Iterator[DatabaseOf]:
    """`database_of(*statements)`: with what they make, a publication of all tables, and a slot that is read."""
    made: list[Database] = []

    def build(*statements: str, streaming: bool = True) -> Database:
        name = f"d{uuid.uuid4().hex[:8]}"
        server.create(name, *statements)
        made.append(Database(server, name, tmp_path))
        made[-1].publish()
        if streaming:
            made[-1].stream()
        return made[-1]

    yield build
    for each in made:
        each.end()

"""A database server and a worker of Kafka Connect, for as long as a block runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.connect.postgres import Postgres
from tests.kit.connect.worker import Connect


@dataclass(frozen=True, slots=True)
class Platform:
    """Both, running."""

    postgres: Postgres
    connect: Connect


@contextmanager
def platform_on(bootstrap: str) -> Iterator[Platform]:
    """Beside a broker, in a folder that is gone afterwards."""
    # The user that PostgreSQL runs as can't enter pytest's own folders.
    folder = Path(tempfile.mkdtemp(prefix="connect-"))
    folder.chmod(0o755)
    (folder / "connect").mkdir()
    (folder / "postgres").mkdir()
    found = Platform(Postgres(folder / "postgres"), Connect(folder / "connect", bootstrap))
    try:
        found.connect.begin()
        found.postgres.begin()
        found.postgres.await_ready()
        found.connect.await_ready()
        yield found
    finally:
        found.connect.stop()
        found.postgres.stop()
        shutil.rmtree(folder)

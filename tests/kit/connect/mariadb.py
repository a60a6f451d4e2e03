"""MariaDB with a binary log of whole rows, one server for many databases: `begin` and `await_ready`, then `create`."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER
from pymysql.cursors import Cursor

from streaming.broker.embedded import free_port
from tests.kit.connect.worker import Connect
from tests.kit.real import await_answer, await_condition

SERVER = shutil.which("mariadbd", path=f"{os.defpath}:/usr/sbin:/usr/local/sbin")
needs_mariadb = pytest.mark.skipif(
    SERVER is None, reason="no MariaDB here: apt-get install --no-install-recommends mariadb-server"
)
_SETTINGS = """\
[mariadbd]
user={user}
bind_address=127.0.0.1
skip_name_resolve=1
port={port}
datadir={data}
socket={data}/socket
log_bin=bin
binlog_format=ROW
binlog_row_image=FULL
binlog_row_metadata=FULL
server_id=1
gtid_strict_mode=1
character_set_server=utf8mb4
collation_server=utf8mb4_bin
innodb_flush_log_at_trx_commit=0
"""
_RIGHTS = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES, SLAVE MONITOR"
STOP_S = 30.0


class MariaDbSession(pymysql.Connection):
    """A session that runs statements as one of psycopg does."""

    def execute(self, query: str, params: Sequence[Any] = (), /) -> Cursor:
        cursor = self.cursor()
        cursor.execute(query, params)
        return cursor


class MariaDbServer:
    """A server in `folder`. A database has the table `marks` as well, which tells how far a connector has read."""

    schema = "database()"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Make the files and start it; returns before it answers."""
        assert SERVER is not None
        user, data = getpass.getuser(), self._folder / "data"
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--user={user}",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        settings = self._folder / "settings"
        settings.write_text(_SETTINGS.format(user=user, port=self.port, data=data), encoding="utf-8")
        with (self._folder / "log").open("ab") as log:
            command = [SERVER, f"--defaults-file={settings}"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def await_ready(self) -> None:
        """Wait until it takes connections."""
        log = self._folder / "log"
        await_answer(lambda: self.connect("mysql").close(), pymysql.OperationalError, self._process, log)

    def stop(self) -> None:
        """End it, with its clients."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_S)

    def connect(self, database: str) -> MariaDbSession:
        """A session that commits each statement."""
        return MariaDbSession(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )

    def create(self, database: str, *statements: str) -> None:
        """A database of its own, with what the statements make, and a user of this name that reads the log."""
        with self.connect("mysql") as session:
            session.execute(f"CREATE DATABASE {database}")
            session.execute(f"CREATE USER {database}@127.0.0.1 IDENTIFIED BY 'unused'")
            session.execute(f"GRANT {_RIGHTS} ON *.* TO {database}@127.0.0.1")
        with self.connect(database) as session:
            for statement in (*statements, "CREATE TABLE marks (id bigint AUTO_INCREMENT PRIMARY KEY)"):
                session.execute(statement)

    def name_of(self, database: str, table: str) -> str:
        return f"{database}.{table}"

    def or_update(self, _: str, names: Sequence[str]) -> str:
        return "ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in names)

    def widened(self, column: str, kind: str) -> str:
        return f"MODIFY {column} {kind}"

    def lacks_a_column(self, error: Exception) -> bool:
        return isinstance(error, pymysql.OperationalError) and error.args[0] == ER.BAD_FIELD_ERROR

    def connector(self, name: str, tables: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": name,
            "database.password": "unused",
            "database.ssl.mode": "disable",
            "database.server.id": str(self.port),
            "table.include.list": f"{tables},{name}.marks",
            "include.schema.changes": "false",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self._folder / f"{name}.history"),
        }

    def is_read(self, name: str) -> bool:
        query = "SELECT 1 FROM information_schema.processlist WHERE user = %s AND command = 'Binlog Dump'"
        with self.connect(name) as session:
            return session.execute(query, [name]).fetchone() is not None

    def await_acknowledged(self, name: str, connect: Connect) -> None:
        """Wait until Kafka has what is committed now.

        A connector stores the place where the last acknowledged record's transaction begins: a mark has one behind it.
        """
        with self.connect(name) as session:
            status = session.execute("SHOW MASTER STATUS").fetchone()
            assert status is not None
            session.execute("INSERT INTO marks VALUES ()")
        end = _place(status[0], status[1])

        def is_read() -> bool:
            stored = connect.offsets(name)
            return bool(connect.failure(name)) or (
                "file" in stored and _place(stored["file"], stored["pos"]) >= end
            )

        await_condition(is_read, f"the connector {name} at {end}")
        assert not connect.failure(name), connect.failure(name)

    def end_reading(self, _: str) -> None:
        """Nothing: the log is kept for no reader."""


def _place(file: str, position: int) -> tuple[int, int]:
    """In the log, comparable."""
    return int(file.rpartition(".")[2]), position

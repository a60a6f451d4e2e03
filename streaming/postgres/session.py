"""A read-only connection to the database: every wait has an end, and errors hold no data.

PostgreSQL's messages quote values, and libpq's the parts of a connection string. So no text of either is passed on: an
error has its SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html), and a text of ours.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.settings.security import Secret, is_loopback

APPLICATION = "arrangement-backfill"
_CONNECT_S = 10
_GRACE_S = 5.0
"""The server ends a statement at its timeout. If it does not, the connection is cut after this extra time."""
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SETTINGS = {
    # One text for each value, whatever the role, the database or the server have set.
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "search_path": "pg_catalog",
    "default_transaction_read_only": "on",
    # A query whose rows a policy would hide fails then.
    "row_security": "off",
    # A chunk is a range of an index: no plan gains from these, and other queries would lack the workers.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
_VERIFIED = ("verify-full", "verify-ca")
_GONE = "08", "57P", "53", "58"
"""Classes of errors that may pass: a connection, an operator, resources, the system."""
_MAY_PASS = frozenset({"57014", "55P03", "40001", "40P01", "25P03", "55000"})
"""A statement timeout, a lock, a conflict; a server in recovery."""
_NO_ENTRY = ("28", "3D")
_RIGHTS = "42501"
_NO_OBJECT = frozenset({"42P01", "42703", "3F000", "42602", "42704"})


@dataclass(frozen=True, slots=True)
class Access:
    """Access to the database. `dsn` is read anew for each connection, so that a password may change meanwhile."""

    dsn: Secret
    statement_timeout_ms: int
    allow_plaintext: bool = False


class Gone(Exception):
    """The connection is lost, or was cut: a passing error that needs a new session. `why` is fit for a message."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def problem(self) -> EnvironmentProblem:
        """The error for people."""
        return EnvironmentProblem(Code.POSTGRES_UNREACHABLE, where=WHERE, found=self.why)


WHERE = "initial.postgres.dsn_file"


class Session:
    """One connection. For one thread, except `cut`.

    Raises, from every request: Gone for a passing error; EnvironmentProblem(POSTGRES_REFUSED, POSTGRES_FAILED);
    ConfigError(POSTGRES_RIGHTS, POSTGRES_TABLE_MISSING).
    """

    def __init__(self, connection: psycopg.Connection[Any], timeout_s: float) -> None:
        self._connection, self._timeout_s = connection, timeout_s

    @classmethod
    def open(cls, access: Access) -> Session:
        """Connect. Raises: as all requests; ConfigError(CONFIG_INVALID, SECRET_FILE_MODE) for the connection string."""
        info = _connection_info(access)
        with translated(at_the_door=True):
            connection = psycopg.connect(info, autocommit=True, cursor_factory=psycopg.ClientCursor)
        session = cls(connection, access.statement_timeout_ms / 1_000)
        try:
            settings = {**_SETTINGS, "statement_timeout": str(access.statement_timeout_ms)}
            places = ", ".join(["set_config(%s, %s, false)"] * len(settings))
            pairs = [part for pair in settings.items() for part in pair]
            session.rows(f"SELECT {places}", pairs)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """End the connection, without waiting for the server."""
        with suppress(psycopg.Error):
            self._connection.close()

    def cut(self) -> None:
        """End it from another thread: a request under way fails at once with Gone."""
        with suppress(OSError, psycopg.Error):
            descriptor = self._connection.pgconn.socket
            with socket.socket(fileno=os.dup(descriptor)) as shared:
                shared.shutdown(socket.SHUT_RDWR)

    def rows(self, query: str | sql.Composable, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The result of a query; none for a statement without one. With arguments, a `%` in it is written `%%`."""
        with self.deadline(), translated():
            cursor = self._connection.execute(query, arguments or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def execute(self, statement: str | sql.Composable) -> None:
        """Run a statement without a result, such as `BEGIN` or `COMMIT`."""
        self.rows(statement)

    def copy(self, query: sql.Composable, most_bytes: int) -> Iterator[bytes]:
        """Whole lines of the CSV of a query's rows, about `most_bytes` at a time.

        Fetching each line from libpq is all the work that Python does for a row.
        """
        connection, text = self._connection.pgconn, query.as_string(self._connection)
        with self.deadline(), translated():
            found = connection.exec_(f"COPY ({text}) TO STDOUT (FORMAT csv)".encode())
            _check(connection, found)
        is_over = False
        while not is_over:
            piece, is_over = self._lines(connection, most_bytes)
            if piece:
                yield piece

    def _lines(self, connection: pq.abc.PGconn, most_bytes: int) -> tuple[bytes, bool]:
        """Some lines, and True if they are the last ones.

        Requested without waiting, because libpq's own wait would hold every thread of this process.
        """
        lines: list[Any] = []
        size, is_over = 0, False
        with translated():
            line_of, keep = connection.get_copy_data, lines.append
            while size < most_bytes:
                length, line = line_of(1)
                if length > 0:
                    keep(line)
                    size += length
                elif length == 0:
                    self._await_more(connection)
                elif length == -1:
                    _check(connection, connection.get_result())
                    is_over = True
                    break
                else:
                    raise psycopg.OperationalError
        return b"".join(lines), is_over

    def _await_more(self, connection: pq.abc.PGconn) -> None:
        timeout_s = self._timeout_s + _GRACE_S
        if not select.select([connection.socket], [], [], timeout_s)[0]:
            self.cut()
            raise Gone(f"no answer within {timeout_s:.0f} s")
        connection.consume_input()

    @contextmanager
    def deadline(self) -> Iterator[None]:
        """Cut the connection if the block takes longer than a statement may, and the server does not end it."""
        timer = threading.Timer(self._timeout_s + _GRACE_S, self.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _check(connection: pq.abc.PGconn, found: pq.abc.PGresult | None) -> None:
    """Check the result of a COPY that begins or has ended. Raises: psycopg.Error."""
    good = (pq.ExecStatus.COPY_OUT, pq.ExecStatus.COMMAND_OK)
    while found is not None:
        if found.status not in good:
            state = found.error_field(pq.DiagnosticField.SQLSTATE)
            raise psycopg.errors.lookup(state.decode())() if state else psycopg.OperationalError
        if found.status == pq.ExecStatus.COPY_OUT:
            return
        found = connection.get_result()


def _connection_info(access: Access) -> str:
    """The connection string with our own settings added; errors quote nothing of it."""
    text = access.dsn.read()
    try:
        given = conninfo_to_dict(text)
    except psycopg.Error:
        raise _invalid("no connection string of PostgreSQL") from None
    hosts = [each for key in ("host", "hostaddr") for each in str(given.get(key) or "").split(",") if each]
    far = [host for host in hosts if not host.startswith(("/", "@")) and not is_loopback(host)]
    if far and given.get("sslmode") not in _VERIFIED and not access.allow_plaintext:
        raise _invalid("another machine, without sslmode=verify-full")
    own: dict[str, Any] = {"application_name": APPLICATION, "connect_timeout": _CONNECT_S, **_KEEPALIVE}
    return make_conninfo(**{**own, **given})


def _invalid(found: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_INVALID,
        where=WHERE,
        found=found,
        expected="a connection string or URL of PostgreSQL; to another machine with sslmode=verify-full, unless "
        "allow_plaintext is true",
        next_step="correct the file that this key names",
    )


@contextmanager
def translated(*, at_the_door: bool = False) -> Iterator[None]:
    """Raise `Session`'s errors in place of psycopg's. `at_the_door`: while it connects."""
    try:
        yield
    except psycopg.Error as error:
        raise _meaning(error, at_the_door) from None


def _meaning(error: psycopg.Error, at_the_door: bool) -> Gone | BackfillError:
    state = error.sqlstate or ""
    if state == _RIGHTS:
        return ConfigError(Code.POSTGRES_RIGHTS, where=WHERE, found="a role that may not read it")
    if state in _NO_OBJECT:
        found = f"something of it that is gone (SQLSTATE {state})"
        return ConfigError(Code.POSTGRES_TABLE_MISSING, where=WHERE, found=found)
    if state.startswith(_NO_ENTRY):
        return EnvironmentProblem(Code.POSTGRES_REFUSED, where=WHERE, found=f"a refusal (SQLSTATE {state})")
    if not state:
        return _refusal_in(str(error).lower()) if at_the_door else Gone("no answer")
    if state.startswith(_GONE) or state in _MAY_PASS:
        return Gone(f"an error that may pass (SQLSTATE {state})")
    return EnvironmentProblem(Code.POSTGRES_FAILED, where=WHERE, found=f"an error (SQLSTATE {state})")


def _refusal_in(words: str) -> Gone | BackfillError:
    """The error for a failed connection: libpq gives no SQLSTATE then, only its text shows whether it was refused."""
    refused = (
        "authentication failed",
        "no pg_hba.conf",
        "does not exist",
        "no password",
        "does not support ssl",
        "certificate",
    )
    if any(word in words for word in refused):
        found = "a refusal: the user, the password, the database, or its certificate"
        return EnvironmentProblem(Code.POSTGRES_REFUSED, where=WHERE, found=found)
    return Gone("no answer")

"""A table of some ten thousand rows, and two sessions that change it at random, with transactions that stay open."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from schemas.position import Key
from schemas.records import Row
from tests.kit.connect.postgres import Postgres

NAME = "public.items"
DECLARED: dict[str, Any] = {
    "name": "items",
    "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "body": "string"},
    "primary_key": ["id"],
    "vnode_count": 16,
}
_WIDTH = 3_000
"""Of a value that is left out of an update which does not set it."""


def made(rows: int) -> tuple[str, ...]:
    """Statements that make it. Keys are the even numbers, so that there is room between two of them."""
    return (
        "CREATE TABLE items (id bigint PRIMARY KEY, region text, amount numeric(18,2), body text)",
        "ALTER TABLE items ALTER body SET STORAGE EXTERNAL",
        # What is put in are numbers.
        "INSERT INTO items SELECT 2 * i, CASE i % 3 WHEN 0 THEN 'EU' ELSE 'US' END, i / 100.0, "  # noqa: S608
        f"CASE WHEN i % 500 = 0 THEN repeat('x', {_WIDTH}) ELSE 'row ' || i END FROM generate_series(1, {rows}) i",
        "ANALYZE items",
    )


def selected(postgres: Postgres, database: str, columns: str, where: str = "true") -> dict[Key, Row]:
    """Rows by their keys, as they are committed now."""
    with postgres.connect(database) as session:
        found = session.execute(f"SELECT id, {columns} FROM items WHERE {where}").fetchall()  # noqa: S608
    return {row[:1]: row[1:] for row in found}


class _Session:
    """One of the two. Its keys have a remainder of their own, so that it never waits for the locks of the other."""

    def __init__(self, session: psycopg.Connection[Any], rest: int, rows: int, chance: random.Random) -> None:
        self.session, self._rest, self._last, self._chance = session, rest, 2 * rows + 200, chance

    def _key(self) -> int:
        return self._chance.randrange(self._last // 4) * 4 + 2 * self._rest + self._chance.randrange(2)

    def step(self) -> None:
        """A statement; what ends the transaction is the caller's."""
        steps = [self._put, self._update, self._delete, self._move]
        [step] = self._chance.choices(steps, [5, 8, 3, 2])
        step()

    def _put(self) -> None:
        body = self._chance.choice(["new", "y" * _WIDTH])
        statement = "INSERT INTO items VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET region = excluded.region"
        region = self._chance.choice(["EU", "US"])
        self.session.execute(statement, [self._key(), region, self._chance.randrange(10**6), body])

    def _update(self) -> None:
        at, amount = self._key(), self._chance.randrange(10**6)
        self.session.execute("UPDATE items SET amount = %s WHERE id BETWEEN %s AND %s", [amount, at, at])

    def _delete(self) -> None:
        self.session.execute("DELETE FROM items WHERE id = %s", [self._key()])

    def _move(self) -> None:
        """Another key for a row, near or far. With a new large value: an old one would not be in its event."""
        old, new = self._key(), self._key()
        free = "WHERE id = %s AND NOT EXISTS (SELECT FROM items WHERE id = %s)"
        self.session.execute(
            f"UPDATE items SET id = %s, body = %s {free}",  # noqa: S608
            [new, self._chance.choice(["moved", "z" * _WIDTH]), old, new],
        )


class LongTransactions:
    """Both sessions in a thread. Of the two one is always in the middle of a transaction."""

    def __init__(self, postgres: Postgres, database: str, rows: int, seed: int) -> None:
        self._chance = random.Random(seed)
        opened = (postgres.connect(database, autocommit=False) for _ in range(2))
        self._sessions = [_Session(each, rest, rows, self._chance) for rest, each in enumerate(opened)]
        self._stop = threading.Event()
        self.commits = 0

    @contextmanager
    def writing(self, *, pause_s: float = 0.002) -> Iterator[None]:
        """They write while the block runs, and have committed behind it."""
        self._stop.clear()
        error: list[BaseException] = []

        def work() -> None:
            try:
                while not self._stop.wait(pause_s):
                    self._chance.choice(self._sessions).step()
                    if self._chance.random() < 0.01:
                        self._end(self._chance.choice(self._sessions))
            except BaseException as failed:  # noqa: BLE001  # raised below
                error.append(failed)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if error:
            raise error[0]
        for each in self._sessions:
            each.session.commit()

    def _end(self, writer: _Session) -> None:
        if self._chance.random() < 0.2:
            writer.session.rollback()
        else:
            writer.session.commit()
            self.commits += 1

    def close(self) -> None:
        for each in self._sessions:
            each.session.close()

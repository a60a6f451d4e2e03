"""Two sessions of a database that change its table at random, in transactions that overlap."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import psycopg

from tests.kit.connect.orders import KEY, LARGE, NAMES, random_value
from tests.kit.connect.postgres import Postgres

REGIONS = ("EU", "US", "größer 🙂")
IDS = 40
"""A number so small that a transaction often changes a row twice."""
_FREE = "WHERE region = %s AND id = %s AND NOT EXISTS (SELECT FROM orders WHERE region = %s AND id = %s)"
_VALUES = [name for name in NAMES if name not in KEY]


class _Writer:
    """One session. Its ids are even or odd, so that it never waits for the locks of the other."""

    def __init__(self, session: psycopg.Connection[Any], odd: int, chance: random.Random) -> None:
        self.session, self.odd, self._chance = session, odd, chance

    def step(self) -> None:
        """A statement, or the end of the transaction."""
        steps = [self._insert, self._update, self._delete, self._move, self._savepoint, self._end]
        [step] = self._chance.choices(steps, [6, 9, 3, 2, 1, 3])
        step()

    def _key(self) -> tuple[str, int]:
        return self._chance.choice(REGIONS), 2 * self._chance.randrange(IDS) + self.odd

    def _values(self, names: Sequence[str]) -> list[Any]:
        return [random_value(name, self._chance) for name in names]

    def _insert(self) -> None:
        places = ", ".join(["%s"] * len(NAMES))
        statement = f"INSERT INTO orders ({', '.join(NAMES)}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608
        self.session.execute(statement, [*self._key(), *self._values(_VALUES)])

    def _update(self) -> None:
        """Of some columns; what else is large is left out by the database."""
        names = self._chance.sample(_VALUES, self._chance.choice([1, 3, len(_VALUES)]))
        sets = ", ".join(f"{name} = %s" for name in names)
        self.session.execute(
            f"UPDATE orders SET {sets} WHERE region = %s AND id = %s",  # noqa: S608
            [*self._values(names), *self._key()],
        )

    def _delete(self) -> None:
        self.session.execute("DELETE FROM orders WHERE region = %s AND id = %s", self._key())

    def _move(self) -> None:
        """Another key for a row, unless one has it. Nothing large is left as it was: the new key has no such value."""
        old, new = self._key(), self._key()
        sets = ", ".join(f"{name} = %s" for name in LARGE)
        values = self._values(LARGE)
        self.session.execute(
            f"UPDATE orders SET region = %s, id = %s, {sets} {_FREE}",  # noqa: S608
            [*new, *values, *old, *new],
        )

    def _savepoint(self) -> None:
        """Two statements that may be taken back."""
        self.session.execute("SAVEPOINT here")
        self._update()
        self._insert()
        self.session.execute(self._chance.choice(["ROLLBACK TO here", "RELEASE here"]))

    def _end(self) -> None:
        if self._chance.random() < 0.2:
            self.session.rollback()
        else:
            self.session.commit()


class Writers:
    """Both sessions; everything is committed when `write` returns."""

    def __init__(self, postgres: Postgres, database: str, seed: int) -> None:
        self._chance = random.Random(seed)
        sessions = (postgres.connect(database, autocommit=False) for _ in range(2))
        self._writers = [_Writer(session, odd, self._chance) for odd, session in enumerate(sessions)]

    def write(self, steps: int) -> None:
        for _ in range(steps):
            self._chance.choice(self._writers).step()
        for writer in self._writers:
            writer.session.commit()
            writer.odd = 1 - writer.odd

    def close(self) -> None:
        for writer in self._writers:
            writer.session.close()

"""A table whose columns may change, on any server, and statements that write it at random meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from tests.kit.connect.source import SqlSession, TableServer

MADE = (
    "CREATE TABLE items (id bigint PRIMARY KEY, n integer, price numeric(10,2), note text, legacy text)",
    "INSERT INTO items VALUES (-1, 1, 1.5, 'quiet', 'old'), (-2, null, null, null, null)",
)
"""With rows that the load leaves alone: no record comes for them once columns change."""
DECLARED: dict[str, Any] = {
    "name": "items",
    "columns": {"id": "bigint", "n": "int", "price": "decimal(10,2)", "note": "string", "legacy": "string"},
    "primary_key": ["id"],
    "vnode_count": 16,
}
IDS = 300


@dataclass
class Load:
    """A session that writes the table at random, with the columns that it has at the time."""

    server: TableServer
    database: str
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    _done: int = 0
    _error: BaseException | None = None
    _moved: threading.Condition = field(default_factory=threading.Condition)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def steps(self, count: int) -> None:
        """Wait until so many further statements are committed."""
        with self._moved:
            until = self._done + count
            assert self._moved.wait_for(lambda: self._error or self._done >= until, 120)
        assert self._error is None, self._error

    def _write(self) -> None:
        try:
            with self.server.connect(self.database) as session:
                kinds = self._columns(session)
                while not self._stop.wait(0.002):
                    try:
                        self._step(session, kinds)
                    except Exception as error:
                        if not self.server.lacks_a_column(error):
                            raise
                        kinds = self._columns(session)
                        continue
                    if self._done % 20 == 0:
                        kinds = self._columns(session)
                    with self._moved:
                        self._done += 1
                        self._moved.notify_all()
        except BaseException as error:  # noqa: BLE001  # shown by `steps`
            with self._moved:
                self._error = error
                self._moved.notify_all()

    def _columns(self, session: SqlSession) -> dict[str, str]:
        here = f"table_name = 'items' AND table_schema = {self.server.schema}"
        query = f"SELECT column_name, data_type FROM information_schema.columns WHERE {here}"  # noqa: S608
        return dict(session.execute(query).fetchall())

    def _step(self, session: SqlSession, kinds: Mapping[str, str]) -> None:
        key, names = self.chance.randrange(IDS), [name for name in kinds if name != "id"]
        if self.chance.random() < 0.1:
            session.execute("DELETE FROM items WHERE id = %s", [key])
            return
        # An insert leaves some columns to their defaults.
        names = self.chance.sample(names, self.chance.randrange(1, len(names) + 1))
        values = [self._value(kinds[name]) for name in names]
        session.execute(
            f"INSERT INTO items (id, {', '.join(names)}) VALUES (%s{', %s' * len(names)}) "  # noqa: S608
            + self.server.or_update("id", names),
            [key, *values],
        )

    def _value(self, kind: str) -> Any:
        if self.chance.random() < 0.1:
            return None
        match kind:
            case "integer" | "int":
                return self.chance.choice([0, 2**31 - 1, -(2**31), self.chance.randrange(-(2**31), 2**31)])
            case "bigint":
                return self.chance.choice([2**31, -(2**63), 2**63 - 1, 5])
            case "numeric" | "decimal":
                return Decimal(self.chance.randrange(-(10**10) + 1, 10**10)).scaleb(-2)
        return self.chance.choice(["", "x", "größer 🙂", "a" * 40])

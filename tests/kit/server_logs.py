"""Logs of database servers, and the sources that Debezium's connectors write of them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass

from schemas.codec.logs import LogPosition
from schemas.records import Op
from tests.kit.log_positions import log_position

START_MS = 1_700_000_000_000
PARTITIONS = 2


@dataclass(frozen=True)
class Sent:
    """A record. `is_known`: the rule can know that it was sent before, if it was."""

    key: int
    op: Op
    source: dict[str, object] | None
    is_new: bool = True
    is_known: bool = True

    @property
    def partition(self) -> int:
        return self.key % PARTITIONS

    @property
    def position(self) -> LogPosition | None:
        return None if self.source is None else log_position(self.source)


@dataclass
class Clock:
    """Of a server: it runs, and steps back and forth."""

    chance: random.Random
    now_ms: int = START_MS
    steps: bool = True

    def __call__(self) -> int:
        self.now_ms += self.chance.randint(0, 40)
        if self.steps and self.chance.random() < 0.1:
            self.now_ms += self.chance.randint(-3_000, 500)
        return self.now_ms


class Log(ABC):
    """A log: `next` gives the source of the next change; `of_snapshot` that of a row of a snapshot."""

    connector = "postgresql"
    name, db = "shop", "shop"

    def __init__(self, chance: random.Random, clock: Clock) -> None:
        self.chance, self.clock = chance, clock

    def next(self, *, same: bool = False) -> dict[str, object]:
        source = self._place(same=same)
        return (
            self._base() | source | {"ts_ms": self.clock(), "snapshot": self.chance.choice(["false", None])}
        )

    def of_snapshot(self) -> dict[str, object]:
        return self._base() | {
            "snapshot": self.chance.choice(["first", "true", "last"]),
            "ts_ms": self.clock.now_ms,
        }

    def _base(self) -> dict[str, object]:
        return {"connector": self.connector, "name": self.name, "db": self.db}

    @abstractmethod
    def _place(self, *, same: bool) -> dict[str, object]:
        """The position of the next change, or of the `same` one again, as the connector writes it."""


class Postgres(Log):
    """Transactions overlap: a change's own LSN may be lower than that of one committed before it."""

    def __init__(self, chance: random.Random, clock: Clock, at: int = 10_000) -> None:
        super().__init__(chance, clock)
        self.commit = self.lsn = at

    def _place(self, *, same: bool) -> dict[str, object]:
        if not same:
            if self.chance.random() < 0.5:
                self.lsn += self.chance.randint(1, 9)
            else:
                self.commit = max(self.commit + 1, self.lsn)
                self.lsn = self.commit + self.chance.randint(-5, 9)
        return {"sequence": f'["{self.commit}","{self.lsn}"]', "lsn": self.lsn}


class MySql(Log):
    """`uuid` None: without GTIDs. `cluster`: a server of a cluster, whose numbers come from blocks."""

    connector = "mysql"

    def __init__(
        self,
        chance: random.Random,
        clock: Clock,
        uuid: str | None = "aaaa",
        *,
        server: int = 1,
        number: int = 1,
        file: int = 2,
        pos: int = 200,
    ) -> None:
        super().__init__(chance, clock)
        self.uuid, self.server, self.number = uuid, server, number
        self.file, self.pos, self.row = file, pos, 0

    def _gtid(self) -> str | None:
        return None if self.uuid is None else f"{self.uuid}:{self.number}"

    def _place(self, *, same: bool) -> dict[str, object]:
        if not same:
            self._advance()
        return {
            "file": f"bin.{self.file:06}",
            "pos": self.pos,
            "row": self.row,
            "server_id": self.server,
            "gtid": self._gtid(),
        }

    def _advance(self) -> None:
        match self.chance.randrange(4):
            case 0:
                self.row += 1
            case 1:
                self.file, self.pos, self.row, self.number = self.file + 1, 4, 0, self.number + 1
            case _:
                self.pos, self.row, self.number = self.pos + self.chance.randint(30, 400), 0, self.number + 1

    def of_snapshot(self) -> dict[str, object]:
        place = {"file": f"bin.{self.file:06}", "pos": self.pos, "row": 0, "server_id": 0, "gtid": None}
        return super().of_snapshot() | place


class MariaDb(MySql):
    """Its times are those of statements, in seconds, and fall where a long transaction commits."""

    connector = "mariadb"

    def _gtid(self) -> str | None:
        return f"0-{self.server}-{self.number}"

    def next(self, *, same: bool = False) -> dict[str, object]:
        source = super().next(same=same)
        ts_ms = source["ts_ms"]
        assert isinstance(ts_ms, int)
        return source | {"ts_ms": (ts_ms - self.chance.choice([0, 0, 0, 9_000])) // 1_000 * 1_000}


class SqlServer(Log):
    """Transactions overlap in `change_lsn`."""

    connector = "sqlserver"

    def __init__(self, chance: random.Random, clock: Clock, at: int = 1_000) -> None:
        super().__init__(chance, clock)
        self.commit, self.change, self.serial = at, at, 0

    def _place(self, *, same: bool) -> dict[str, object]:
        if not same:
            if self.chance.random() < 0.5:
                self.change, self.serial = self.change + self.chance.randint(1, 3), 1
            else:
                self.commit += self.chance.randint(3, 9)
                self.change, self.serial = self.commit - self.chance.randint(1, 20), 1
        return {
            "commit_lsn": _lsn(self.commit),
            "change_lsn": _lsn(self.change),
            "event_serial_no": self.serial,
        }


def _lsn(number: int) -> str:
    return f"{number >> 16:08x}:{number & 0xFFFF:08x}:0003"

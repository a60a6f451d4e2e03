"""Histories of database servers and of the connector that reads them, as topics have them: with the truth beside it.

A history is a list of `Sent` records in the order in which they were appended, each in its partition, cut by barriers.
`is_new` is what the rule has to find out: False for a record that was sent before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from schemas.logs import LogPosition, log_position
from schemas.records import Op

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


class Log:
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

    def _place(self, *, same: bool) -> dict[str, object]:
        raise NotImplementedError


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


@dataclass
class Topic:
    """A topic as connectors append to it. `intervals` are lists of records; a barrier ends each."""

    chance: random.Random
    intervals: list[list[Sent]] = field(default_factory=lambda: [[]])
    keys: range = range(12)
    latest: dict[object, int] = field(default_factory=dict)
    """By log and partition, the latest time: a record that begins a log anew is later."""

    def barrier(self) -> None:
        self.intervals.append([])

    def append(self, sent: Sent) -> None:
        where = sent.position
        if sent.is_new and where is not None and where.position is not None and where.ts_ms is not None:
            place = where.log, sent.partition
            self.latest[place] = max(self.latest.get(place, 0), where.ts_ms)
        self.intervals[-1].append(sent)
        if self.chance.random() < 0.12:
            self.barrier()

    def snapshot(self, log: Log, rows: int = 4) -> None:
        for key in self.chance.sample(list(self.keys), rows):
            self.append(Sent(key, Op.INSERT, log.of_snapshot()))


@dataclass
class Connector:
    """Streams one log to a topic. It is killed now and then, and sends again what came since some moment."""

    topic: Topic
    chance: random.Random
    log: Log
    sent: list[list[Sent]] = field(default_factory=list)
    dies: float = 0.08

    def stream(self, events: int) -> None:
        for _ in range(events):
            event = self.event()
            self.sent.append(event)
            self._send(event)
            if self.chance.random() < self.dies:
                self.again()

    def again(self, is_known: bool = True) -> None:
        """Redelivers a suffix of any length, cut short by a second kill now and then."""
        if not self.sent:
            return
        again = self.sent[-self.chance.randint(1, len(self.sent)) :]
        if self.chance.random() < 0.3:
            self._send_again(again[: self.chance.randint(1, len(again))], is_known)
        self._send_again(again, is_known)

    def event(self) -> list[Sent]:
        key, source = self.chance.choice(self.topic.keys), self.log.next()
        match self.chance.randrange(6):
            case 0:
                return [Sent(key, Op.DELETE, source), Sent(key, Op.DELETE, None)]
            case 1:  # a change of key
                other = self.chance.choice([each for each in self.topic.keys if each != key])
                same = source | {"ts_ms": source["ts_ms"]}
                return [
                    Sent(key, Op.DELETE, source),
                    Sent(key, Op.DELETE, None),
                    Sent(other, Op.INSERT, same),
                ]
            case 2:  # rows of one COPY
                keys = self.chance.sample(list(self.topic.keys), 3)
                return [Sent(each, Op.INSERT, source) for each in keys]
            case _:
                return [Sent(key, Op.INSERT, source)]

    def _send(self, event: list[Sent]) -> None:
        for each in event:
            self.topic.append(each)

    def _send_again(self, events: list[list[Sent]], is_known: bool) -> None:
        for event in events:
            for each in event:
                self.topic.append(replace(each, is_new=False, is_known=is_known))


History = Callable[[random.Random], list[list[Sent]]]


def _log(kind: str, chance: random.Random, clock: Clock) -> Log:
    match kind:
        case "postgresql":
            return Postgres(chance, clock)
        case "mysql":
            return MySql(chance, clock)
        case "mysql without GTIDs":
            return MySql(chance, clock, None)
        case "mariadb":
            return MariaDb(chance, clock)
        case "mariadb without GTIDs":
            return _MariaDbFiles(chance, clock)
        case _:
            return SqlServer(chance, clock)


class _MariaDbFiles(MariaDb):
    def _gtid(self) -> str | None:
        return None


KINDS = "postgresql", "mysql", "mysql without GTIDs", "mariadb", "mariadb without GTIDs", "sqlserver"


def one_server(chance: random.Random, kind: str) -> list[list[Sent]]:
    """One server, whose connector is killed now and then."""
    topic = Topic(chance)
    log = _log(kind, chance, Clock(chance))
    if chance.random() < 0.7:
        topic.snapshot(log)
    Connector(topic, chance, log).stream(chance.randint(5, 60))
    return topic.intervals


def several_databases(chance: random.Random, kind: str) -> list[list[Sent]]:
    """Shards routed into one topic, each with a log of its own."""
    topic, connectors = Topic(chance), list[Connector]()
    for number in range(3):
        log = _log(kind, chance, Clock(chance))
        log.name = log.db = f"shard{number}"
        connectors.append(Connector(topic, chance, log))
    for _ in range(chance.randint(5, 20)):
        connector = chance.choice(connectors)
        if chance.random() < 0.05 and not connector.sent:
            topic.snapshot(connector.log)
        connector.stream(chance.randint(1, 6))
    return topic.intervals


def begun_anew(chance: random.Random, kind: str) -> list[list[Sent]]:
    """A server that is restored, moved or reset, once or twice: its log begins lower, and no snapshot is read."""
    topic = Topic(chance)
    for _ in range(chance.randint(2, 3)):
        log = _log(kind, chance, _later(topic))
        _begin(topic, chance, log).stream(chance.randint(3, 30))
    return topic.intervals


def new_snapshot(chance: random.Random, kind: str) -> list[list[Sent]]:
    """The same with a new snapshot each time, whose rows may all stand in one partition."""
    topic = Topic(chance)
    for number in range(chance.randint(2, 3)):
        log = _log(kind, chance, _later(topic))
        if number and chance.random() < 0.5:
            topic.intervals[-1].append(Sent(chance.choice([0, 1]), Op.INSERT, log.of_snapshot()))
        else:
            topic.snapshot(log)
        _begin(topic, chance, log).stream(chance.randint(3, 30))
    return topic.intervals


def replica_with_origins_numbers(chance: random.Random, kind: str) -> list[list[Sent]]:
    """Failovers by GTID to replicas, which have the numbers of the servers before them at places of their own."""
    topic, clock, uuids = Topic(chance), Clock(chance), ["aaaa", "bbbb", "cccc"]
    before = list[list[Sent]]()
    for number, uuid in enumerate(uuids):
        make = MariaDb if kind == "mariadb" else MySql
        file = chance.choice([1, 900])
        log = make(chance, clock, uuid, server=number + 1, number=100 * number + 1, file=file)
        connector = Connector(topic, chance, log)
        # What was sent since the last offsets that were stored comes again from the replica.
        for event in before[-chance.randint(1, 4) :]:
            place = {"file": f"bin.{file:06}", "pos": 10 + len(connector.sent), "row": 0}
            moved = [
                each if each.source is None else replace(each, source=each.source | place) for each in event
            ]
            connector._send_again([moved], is_known=False)
            connector.sent.append(moved)
        connector.stream(chance.randint(3, 25))
        before = connector.sent
    return topic.intervals


def blocks_of_numbers(chance: random.Random, kind: str) -> list[list[Sent]]:
    """Members of a cluster: one uuid, numbers from blocks, fail over and back."""
    topic = Topic(chance)
    members = [
        MySql(
            chance, Clock(chance), "cccc", server=n + 1, number=1 + 1_000_000 * n, file=chance.randint(1, 9)
        )
        for n in range(3)
    ]
    for _ in range(chance.randint(2, 5)):
        log = chance.choice(members)
        log.clock = _later(topic)
        _begin(topic, chance, log).stream(chance.randint(2, 15))
    return topic.intervals


def _later(topic: Topic) -> Clock:
    """Of a server whose clock is not behind: whatever it does later, its first records are later than all before."""
    return Clock(topic.chance, max(topic.latest.values(), default=START_MS) + 20_000)


def _begin(topic: Topic, chance: random.Random, log: Log) -> Connector:
    """Sends a change to each partition before the clock may step back."""
    connector = Connector(topic, chance, log)
    log.clock.steps = False
    for partition in range(PARTITIONS):
        source = log.next()
        ts_ms = source["ts_ms"]
        assert isinstance(ts_ms, int)
        event = [Sent(partition, Op.INSERT, source | {"ts_ms": max(ts_ms, log.clock.now_ms)})]
        connector.sent.append(event)
        connector._send(event)
    log.clock.steps = True
    return connector

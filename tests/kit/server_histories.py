"""Histories of database servers and of the connectors that read them, as topics have them: with the truth beside it.

A history is a list of intervals, each a list of `Sent` records in the order in which they were appended.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from schemas.records import Op
from tests.kit.server_logs import (
    PARTITIONS,
    START_MS,
    Clock,
    Log,
    MariaDb,
    MySql,
    Postgres,
    Sent,
    SqlServer,
)


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


def begun_anew_between_lanes(chance: random.Random, kind: str) -> list[list[Sent]]:
    """A server that is restored so early that no lane of four sees it; in the next interval the clock stands still."""
    topic, old = Topic(chance), _log(kind, chance, Clock(chance))
    before = [old.next() for _ in range(50)][-1]
    topic.append(Sent(0, Op.INSERT, before))
    new = _log(kind, chance, _later(topic))
    first, second = new.next(), new.next()
    same_time = {"ts_ms": first["ts_ms"], "snapshot": "false"}
    return [
        [Sent(0, Op.INSERT, before), Sent(2, Op.INSERT, first)],
        [Sent(0, Op.INSERT, second | same_time)],
    ]


def new_snapshot(chance: random.Random, kind: str) -> list[list[Sent]]:
    """Logs with a new snapshot each time, whose rows may all stand in one partition."""
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
        # What was sent since the last offsets that were stored is redelivered from the replica.
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

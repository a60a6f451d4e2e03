"""Topics in which positions of several logs meet: of databases, of servers, of one that was begun anew."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from schemas.errors import Code, InputError
from tests.integration.service.test_debezium import COPY, folded
from tests.kit.debezium import DebeziumUpstream
from tests.kit.real import SetUp, Stage

T0 = 1_730_000_000_000
UUID, OTHER = "a0000000-0000-11f0-8000-000000000001", "b0000000-0000-11f0-8000-000000000002"
Source = dict[str, Any]


class Said(NamedTuple):
    """A record with a value, or the tombstone of a delete (`source` None)."""

    key: int
    op: str
    note: str
    source: Source | None


def postgres(
    lsn: int, before: int | None, *, ts_ms: int = T0, snapshot: str = "false", db: str = "shop"
) -> Source:
    sequence = f'["{before}","{lsn}"]' if before is not None else f'[null,"{lsn}"]'
    own = {"connector": "postgresql", "name": db, "db": db, "snapshot": snapshot}
    return {**own, "ts_ms": ts_ms, "sequence": sequence, "lsn": lsn}


def mysql(
    pos: int,
    gtid: int | None = None,
    *,
    file: int = 2,
    row: int = 0,
    server: int = 1,
    uuid: str = UUID,
    ts_ms: int = T0,
    snapshot: str = "false",
    connector: str = "mysql",
) -> Source:
    is_streamed = snapshot == "false"
    number = f"{uuid}:{gtid}" if connector == "mysql" else f"0-{server}-{gtid}"
    place = {"file": f"bin.{file:06}", "pos": pos, "row": row, "server_id": server if is_streamed else 0}
    own = {"connector": connector, "name": "shop", "db": "shop", "snapshot": snapshot, "ts_ms": ts_ms}
    return {**own, **place, "gtid": number if is_streamed and gtid is not None else None}


def mariadb(pos: int, gtid: int, ts_ms: int) -> Source:
    return mysql(pos, gtid, ts_ms=ts_ms, connector="mariadb")


def sqlserver(commit: int, change: int, serial: int = 1, ts_ms: int = T0) -> Source:
    lsns = {name: f"00000027:{n:08x}:0003" for name, n in (("commit_lsn", commit), ("change_lsn", change))}
    own = {"connector": "sqlserver", "name": "shop", "db": "shop", "snapshot": "false", "ts_ms": ts_ms}
    return {**own, **lsns, "event_serial_no": serial}


def put(key: int, note: str, source: Source) -> Said:
    return Said(key, "r" if source["snapshot"] != "false" else "u", note, source)


def delete(key: int, source: Source) -> list[Said]:
    return [Said(key, "d", "", source), Said(key, "", "", None)]


class History(NamedTuple):
    """Records in their order, all in one partition, and the note that each key has at the end."""

    records: list[Said]
    rows: Mapping[int, str]


HISTORIES: dict[str, History] = {
    "shards of several databases in one topic": History(
        [
            put(1, "shard 1", postgres(9_000_000, 8_999_000, db="shard1")),
            put(2, "shard 2", postgres(5_000, 4_000, db="shard2")),
            put(3, "shard 1", postgres(9_000_100, 8_999_900, db="shard1")),
            put(2, "shard 2 new", postgres(5_200, 5_100, db="shard2")),
        ],
        {1: "shard 1", 2: "shard 2 new", 3: "shard 1"},
    ),
    "a new server with lower positions and a new snapshot": History(
        [
            put(1, "old", postgres(9_000_000_000, 8_999_999_000)),
            put(1, "snap", postgres(30_000, None, snapshot="first", ts_ms=T0 + 10**10)),
            put(2, "snap", postgres(30_000, None, snapshot="last", ts_ms=T0 + 10**10)),
            put(1, "new", postgres(31_000, 30_500, ts_ms=T0 + 10**10 + 1_000)),
            put(3, "new", postgres(32_000, 31_500, ts_ms=T0 + 10**10 + 2_000)),
        ],
        {1: "new", 2: "snap", 3: "new"},
    ),
    "a redelivered suffix of PostgreSQL's": History(
        [
            put(1, "one", postgres(100, 90)),
            put(2, "two", postgres(110, 100)),
            put(1, "three", postgres(120, 110)),
            put(1, "one", postgres(100, 90)),
            put(2, "two", postgres(110, 100)),
        ],
        {1: "three", 2: "two"},
    ),
    "a suffix of MySQL's, cut short by a second kill": History(
        [
            put(1, "one", mysql(931, 70)),
            put(1, "two", mysql(1404, 71)),
            put(1, "three", mysql(1839, 72)),
            put(1, "one", mysql(931, 70)),
        ],
        {1: "three"},
    ),
    "a deleted row of MySQL's whose delete has not come again": History(
        [put(1, "one", mysql(931, 80)), *delete(1, mysql(1404, 81)), put(1, "one", mysql(931, 80))], {}
    ),
    "rows of one statement of MySQL's": History(
        [put(number, str(number), mysql(931, 90, row=number)) for number in range(3)],
        {number: str(number) for number in range(3)},
    ),
    "a failover by GTID": History(
        [
            put(1, "old server", mysql(30_931, 100)),
            put(1, "new server", mysql(387, 1, file=1, server=2, uuid=OTHER, ts_ms=T0 + 9_000)),
        ],
        {1: "new server"},
    ),
    "RESET MASTER and a new snapshot": History(
        [
            put(1, "old", mysql(40_931, 110)),
            put(1, "snapshot", mysql(607, file=1, snapshot="last", ts_ms=T0 + 20_000)),
            put(1, "new", mysql(895, 2, file=1, ts_ms=T0 + 21_000)),
        ],
        {1: "new"},
    ),
    "times of MariaDB that fall": History(
        [
            put(1, "a", mariadb(2_769_167, 12_162, T0 + 8_000)),
            put(2, "b", mariadb(2_769_579, 12_163, T0 + 6_000)),
            put(1, "a2", mariadb(2_769_800, 12_164, T0 + 6_000)),
            put(1, "a", mariadb(2_769_167, 12_162, T0 + 8_000)),
            put(2, "b", mariadb(2_769_579, 12_163, T0 + 6_000)),
        ],
        {1: "a2", 2: "b"},
    ),
    "the millionth file of MySQL's, without GTIDs": History(
        [put(1, "old", mysql(500, file=999_999)), put(1, "new", mysql(400, file=1_000_000))], {1: "new"}
    ),
    "a change of key of MySQL's": History(
        [
            put(1, "x", mysql(50_000, 130)),
            *delete(1, mysql(51_000, 131)),
            put(2, "x", mysql(51_000, 131)),
        ],
        {2: "x"},
    ),
    "members of a cluster with numbers from blocks": History(
        [
            put(1, "first member", mysql(500, 50, file=7)),
            put(1, "second member", mysql(900, 1_000_001, file=9, server=2, ts_ms=T0 + 5_000)),
            put(1, "first again", mysql(700, 51, file=7, ts_ms=T0 + 9_000)),
        ],
        {1: "first again"},
    ),
    "transactions of SQL Server that overlap, and come again": History(
        [
            put(1, "one", sqlserver(100, 40)),
            put(1, "two", sqlserver(120, 30)),
            put(1, "one", sqlserver(100, 40)),
        ],
        {1: "two"},
    ),
    "a connector whose positions are of another type": History(
        [put(1, "x", {**postgres(1, 1), "connector": "yugabytedb", "lsn": "1:6::0:0"})], {1: "x"}
    ),
}


class LogsUpstream(DebeziumUpstream):
    """Writes records as they are said; keys of a history stand behind `first`."""

    def say(self, said: Said, first: int, name: str) -> None:
        row = {"id": first + said.key, "region": "EU", "amount": None, "note": said.note}
        key = self._written_key({"id": row["id"]})
        if said.source is None:
            self._send([(key, None)])
            return
        event = self._event_of(said.op, None if said.op == "d" else row)
        event["source"] = {**event["source"], "sequence": None, "lsn": None, **said.source}
        event["source"]["name"] = f"{name} {said.source['name']}"
        self._send([(key, _json(event))])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def stage_of(set_up: SetUp) -> tuple[Stage, LogsUpstream]:
    stage = set_up(COPY, upstream_type=LogsUpstream)
    assert isinstance(stage.upstream, LogsUpstream)
    stage.lanes = 4
    return stage, stage.upstream


def expected() -> dict[object, object]:
    return {
        (1_000 * number + key,): (1_000 * number + key, "EU", None, note)
        for number, history in enumerate(HISTORIES.values())
        for key, note in history.rows.items()
    }


def steps() -> Iterator[list[tuple[Said, int, str]]]:
    """The first records of all histories, the second ones, and so on."""
    longest = max(len(history.records) for history in HISTORIES.values())
    for step in range(longest):
        yield [
            (history.records[step], 1_000 * number, name)
            for number, (name, history) in enumerate(HISTORIES.items())
            if step < len(history.records)
        ]


def test_histories_of_servers_in_one_interval_give_the_right_rows(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up)
    for step in steps():
        for said in step:
            upstream.say(*said)
    upstream.barrier()
    with stage.running() as run:
        stage.finish(run, "copy")
    assert folded(stage) == expected()
    assert stage.verify().clean


def test_so_do_they_in_many_intervals_and_over_restarts(set_up: SetUp) -> None:
    stage, upstream = stage_of(set_up)
    upstream.barrier()
    for step in steps():
        with stage.running() as run:
            for said in step:
                upstream.say(*said)
            run.reach(upstream.barrier())
            stage.finish(run, "copy")
    assert folded(stage) == expected()
    report = stage.verify()
    assert report.clean
    assert any("cluster" in text for text in report.went_back)


def restored(upstream: LogsUpstream) -> None:
    for number in range(20):
        upstream.say(put(number, "before", postgres(9_000 + number, 8_000, ts_ms=T0 + number)), 0, "restored")
    upstream.barrier()
    for number in range(20):
        upstream.say(
            put(number, "after", postgres(100 + number, 90, ts_ms=T0 + 1_000 + number)), 0, "restored"
        )
    upstream.barrier()


@pytest.mark.parametrize("way", ["the option", "the configuration"])
def test_a_server_that_was_restored_stops_the_service_until_it_is_accepted(set_up: SetUp, way: str) -> None:
    stage, upstream = stage_of(set_up)
    restored(upstream)
    error = stage.fails(InputError, Code.LOG_WENT_BACK)
    assert error.where is not None
    assert error.where.startswith(f"{upstream.name}-")
    if way == "the option":
        accepted: dict[str, Any] = {"accept_log_reset": True}
    else:
        accepted = {"upstream": {"topic": upstream.name, **upstream.form, "on_log_reset": "accept"}}
    with stage.running(**accepted) as run:
        stage.finish(run, "copy")
    assert {row[3] for row in folded(stage).values() if isinstance(row, tuple)} == {"after"}
    report = stage.verify()
    assert report.clean
    assert report.went_back

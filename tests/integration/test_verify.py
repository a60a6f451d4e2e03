"""`verify` on a real broker: transactions, ends, and the command line."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.errors import Code, TopicError
from schemas.filter.ast import Comparison, Filter, Operator, number_from_text
from schemas.kinds.projection import OutputColumn
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import Watermarks
from streaming.reading import sources as sources_module
from streaming.reading.sources import Ends, PartitionSource, feeds
from streaming.verify.findings import Report, Rule
from streaming.verify.history import TopicEntry
from streaming.verify.judge import verify_topics
from tests.conftest import TopicFactory
from tests.kit.encoded_histories import encoded
from tests.kit.histories import History, clean_history
from tests.kit.kafka_topics import Writer, intervals, remove_beginning
from tests.kit.mutants import MUTANTS


@dataclass(frozen=True)
class Pair:
    """A history on two topics."""

    history: History
    settings: KafkaSettings
    upstream: str
    output: str

    @property
    def filter(self) -> Filter | None:
        if self.history.condition is None:
            return None
        least = next(n for n in range(4) if self.history.condition.test((n,)))
        return Comparison("n", Operator.GREATER_OR_EQUAL, number_from_text(str(least)))

    def verify(self, **options: object) -> Report:
        return verify_topics(
            self.settings,
            self.upstream,
            self.output,
            self.history.table,
            columns=self.history.columns,
            condition=self.filter,
            **options,  # type: ignore[arg-type]
        )


MakePair = Callable[..., Pair]


def worthwhile(rng: random.Random) -> History:
    """A history with filter, several partitions on both sides, and records and barriers enough to break."""
    while True:
        history = clean_history(rng)
        sizes = len(history.output), len(history.steps[0].partitions)
        records = sum(map(len, history.output))
        is_plain = OutputColumn("n", "n") in history.columns and not any(c.mask for c in history.columns)
        if history.condition and min(sizes) > 1 and is_plain and not history.key and records > 60:
            return history


def joined(pieces: Sequence[Sequence[TopicEntry]]) -> list[TopicEntry]:
    return list(itertools.chain.from_iterable(pieces))


@pytest.fixture
def history() -> History:
    return worthwhile(random.Random(7))


@pytest.fixture
def make_pair(bootstrap: str, topic: TopicFactory) -> MakePair:
    def make(history: History, *, write_output: bool = True) -> Pair:
        upstream, output = encoded(history)
        pair = Pair(
            history,
            KafkaSettings(bootstrap),
            topic(partitions=len(upstream), name="up"),
            topic(partitions=len(output), name="out"),
        )
        Writer(bootstrap, pair.upstream).write(upstream)
        if write_output:
            Writer(bootstrap, pair.output).write(output)
        return pair

    return make


def test_a_clean_pair_of_topics_is_clean(history: History, make_pair: MakePair) -> None:
    seen: list[tuple[int, int]] = []
    report = make_pair(history).verify(progress=lambda read, total: seen.append((read, total)))
    assert report.clean, report.findings
    assert report.output_records == sum(map(len, history.output))
    assert report.upstream_records == sum(len(entries) for entries in encoded(history)[0])
    assert report.barriers == sum(item.barrier is not None for item in history.output[0])
    marks = [read for read, _ in seen]
    partitions = len(history.output) + len(history.steps[0].partitions)
    assert marks == sorted(marks)
    assert 0 <= seen[-1][1] - marks[-1] <= partitions  # the marker behind a last record may stay unread


@pytest.mark.parametrize(
    "name",
    [
        "dropped",
        "doubled",
        "after_changed",
        "moved_over_a_barrier",
        "misrouted",
        "record_behind_the_last_barrier",
    ],
)
def test_a_topic_that_was_tampered_with_is_caught(name: str, history: History, make_pair: MakePair) -> None:
    tamper, rules = MUTANTS[name]
    assert tamper(history, random.Random(1))
    pair = make_pair(history)
    report = pair.verify()
    assert rules is not None
    assert {finding.rule for finding in report.findings} & rules
    assert all(finding.where.topic == pair.output for finding in report.findings)


def test_aborted_and_open_transactions_are_not_there(
    history: History, make_pair: MakePair, bootstrap: str
) -> None:
    pair = make_pair(history, write_output=False)
    output = encoded(history)[1]
    writer = Writer(bootstrap, pair.output)
    writer.begin()
    writer.send(0, output[0])
    writer.abort()
    writer.write(output)
    writer.begin()
    writer.send(0, output[0])
    writer.flush()
    report = pair.verify(settle_s=1.0)
    assert report.clean, report.findings
    assert report.output_records == sum(map(len, history.output))
    writer.abort()


def test_a_commit_that_tears_the_ends_is_waited_for(
    history: History, make_pair: MakePair, bootstrap: str
) -> None:
    """The last barrier is visible in partition 0 alone when reading starts, and elsewhere a little later."""
    pair = make_pair(history, write_output=False)
    pieces = [intervals(entries) for entries in encoded(history)[1]]
    late = Writer(bootstrap, pair.output)
    late.write([joined(own[:-1]) for own in pieces])
    late.begin()
    late.send(0, pieces[0][-1])
    late.commit()
    rest = {partition: own[-1] for partition, own in enumerate(pieces) if partition > 0}

    def commit_the_rest(_read: int, _total: int) -> None:
        if rest:
            late.begin()
            for partition, entries in rest.items():
                late.send(partition, entries)
            late.commit()
            rest.clear()

    report = pair.verify(progress=commit_the_rest)
    assert report.clean, report.findings
    assert report.output_records == sum(map(len, history.output))


def test_an_end_moves_over_whole_transactions(bootstrap: str, topic: TopicFactory) -> None:
    """However many fetches one takes: with a part of it, its barrier would be missing."""
    settings, name = KafkaSettings(bootstrap), topic(name="large")
    nothing = Watermarks(0, 0, 0)
    ends, writer = Ends(settings, settle_s=60), Writer(bootstrap, name)
    [feed] = feeds(settings, name, [0], prefetch_kib=256)
    source = PartitionSource(feed, 0, nothing, on_read=lambda _: None, ends=ends)
    try:
        assert list(source.entries()) == []
        writer.begin()
        writer.send(0, [TopicEntry(number, b"key", bytes(400_000)) for number in range(12)])
        writer.commit()
        assert source.extend()
        assert [entry.offset for entry in source.entries()] == list(range(12))
    finally:
        feed.close()


def test_partitions_share_consumers_and_each_is_read_at_its_own_pace(
    bootstrap: str, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not asked for is held up to a bound, and goes on where it was once it is."""
    monkeypatch.setattr(sources_module, "_MOST_CONSUMERS", 2)
    monkeypatch.setattr(sources_module, "_MOST_HELD", 10)
    monkeypatch.setattr(sources_module, "_CHUNK_RECORDS", 7)
    settings, name = KafkaSettings(bootstrap), topic(name="many", partitions=5)
    writer = Writer(bootstrap, name)
    writer.write([[TopicEntry(number, b"key", b"value") for number in range(200)] for _ in range(5)])
    every = feeds(settings, name, [0, 0, 3, 0, 0], prefetch_kib=256)
    assert len(set(every)) == 2
    ends = Ends(settings, settle_s=1)
    sources = [
        PartitionSource(
            feed, number, Watermarks(3 if number == 2 else 0, 200, 200), on_read=lambda _: None, ends=ends
        )
        for number, feed in enumerate(every)
    ]
    try:
        for number in (4, 0, 2, 3, 1):
            offsets = [entry.offset for entry in sources[number].entries()]
            assert offsets == list(range(3 if number == 2 else 0, 200))
            assert all(len(held) <= 10 + 7 for feed in every for held in feed._held.values())
    finally:
        for feed in set(every):
            feed.close()


def test_a_torn_end_that_stays_torn_is_a_finding(
    history: History, make_pair: MakePair, bootstrap: str
) -> None:
    pair = make_pair(history, write_output=False)
    pieces = [intervals(entries) for entries in encoded(history)[1]]
    writer = Writer(bootstrap, pair.output)
    writer.write([joined(own if number == 0 else own[:-1]) for number, own in enumerate(pieces)])
    report = pair.verify(settle_s=0.5)
    assert {finding.rule for finding in report.findings} == {Rule.BARRIER_MISSING}
    assert {finding.where.partition for finding in report.findings} == set(range(1, len(pieces)))


def test_an_upstream_whose_beginning_is_gone_is_refused(
    history: History, make_pair: MakePair, bootstrap: str
) -> None:
    pair = make_pair(history)
    remove_beginning(bootstrap, pair.upstream, 1)
    with pytest.raises(TopicError) as raised:
        pair.verify()
    assert raised.value.code is Code.DATA_LOST
    assert raised.value.where == f"{pair.upstream}-0@1"


def test_a_compacted_topic_is_refused(history: History, make_pair: MakePair, topic: TopicFactory) -> None:
    pair = make_pair(history)
    compacted = topic(partitions=1, config={"cleanup.policy": "compact"})
    with pytest.raises(TopicError) as raised:
        Pair(history, pair.settings, compacted, pair.output).verify()
    assert raised.value.code is Code.COMPACTED_INPUT
    assert "consume --fold" in raised.value.next_step


def test_a_missing_topic_and_one_topic_twice_are_refused(history: History, make_pair: MakePair) -> None:
    pair = make_pair(history)
    for upstream, code in ((pair.output, Code.SAME_TOPIC), ("no-such-topic", Code.TOPIC_MISSING)):
        with pytest.raises(TopicError) as raised:
            Pair(history, pair.settings, upstream, pair.output).verify()
        assert raised.value.code is code


def options_of(pair: Pair, folder: Path) -> list[str]:
    table = folder / "table.json"
    table.write_text(json.dumps(pair.history.table.to_dict()))
    options = {
        "--bootstrap": pair.settings.bootstrap,
        "--upstream": pair.upstream,
        "--output": pair.output,
        "--table": str(table),
        "--columns": ",".join(map(str, pair.history.columns)),
        "--filter": str(pair.filter),
    }
    return ["verify", *(word for pair_ in options.items() for word in pair_)]


def test_the_command_ends_with_0_on_clean_topics_and_8_on_broken_ones(
    history: History,
    make_pair: MakePair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(options_of(make_pair(history), tmp_path)) == 0
    assert "the law holds" in capsys.readouterr().out
    assert MUTANTS["dropped"][0](history, random.Random(1))
    broken = make_pair(history)
    assert main(options_of(broken, tmp_path)) == 8
    printed = capsys.readouterr()
    assert f"LOST output {broken.output}-" in printed.out
    assert printed.err.startswith("LAW_BROKEN at ")
    assert main([*options_of(broken, tmp_path), "--json"]) == 8
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"output.LOST": 1}


def test_the_command_fails_on_an_unfinished_job_when_asked_to(
    history: History,
    make_pair: MakePair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for items in history.output:
        del items[1:]
    options = options_of(make_pair(history), tmp_path)
    assert main(options) == 0
    assert main([*options, "--require-complete"]) == 8
    assert "INCOMPLETE" in capsys.readouterr().out


def test_the_command_judges_every_job_of_a_configuration(
    history: History,
    make_pair: MakePair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = make_pair(history)
    config = tmp_path / "service.json"
    job = {
        "output": pair.output,
        "columns": [column.declared for column in history.columns],
        "filter": str(pair.filter),
        "output_partitions": len(history.output),
    }
    declared = {
        "kafka": {"bootstrap": pair.settings.bootstrap},
        "upstream": pair.upstream,
        "state": "state",
        "lanes": 1,
        "table": history.table.to_dict(),
        "jobs": [{"name": "copy", **job}],
    }
    config.write_text(json.dumps(declared))
    assert main(["verify", str(config)]) == 0
    assert main(["verify", str(config), "--job", "copy"]) == 0
    capsys.readouterr()
    assert main(["verify", str(config), "--job", "copi"]) == 2
    assert capsys.readouterr().err.startswith(f"{Code.JOB_UNKNOWN} ")
    described = ["--columns", ",".join(map(str, history.columns)), "--filter", str(pair.filter)]
    assert main(["verify", str(config), "--output", pair.output, *described]) == 0
    assert main(["verify", str(config), "--output", pair.output, "--job", "copy"]) == 2
    assert main(["verify", str(config), *described]) == 2
    assert main(["verify"]) == 2

"""Kafka's sink, on a broker and on that of the simulation: all that lanes and driver rely on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from schemas.errors import BackfillError, Code, ConfigError, Fenced
from schemas.job import JobDefinition
from schemas.kinds.configs import DEFAULT_SINK, SINK_KINDS
from schemas.records import Change, Op
from schemas.settings.limits import Limits
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.kafka import KafkaSink
from streaming.sink.kinds import SINKS, Sinks, SinkSetup
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import LaneWriters, Mark, NullWriter, Writer, open_writers
from tests.contracts.outputs import (
    FIRST,
    FOURTH,
    PARTITIONS,
    SECOND,
    TABLE,
    THIRD,
    Entry,
    OfKafka,
    OfMemory,
    TestOutput,
)

LETTER = DeadLetter(b"key", None, "EMPTY_RECORD", "up-0@7")


@pytest.fixture(
    params=[
        partial(OfMemory),
        partial(OfMemory, beside=True),
        pytest.param(partial(OfKafka), marks=pytest.mark.kafka),
        pytest.param(partial(OfKafka, beside=True), marks=pytest.mark.kafka),
    ],
    ids=lambda made: made.func.__name__ + "-beside" * bool(made.keywords),
)
def output(request: pytest.FixtureRequest) -> Iterator[TestOutput]:
    if request.param.func is not OfKafka:
        yield request.param()
        return
    bootstrap, upstream = request.getfixturevalue("bootstrap"), request.getfixturevalue("topic")()
    made = request.param(bootstrap, f"{upstream}-copy", upstream)
    yield made
    client = admin(KafkaSettings(bootstrap))
    for deletion in client.delete_topics(list(made.job.topics)).values():
        deletion.exception(30)  # some tests make none


def opened(output: TestOutput) -> TestOutput:
    output.sink.open(output.job)
    return output


def insert(id_: int, text: str | None = "new") -> Change:
    """Of the output's columns (v, id)."""
    return Change(Op.INSERT, None, (text, id_))


def write_first(output: TestOutput, writer: Writer) -> None:
    """A job's first batch, from barrier 1 to 2: rows, then changes."""
    for partition in range(PARTITIONS):
        writer.barrier(output.output, partition, FIRST)
    writer.rows(output.rows((0, (1, 0, "new")), (1, (7, 0, "new")), (0, (2, 0, None))))
    changes = [
        (0, Change(Op.UPDATE, (1, 0, "new"), (1, 0, "old"))),
        (1, Change(Op.INSERT, None, (8, 0, "new"))),
        (0, Change(Op.DELETE, (2, 0, None), None)),
        (0, Change(Op.INSERT, None, (3, 0, "later"))),
    ]
    first, second = output.runs([0, 3, 4], *changes)
    writer.changes(first)
    for partition in range(PARTITIONS):
        writer.barrier(output.output, partition, SECOND)
    writer.changes(second)
    for partition in range(PARTITIONS):
        writer.barrier(output.output, partition, THIRD)


FIRST_BATCH: list[list[Entry]] = [
    [
        FIRST.curr,
        insert(1),
        insert(2, None),
        Change(Op.UPDATE, ("new", 1), ("old", 1)),
        Change(Op.DELETE, (None, 2), None),
        SECOND.curr,
        insert(3, "later"),
        THIRD.curr,
    ],
    [FIRST.curr, insert(7), insert(8), SECOND.curr, THIRD.curr],
]


def send_first(output: TestOutput) -> dict[SinkPartition, Mark]:
    """Send it; where the partitions end then."""
    with output.open() as writer:
        assert not writer.already_sent(output.places(None), THIRD.curr, {})
        with writer.transaction():
            write_first(output, writer)
        return dict(writer.ends())


def send_fourth(output: TestOutput, known_ends: dict[SinkPartition, Mark]) -> None:
    """The next batch, without a change."""
    with output.open() as writer:
        assert not writer.already_sent(output.places(THIRD.curr), FOURTH.curr, known_ends)
        with writer.transaction():
            for partition in range(PARTITIONS):
                writer.barrier(output.output, partition, FOURTH)


def refusal(asked: Callable[[], object]) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        asked()
    return caught.value


def look(output: TestOutput, before: int | None, epoch: int) -> bool:
    with output.open() as writer:
        return writer.already_sent(output.places(before), epoch, {})


def test_rows_changes_and_barriers_keep_their_order_in_each_partition(output: TestOutput) -> None:
    send_first(opened(output))
    assert output.entries() == FIRST_BATCH


def test_a_batch_whose_result_was_lost_is_found_and_written_once(output: TestOutput) -> None:
    ends = send_first(opened(output))
    with output.open() as writer:
        assert writer.already_sent(output.places(None), THIRD.curr, {})
        assert writer.ends() == ends
    send_fourth(output, {})
    assert look(output, THIRD.curr, FOURTH.curr)
    assert output.entries() == [[*entries, FOURTH.curr] for entries in FIRST_BATCH]


def test_what_was_not_committed_when_its_writer_died_is_never_seen(output: TestOutput) -> None:
    with opened(output).open() as dead:
        dead.already_sent(output.places(None), THIRD.curr, {})

        def write_and_be_replaced() -> None:
            write_first(output, dead)
            send_first(output)

        with pytest.raises(Fenced), dead.transaction():
            write_and_be_replaced()
    assert output.entries() == FIRST_BATCH


def test_a_writer_that_was_fenced_before_it_began_writes_nothing(output: TestOutput) -> None:
    with opened(output).open() as late:
        late.already_sent(output.places(None), THIRD.curr, {})
        output.sink.fence([output.writer_id])
        with pytest.raises(Fenced), late.transaction():
            write_first(output, late)
    assert output.entries() == [[], []]
    assert not look(output, None, THIRD.curr)


def test_what_is_aborted_is_not_there_for_anybody(output: TestOutput) -> None:
    with opened(output).open() as writer:
        writer.already_sent(output.places(None), THIRD.curr, {})
        with suppress(ZeroDivisionError), writer.transaction():
            write_first(output, writer)
            raise ZeroDivisionError
    assert output.entries() == [[], []]
    output.sink.refuse_used(output.job)
    send_first(output)
    assert output.entries() == FIRST_BATCH


def test_ends_are_known_without_asking(output: TestOutput) -> None:
    ends = send_first(opened(output))
    with output.open() as writer:
        assert not writer.already_sent(output.places(THIRD.curr), FOURTH.curr, {})
        assert writer.ends() == ends
    send_fourth(output, ends)
    with output.open() as writer:  # as seen by a driver that did not hear of the last batch
        assert writer.already_sent(output.places(THIRD.curr), FOURTH.curr, ends)


@pytest.mark.parametrize(
    ("before", "epoch", "code"),
    [
        (FIRST.curr, SECOND.curr, Code.OUTPUT_OUT_OF_STEP),
        (FOURTH.curr, FOURTH.curr + 1, Code.OUTPUT_OUT_OF_STEP),
        (None, FOURTH.curr, Code.OUTPUT_OUT_OF_STEP),
    ],
)
def test_an_output_that_ends_with_a_third_barrier_is_refused(
    output: TestOutput, before: int | None, epoch: int, code: Code
) -> None:
    send_first(opened(output))
    assert refusal(lambda: look(output, before, epoch)).code is code


def test_an_output_that_was_emptied_or_is_gone_is_refused(output: TestOutput) -> None:
    assert refusal(lambda: look(output, THIRD.curr, FOURTH.curr)).code is Code.OUTPUT_TOPIC_MISSING
    opened(output)
    assert refusal(lambda: look(output, THIRD.curr, FOURTH.curr)).code is Code.OUTPUT_TOPIC_MISSING


def test_what_somebody_else_wrote_is_refused(output: TestOutput) -> None:
    send_first(opened(output))
    output.intrude(output.job.with_barriers, 1)
    assert refusal(lambda: look(output, THIRD.curr, FOURTH.curr)).code is Code.FOREIGN_RECORDS
    assert refusal(lambda: output.sink.tails(output.job)).code is Code.FOREIGN_RECORDS


def test_what_somebody_else_wrote_behind_the_last_barrier_is_refused(output: TestOutput) -> None:
    send_first(opened(output))
    output.intrude(output.job.output, 1)
    assert refusal(lambda: look(output, THIRD.curr, FOURTH.curr)).code is Code.FOREIGN_RECORDS


def test_partitions_of_one_lane_that_differ_are_refused(output: TestOutput) -> None:
    with opened(output).open() as writer:
        writer.already_sent(output.places(None), THIRD.curr, {})
        with writer.transaction():
            writer.barrier(output.output, 0, THIRD)
    assert refusal(lambda: look(output, None, THIRD.curr)).code is Code.FOREIGN_RECORDS


def test_a_new_job_wants_an_output_that_is_not_there_or_empty(output: TestOutput) -> None:
    sink = output.sink
    sink.refuse_used(output.job)
    sink.open(output.job)
    sink.check(output.job)
    sink.refuse_used(output.job)
    send_first(output)
    sink.open(output.job)
    sink.check(output.job)
    assert output.entries() == FIRST_BATCH
    assert refusal(lambda: sink.refuse_used(output.job)).code is Code.OUTPUT_TOPIC_MISMATCH


def test_a_start_learns_how_an_output_begins_and_ends(output: TestOutput) -> None:
    sink, job = output.sink, output.job
    assert (sink.tails(job), *sink.begins(job), *sink.endings(job, 0)) == (None,)
    opened(output)
    assert sink.tails(job) == [None, None]
    assert sink.begins(job) == [None, None]
    send_first(output)
    assert sink.tails(job) == [THIRD, THIRD]
    assert [each and each.curr for each in sink.begins(job)] == [FIRST.curr, FIRST.curr]
    assert [(each.last, each.reported) for each in sink.endings(job, 0)] == [(THIRD.curr, ())] * PARTITIONS


def test_a_dead_letter_comes_with_its_transaction(output: TestOutput) -> None:
    output.sink.open_letters(opened(output).job)
    with output.open() as writer:
        writer.already_sent(output.places(None), THIRD.curr, {})
        with writer.transaction():
            writer.letter(output.output, LETTER)
            write_first(output, writer)
    assert output.letters() == [(LETTER.key, LETTER.value, LETTER.place)]


def test_how_to_open_a_writer_goes_to_the_lanes_by_pickle() -> None:
    opener = OfKafka("none", "copy", "up").sink.open_writer
    assert len(pickle.dumps(opener)) < 1_000


# Several sinks in one lane -------------------------------------------------------------------------------


def test_a_null_writer_takes_everything_for_written() -> None:
    output, null = OfMemory(), NullWriter()
    assert null.already_sent(output.places(None), THIRD.curr, {})
    with null.transaction():
        write_first(output, null)
        null.letter(output.output, LETTER)
    assert null.ends() == {}


def test_a_crash_between_the_commits_of_two_sinks_is_made_good() -> None:
    other_kind = SINK_KINDS["kafka"].model_construct(kind="other")
    outputs = opened(OfMemory()), opened(OfMemory())
    definition = replace(outputs[1].job, name="other", output="other", sink=other_kind)
    outputs[1].output = Output(definition, outputs[1].output.table)
    opened(outputs[1])
    openers = {each.job.sink: each.sink.open_writer for each in outputs}
    before = {each.job.sink: each.places(None) for each in outputs}
    assert set(openers) == {DEFAULT_SINK, other_kind}

    def send(writers: LaneWriters) -> None:
        with writers.transaction():
            for each in outputs:
                write_first(each, writers.writer_for(each.output))

    with open_writers(openers, before, "lane", 60_000) as writers:
        assert writers.already_sent(before, THIRD.curr, {}) == [False, False]
        outputs[0].sink.fence(["lane"])  # the outer one commits last
        with pytest.raises(Fenced):
            send(writers)
    assert [each.entries() for each in outputs] == [[[], []], FIRST_BATCH]
    with open_writers(openers, before, "lane", 60_000) as writers:
        assert writers.already_sent(before, THIRD.curr, {}) == [False, True]
        send(writers)
        assert set(writers.ends()) == {*outputs[0].places(None), *outputs[1].places(None)}
    assert [each.entries() for each in outputs] == [FIRST_BATCH, FIRST_BATCH]


# Kinds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sink", [None, "kafka", {"kind": "kafka"}])
def test_the_default_is_kafka_and_is_not_written_down(sink: object) -> None:
    setup = SinkSetup(
        kafka=KafkaSettings("none"), reserved=frozenset(), limits=Limits(), parks=False, key_columns=()
    )
    job = JobDefinition.declare({"name": "copy", "output": "copy", "sink": sink}, TABLE)
    assert (job.sink, "sink" in job.to_json()) == (DEFAULT_SINK, False)
    assert isinstance(Sinks(setup)(job), KafkaSink)
    assert set(SINK_KINDS.values()) == set(SINKS)


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        ("files", "sink.kind 'files' is not one of: kafka"),
        ({"folder": "f"}, "sink.kind None is not one of: kafka"),
        (["kafka"], "sink.kind ['kafka'] is not one of: kafka"),
        ({"kind": "kafka", "topic": "t"}, "unknown key 'sink.topic'"),
    ],
)
def test_a_kind_or_a_key_that_is_not_there_is_refused(sink: object, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobDefinition.declare({"name": "copy", "output": "copy", "sink": sink}, TABLE)
    assert fault in caught.value.found

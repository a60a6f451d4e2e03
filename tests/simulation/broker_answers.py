"""Answers of a simulated broker: the last entry of a partition, and errors."""

from __future__ import annotations

from schemas.errors import Code, EnvironmentProblem, InputError, OutcomeUnknown
from schemas.json.barriers import decode_beside
from streaming.sink.kafka_reader import LastBarrier
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import foreign_records
from streaming.verify.history import TopicEntry


def last_of(entry: TopicEntry, place: SinkPartition) -> LastBarrier:
    """The last barrier, by the last entry of a partition or of its barriers. Raises: TopicError(FOREIGN_RECORDS)."""
    if entry.barrier is None:
        where = f"{place.topic}-{place.partition}@{entry.offset}"
        raise foreign_records(where, "a record behind the last barrier")
    if place.barriers is None:
        return LastBarrier(int(entry.barrier))
    found = decode_beside(entry.barrier, entry.key, entry.value, partition=place.partition)
    return LastBarrier(found.barrier.curr, found.end)


def too_large(topic: str) -> InputError:
    return InputError(Code.RECORD_TOO_LARGE, found=topic, expected="less", next_step="raise the limit")


def unknown(name: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        Code.OUTCOME_UNKNOWN, where=name, found="no answer", expected="one", next_step="look at the tail"
    )


def no_answer(name: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        Code.BROKER_UNREACHABLE, where=name, found="no answer", expected="one", next_step="try again"
    )

"""Which topics a job may write to, on a real broker: no Spark is needed to find out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas.errors import Code, TopicError
from schemas.job import JobDefinition
from schemas.settings.limits import Limits
from schemas.table import declare
from schemas.topics import UpstreamTopics
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, describe_topic, partitions_of, topic_settings
from streaming.sink.kafka import KafkaSink

Topic = Callable[..., str]
TABLE = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"], "vnode_count": 8})
WEEK_MS = "604800000"


@pytest.fixture
def outputs(bootstrap: str, topic: Topic) -> KafkaSink:
    upstream = topic(partitions=2)
    reserved = UpstreamTopics.of(upstream, barriers=f"{upstream}.barriers").all
    return KafkaSink(KafkaSettings(bootstrap), reserved, Limits(), parks=True, key_columns=())


def job(output: str, **more: Any) -> JobDefinition:
    return JobDefinition.declare({"name": "copy", "output": output, "output_partitions": 2, **more}, TABLE)


def refused(outputs: KafkaSink, wanted: JobDefinition) -> TopicError:
    with pytest.raises(TopicError) as caught:
        outputs.refuse_used(wanted)
    return caught.value


@pytest.mark.parametrize("number", range(4))
def test_the_upstream_and_the_topics_beside_it_are_no_outputs_and_nobody_is_named_to_delete_them(
    outputs: KafkaSink, number: int
) -> None:
    upstream, *beside = sorted(outputs.reserved)
    wanted = job([upstream, *beside][number])
    error = refused(outputs, wanted)
    assert error.code is Code.SAME_TOPIC
    with pytest.raises(TopicError):
        outputs.open(wanted)
    assert "delete" not in error.next_step
    assert [partitions_of(outputs.kafka, name) for name in beside] == [None] * 3


def test_a_topic_with_records_is_no_output_and_nobody_is_named_to_delete_it(
    outputs: KafkaSink, topic: Topic
) -> None:
    used = topic(partitions=2)
    producer = Producer(outputs.kafka.producer())
    producer.produce(used, b"of somebody", partition=1)
    assert producer.flush(30) == 0
    error = refused(outputs, job(used))
    assert (error.code, error.where) == (Code.OUTPUT_TOPIC_MISMATCH, f"{used}-1")
    assert "delete" not in error.next_step
    assert "delete" not in refused(outputs, job(used, output_partitions=4)).next_step


def test_a_topic_that_its_own_batch_has_filled_is_opened_again(outputs: KafkaSink, topic: Topic) -> None:
    """A crash came between; what decides is whether it was empty before the plan was in the journal."""
    wanted = job(f"{topic(partitions=1)}-again")
    outputs.open(wanted)
    producer = Producer(outputs.kafka.producer())
    producer.produce(wanted.output, b"of the batch", partition=1)
    assert producer.flush(30) == 0
    outputs.open(wanted)


@pytest.mark.parametrize("key", ["retention.ms", "retention.bytes"])
def test_an_output_that_would_lose_its_beginning_is_refused_unless_the_job_allows_it(
    outputs: KafkaSink, topic: Topic, key: str
) -> None:
    name = f"{topic(partitions=1)}-kept"
    create_topic(outputs.kafka, name, 2, config={key: WEEK_MS})
    error = refused(outputs, job(name))
    assert error.code is Code.OUTPUT_LOSES_RECORDS
    assert f"{key}={WEEK_MS}" in error.found
    for refuses in (outputs.open, outputs.check):
        with pytest.raises(TopicError) as caught:
            refuses(job(name))
        assert caught.value.code is error.code
    allowed = job(name, allow_retention=True)
    outputs.check(allowed)
    outputs.open(allowed)


def test_a_new_output_is_made_as_the_job_says(outputs: KafkaSink, topic: Topic) -> None:
    name = f"{topic(partitions=1)}-made"
    wanted = job(
        name,
        replication_factor=1,
        topic_config={"segment.bytes": 1_048_576, "retention.ms": WEEK_MS},
        allow_retention=True,
    )
    outputs.open(wanted)
    settings = topic_settings(outputs.kafka, name)
    assert (settings["segment.bytes"], settings["retention.ms"]) == ("1048576", WEEK_MS)
    assert settings["retention.bytes"] == "-1"
    assert describe_topic(outputs.kafka, wanted.dead_letters).partitions == 1


@pytest.mark.parametrize(
    "more",
    [
        {"replication_factor": 30},
        {"topic_config": {"segment.byts": 5}},
        {"topic_config": {"segment.bytes": 5}},
    ],
)
def test_a_topic_that_the_broker_will_not_make_is_an_error_of_the_job(
    outputs: KafkaSink, topic: Topic, more: dict[str, Any]
) -> None:
    wanted = job(f"{topic(partitions=1)}-never", **more)
    with pytest.raises(TopicError) as caught:
        outputs.open(wanted)
    assert caught.value.code is Code.TOPIC_NOT_CREATED
    assert partitions_of(outputs.kafka, wanted.output) is None


def test_a_name_that_is_another_topics_but_for_its_dots_is_an_error_of_the_job(
    outputs: KafkaSink, topic: Topic
) -> None:
    other = f"{topic(partitions=1)}.a_b"
    create_topic(outputs.kafka, other, 1)
    with pytest.raises(TopicError, match=f"collides with existing topic: {other}") as caught:
        outputs.open(job(other.replace("_", ".")))
    assert caught.value.code is Code.TOPIC_NOT_CREATED


def test_the_configuration_says_how_many_copies_topics_have_that_say_nothing(
    outputs: KafkaSink, topic: Topic
) -> None:
    settings = KafkaSettings(outputs.kafka.bootstrap, replication_factor=30)
    with pytest.raises(TopicError, match="replication factor 30"):
        create_topic(settings, f"{topic(partitions=1)}-never", 1)
    create_topic(settings, f"{topic(partitions=1)}-made", 1, replication_factor=1)

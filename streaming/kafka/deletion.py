"""Deletion of topics, on request of a person."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as NoAnswer

from confluent_kafka import KafkaError, KafkaException

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import translate
from streaming.kafka.topics import admin, partitions_of

_MARGIN_S = 5.0


def delete_topics(settings: KafkaSettings, topics: Sequence[str]) -> tuple[str, ...]:
    """Delete those of the topics that are there, with all their records, and return them.

    Raises: EnvironmentProblem, AUTH_FAILED without the right Delete; topics before the one that is named are gone then.
    """
    client = admin(settings)
    there = tuple(each for each in topics if partitions_of(settings, each, client=client) is not None)
    answers = client.delete_topics(list(there), operation_timeout=settings.wait_s) if there else {}
    for topic, answer in answers.items():
        try:
            answer.result(settings.wait_s + _MARGIN_S)
        except NoAnswer:
            raise translate(KafkaError(KafkaError._TIMED_OUT), settings, what=topic) from None
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translate(raised.args[0], settings, what=topic) from None
    return there

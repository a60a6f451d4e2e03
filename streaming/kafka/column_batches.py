"""Columns of keys and values sent by confluent-kafka's public interface alone.

`Producer.produce_batch` takes a list of dictionaries, so each record costs Python objects: about 1 us more than with
`native`, which is the first choice and depends on the layout of confluent-kafka's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

_CHUNK_RECORDS = 10_000
_POLL_S = 0.005
_METADATA_S = 15.0
_ANY_PARTITION = -1
NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


class ColumnBatches:
    """Sends columns to the topics of one producer, as `native.ColumnProducer`. For one thread."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._known_topics: set[str] = set()

    def expect(self, topics: Iterable[str]) -> None:
        """Does nothing: leaders are looked up topic by topic here, see `native.ColumnProducer.expect`."""

    def send(
        self,
        topic: str,
        partitions: npt.NDArray[np.int32] | None,
        keys: pa.Array,
        values: pa.Array,
        headers: Mapping[str, bytes] = NO_HEADERS,
    ) -> None:
        """See `native.ColumnProducer.send`. With headers each record is a call: `produce_batch` drops them."""
        if topic not in self._known_topics:
            self._producer.list_topics(
                topic, timeout=_METADATA_S
            )  # see `native`: records without known leaders
            self._known_topics.add(topic)
        if headers:
            self._send_one_by_one(topic, partitions, keys, values, headers)
            return
        for start in range(0, len(values), _CHUNK_RECORDS):
            part = slice(start, start + _CHUNK_RECORDS)
            pairs = zip(keys[part].to_pylist(), values[part].to_pylist(), strict=True)
            messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in pairs]
            if partitions is None:
                self._queue(topic, messages)
                continue
            # A message's own "partition" is ignored (2.16.1): only that of the whole call counts.
            for partition in np.unique(partitions[part]).tolist():
                chosen = np.flatnonzero(partitions[part] == partition).tolist()
                self._queue(topic, [messages[number] for number in chosen], partition=partition)

    def _send_one_by_one(
        self,
        topic: str,
        partitions: npt.NDArray[np.int32] | None,
        keys: pa.Array,
        values: pa.Array,
        headers: Mapping[str, bytes],
    ) -> None:
        any_partition = np.full(len(values), _ANY_PARTITION)
        numbers = (any_partition if partitions is None else partitions).tolist()
        for number, key, value in zip(numbers, keys.to_pylist(), values.to_pylist(), strict=True):
            while True:
                try:
                    self._producer.produce(topic, value, key, number, headers=dict(headers))
                    break
                except BufferError:
                    self._producer.poll(_POLL_S)
        self._producer.poll(0)

    def close(self) -> None:
        """Does nothing: no record is held back."""

    def _queue(self, topic: str, messages: list[dict[str, Any]], **where: Any) -> None:
        while messages:
            try:
                queued = self._producer.produce_batch(topic, messages, **where)
            except BufferError:
                queued = 0
            if queued < len(messages):
                messages = _refused(messages)
                self._producer.poll(_POLL_S)
            else:
                messages = []
        self._producer.poll(0)


def _refused(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages refused by a full queue, to be sent again. None of them may be overtaken by a later one.

    Raises: KafkaException for any other reason.
    """
    errors = [message.pop("_error", None) for message in messages]
    for error in errors:
        if error is not None and error.code() != KafkaError._QUEUE_FULL:
            raise KafkaException(error)
    first = next((number for number, error in enumerate(errors) if error is not None), 0)
    if any(error is None for error in errors[first:]) and any(errors):
        raise KafkaException(KafkaError(KafkaError._QUEUE_FULL))
    return messages[first:]

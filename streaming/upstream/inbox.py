"""The control topic as an inbox whose reading is part of the reader's transaction.

The place up to which wishes were taken is the committed offset of a consumer group, and it moves only
inside the transaction that also carries the barrier with the wish. So a wish and its barrier are there
together or not at all, whoever crashes when.
"""

from __future__ import annotations

import time

import structlog
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from streaming.runtime.consumer import RangeReader, located, place
from streaming.runtime.kafka import COORDINATOR_MOVES, KafkaSettings, translate
from streaming.runtime.topics import create_topic
from streaming.upstream.control import MalformedWishError, Wish, control_topic, decode_wish

_COORDINATOR_POLL_S = 0.05
_log = structlog.get_logger(__name__)


class Inbox:
    """Wishes not yet taken, oldest first. Open it only when no transaction of a predecessor can still commit.

    Creates the control topic if it is not there. Not for several threads.
    """

    def __init__(self, settings: KafkaSettings, upstream: str, group: str) -> None:
        self._settings, self._topic = settings, control_topic(upstream)
        create_topic(settings, self._topic, 1)
        # A member of no group: it asks for the group's offset and lends its name to the transaction.
        self._group = Consumer(settings.consumer(**{"group.id": group}))
        self._taken_to = self._committed = self._found_committed()
        self._reader = RangeReader(settings)

    def _found_committed(self) -> int:
        """0 if nothing was committed. A broker that has just started may need a moment to find the group."""
        deadline = time.monotonic() + self._settings.wait_s
        while True:
            try:
                asked = [TopicPartition(self._topic, 0)]
                return max(self._group.committed(asked, timeout=self._settings.wait_s)[0].offset, 0)
            except KafkaException as raised:
                if raised.args[0].code() not in COORDINATOR_MOVES or time.monotonic() >= deadline:
                    raise translate(raised.args[0], self._settings, what=self._topic) from None
            self._group.poll(_COORDINATOR_POLL_S)

    def close(self) -> None:
        """Leave the broker. What was taken since the last `commit_with` will be found again."""
        self._reader.close()
        self._group.close()

    def take(self) -> Wish | None:
        """The oldest wish that is in the topic now, or None. What is no wish is reported and skipped."""
        marks = self._reader.watermarks(self._topic)[0]
        start = max(self._taken_to, marks.earliest)
        for chunk in self._reader.read(self._topic, {0: (start, marks.stable)}):
            for message in chunk:
                self._taken_to = located(message)[1] + 1
                if wish := _wish_in(message):
                    return wish
        self._taken_to = max(start, marks.stable)
        return None

    def commit_with(self, producer: Producer) -> None:
        """Make what was taken part of the producer's open transaction."""
        if self._taken_to != self._committed:
            offsets = [TopicPartition(self._topic, 0, self._taken_to)]
            metadata = self._group.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, metadata, self._settings.wait_s)
            self._committed = self._taken_to


def _wish_in(message: Message) -> Wish | None:
    try:
        wish = decode_wish(message.value())
    except MalformedWishError as reason:
        _log.warning("wish_skipped", where=place(message), reason=str(reason))
        return None
    _log.info("wish_taken", where=place(message), mutation=type(wish.mutation).__name__)
    return wish

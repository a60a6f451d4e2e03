"""The control topic: requests are taken from it in the same transaction that sends their barrier.

The offset up to which requests were taken is the committed offset of a consumer group, and it moves only
inside the transaction that also carries the barrier with the request. So a request and its barrier are there
together or not at all, after any crash. A request that is older than it allows is refused: its sender has long
gone. The offset carries the claim on the upstream as its metadata (`claim`). A suspended service
reads the topic by itself, as no barrier carries what leads on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

import structlog
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from schemas.records import Barrier
from schemas.topics import UpstreamTopics
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located, location
from streaming.kafka.errors import COORDINATOR_MOVES, translate, translated
from streaming.kafka.topics import create_topic
from streaming.source.barriers.injecting.claim import Claim
from streaming.source.barriers.injecting.control_requests import (
    ControlRequest,
    MalformedRequestError,
    SuspendedAction,
    decode_request,
    decode_suspended,
)

_COORDINATOR_POLL_S = 0.05
_FETCH_WAIT_MS = 5_000
_COMMIT_EVERY_S = 3_600.0
"""Kafka deletes an offset that was not committed for a week, and so the record of which requests were taken."""
_SETTINGS = {"message.timestamp.type": "LogAppendTime"}
"""Ages go by the broker's clock, and not by the sender's."""
_log = structlog.get_logger(__name__)


def injector_id(topics: UpstreamTopics) -> str:
    """Transactional id, and consumer group on the control topic, of the one injector of these barriers."""
    return f"{topics.data}.barriers" if topics.barriers is None else f"{topics.barriers}.injector"


def create_control_topic(settings: KafkaSettings, topic: str) -> None:
    """Ensure the topic, with one partition. Raises: as `create_topic`."""
    create_topic(settings, topic, 1, config=_SETTINGS)


class ControlTopic:
    """Requests not yet taken, oldest first, once it is open.

    Creates the control topic if it is not there. Not for several threads.
    """

    def __init__(self, settings: KafkaSettings, topics: UpstreamTopics, group: str, claim: Claim) -> None:
        self._settings, self._topic, self._claim = settings, topics.control, claim
        create_control_topic(settings, self._topic)
        # A member of no group: it asks for the group's offset and lends its name to the transaction.
        self._group = Consumer(settings.consumer(**{"group.id": group}))
        self._reader = RangeReader(settings)
        # The broker answers when a request comes, and otherwise nothing is asked for seconds.
        waiting = {"enable.partition.eof": False, "fetch.wait.max.ms": _FETCH_WAIT_MS}
        self._news = Consumer(settings.consumer(**waiting))
        self._taken_to = 0
        self._committed: int | None = None
        self._committed_s = 0.0

    def open(self, last: Barrier | None) -> Claim | None:
        """Find the oldest request that was not taken, and another owner's claim, if there is one.

        Only when no transaction of a predecessor can still commit. `last` is the upstream's last barrier. Where it has
        one and the offset is gone (Kafka forgets it after a week without a commit), requests from before that barrier
        count as taken.
        """
        found = committed(self._group, self._topic, self._settings)
        if found.offset >= 0:
            self._taken_to = found.offset
        elif last is not None:
            self._taken_to = self._first_since(last.injected_at_ms)
        with translated(self._settings, what=self._topic):
            self._news.assign([TopicPartition(self._topic, 0, max(self._taken_to, self._begin()))])
        return other_than(self._claim, Claim.from_metadata(found.metadata))

    def _begin(self) -> int:
        return self._reader.watermarks(self._topic)[0].earliest

    def _first_since(self, unix_ms: int) -> int:
        """Offset of the first request that is not older, the topic's end if there is none."""
        with translated(self._settings, what=self._topic):
            asked = [TopicPartition(self._topic, 0, unix_ms)]
            found = self._group.offsets_for_times(asked, timeout=self._settings.wait_s)[0].offset
        end = self._reader.watermarks(self._topic)[0].stable
        offset: int = found if found >= 0 else end
        if offset:
            _log.warning("control_offset_lost", topic=self._topic, goes_on_at=offset)
        return offset

    def close(self) -> None:
        """Leave the broker. Requests taken since the last `commit_with` will be found again."""
        self._news.close()
        self._reader.close()
        self._group.close()

    def await_request(self, timeout_s: float) -> bool:
        """True if an untaken record is there, or comes within the time. Trouble with the broker is ignored."""
        record = self._news.poll(timeout_s)
        return record is not None and record.error() is None and located(record)[1] >= self._taken_to

    def take(self, now_ms: int) -> ControlRequest | None:
        """The oldest request that is in the topic now, or None.

        Those that are malformed, or older at `now_ms` (Unix time) than they allow, are logged and skipped.
        """
        marks = self._reader.watermarks(self._topic)[0]
        start = max(self._taken_to, marks.earliest)
        for chunk in self._reader.read(self._topic, {0: (start, marks.stable)}):
            for message in chunk:
                self._taken_to = located(message)[1] + 1
                if request := _request_in(message, now_ms):
                    return request
        self._taken_to = max(start, marks.stable)
        return None

    def commit_with(self, producer: Producer) -> None:
        """Add the offset up to which requests were taken, and the claim, to the producer's open transaction."""
        if self._taken_to != self._committed or time.monotonic() - self._committed_s > _COMMIT_EVERY_S:
            offsets = [TopicPartition(self._topic, 0, self._taken_to, self._claim.to_metadata())]
            metadata = self._group.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, metadata, self._settings.wait_s)
            self._committed, self._committed_s = self._taken_to, time.monotonic()


def claim_on(settings: KafkaSettings, topics: UpstreamTopics, group: str) -> Claim | None:
    """The claim on an upstream, None if there is none. Does not wait for open transactions."""
    topic = topics.control
    # Others wait for the end of a transaction that holds an offset.
    undecided = {"group.id": group, "isolation.level": "read_uncommitted"}
    with closing(Consumer(settings.consumer(**undecided))) as consumer:
        return Claim.from_metadata(committed(consumer, topic, settings).metadata)


def other_than(claim: Claim, found: Claim | None) -> Claim | None:
    """The claim that was found, if it is another owner's."""
    return None if found is None or found.owner == claim.owner else found


def committed(consumer: Consumer, topic: str, settings: KafkaSettings) -> TopicPartition:
    """The group's offset, negative if there is none. A broker that has just started may need a moment to find it."""
    with translated(settings, what=topic):
        consumer.list_topics(
            topic, timeout=settings.wait_s
        )  # else the group is looked for half a second later
    deadline = time.monotonic() + settings.wait_s
    while True:
        try:
            return consumer.committed([TopicPartition(topic, 0)], timeout=settings.wait_s)[0]
        except KafkaException as raised:
            if raised.args[0].code() not in COORDINATOR_MOVES or time.monotonic() >= deadline:
                raise translate(raised.args[0], settings, what=topic) from None
        consumer.poll(_COORDINATOR_POLL_S)


def _request_in(message: Message, now_ms: int) -> ControlRequest | None:
    try:
        # A suspended service takes those itself: no barrier carries them.
        if decode_suspended(message.value()) is not None:
            return None
        request = decode_request(message.value())
    except MalformedRequestError as reason:
        _log.warning("request_skipped", where=location(message), reason=str(reason))
        return None
    kind, written_ms = message.timestamp()
    age_ms = 0 if kind == TIMESTAMP_NOT_AVAILABLE else now_ms - written_ms
    if request.timeout_ms is not None and age_ms > request.timeout_ms:
        _log.warning(
            "request_refused",
            where=location(message),
            mutation=type(request.mutation).__name__,
            reason=f"it is {age_ms / 1_000:.0f} s old, and was to be taken within {request.timeout_ms / 1_000:g} s",
            next_step="give the command again, if it is still wanted",
        )
        return None
    _log.info("request_taken", where=location(message), mutation=type(request.mutation).__name__)
    return request


class KafkaRequests:
    """The control topic, as a suspended service reads it; it is made if it is missing."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._reader: RangeReader | None = None

    def _opened(self) -> RangeReader:
        if self._reader is None:
            create_control_topic(self._kafka, self._topic)
            self._reader = RangeReader(self._kafka)
        return self._reader

    def end(self) -> int:
        """The offset behind all records that are there. Raises: EnvironmentProblem, TopicError."""
        return self._opened().watermarks(self._topic)[0].stable

    def since(self, offset: int) -> Iterable[tuple[int, SuspendedAction]]:
        """The requests to a suspended service from an offset on, oldest first, each with the offset behind it.

        Raises: EnvironmentProblem, TopicError.
        """
        reader = self._opened()
        marks = reader.watermarks(self._topic)[0]
        found: list[tuple[int, SuspendedAction]] = []
        for chunk in reader.read(self._topic, {0: (max(offset, marks.earliest), marks.stable)}):
            for message in chunk:
                try:
                    action = decode_suspended(message.value())
                except MalformedRequestError as reason:
                    _log.warning("request_skipped", where=location(message), reason=str(reason))
                    continue
                if action is not None:
                    _log.info("request_taken", where=location(message), action=type(action).__name__)
                    found.append((located(message)[1] + 1, action))
        return found

    def close(self) -> None:
        """Leave the topic; it is opened again when it is read."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

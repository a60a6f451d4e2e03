"""The control topic, as a suspended service reads it."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located, location
from streaming.source.barriers.injecting.control_requests import MalformedRequestError
from streaming.source.barriers.injecting.control_topic import create_control_topic
from streaming.source.barriers.injecting.suspended_requests import SuspendedAction, decode_suspended

log = structlog.get_logger(__name__)


class KafkaRequests:
    """Requests in a control topic on a broker, which is made if it is missing."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._reader: RangeReader | None = None

    def _opened(self) -> RangeReader:
        if self._reader is None:
            create_control_topic(self._kafka, self._topic)
            self._reader = RangeReader(self._kafka)
        return self._reader

    def end(self) -> int:
        """The stable end of the topic."""
        return self._opened().watermarks(self._topic)[0].stable

    def since(self, offset: int) -> Iterable[tuple[int, SuspendedAction]]:
        """Read what is there now. Malformed requests are logged by the injector that passes them over."""
        reader = self._opened()
        marks = reader.watermarks(self._topic)[0]
        found: list[tuple[int, SuspendedAction]] = []
        for chunk in reader.read(self._topic, {0: (max(offset, marks.earliest), marks.stable)}):
            for message in chunk:
                try:
                    action = decode_suspended(message.value())
                except MalformedRequestError as reason:
                    log.warning("request_skipped", where=location(message), reason=str(reason))
                    continue
                if action is not None:
                    log.info("request_taken", where=location(message), action=type(action).__name__)
                    found.append((located(message)[1] + 1, action))
        return found

    def close(self) -> None:
        """Leave the broker."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

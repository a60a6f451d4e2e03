"""The ends of finished batches as the offsets of a consumer group: the service's lag, where people look for lag.

Nothing reads them back: a start goes by its state alone. So they are committed without waiting, and a group that can't
be written is a line in the log, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.errors import BackfillError
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import is_refusal
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.service.service import Service

log = structlog.get_logger(__name__)

_EVERY_S = 1.0
"""Ends are committed at most so often: lag is looked at by people and alerts."""


@dataclass
class LagGroup:
    """Observer that commits offsets of `topic` under `group`. For one thread; close it after use."""

    kafka: KafkaSettings
    topic: str
    group: str
    clock: Callable[[], float] = time.monotonic
    _committed: Sequence[int] = ()
    _committed_s: float = field(default=float("-inf"))
    _is_refused: bool = False

    @cached_property
    def _consumer(self) -> Consumer:
        own = {"group.id": self.group, "enable.partition.eof": False, "on_commit": self._on_commit}
        # It joins no group: this is how long a close waits for a commit that the broker has not answered.
        return Consumer(self.kafka.consumer(**own, **{"session.timeout.ms": 1_000}))

    def starts_from(self, state: StateAtBarrier) -> None:
        self._commit(state.ends)

    def batch(self, report: BatchReport) -> None:
        self._commit(report.plan.end_offsets)

    def trouble(self, problem: BackfillError) -> None:
        """Nothing was read further."""

    def close(self) -> None:
        """Leave the broker."""
        if "_consumer" in self.__dict__:
            self._consumer.close()

    def _commit(self, ends: Sequence[int]) -> None:
        now_s = self.clock()
        if self._is_refused or ends == self._committed or now_s < self._committed_s + _EVERY_S:
            return
        self._committed, self._committed_s = ends, now_s
        offsets = [TopicPartition(self.topic, *place) for place in enumerate(ends)]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._consumer.poll(0)  # hears of the commits before
        except KafkaException as raised:
            self._on_commit(raised.args[0], [])
        except BackfillError:  # a secret that is gone: clients that the service needs say so
            return

    def _on_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        # Whatever else it is, a coordinator that moves or a broker that is away, the next commit may get through.
        if error is None or self._is_refused or not is_refusal(error):
            return
        self._is_refused = True
        log.warning(
            "lag_group",
            group=self.group,
            found=f"offsets that the broker does not take ({error.name()})",
            next_step=f"grant Read on the group {self.group}, see docs/security.md; the lag is not shown until then",
        )


@contextmanager
def lag_shown(service: Service) -> Iterator[None]:
    """Show a service's lag while the block runs. Enter it before `service.run`."""
    config = service.config
    with closing(LagGroup(service.kafka, config.upstream, config.topics.lag_group)) as group:
        service.observers += (group,)
        yield

"""Checks that the upstream is still the topic that the state was made from, and that nothing of it is missing.

A topic that was deleted and made again has the old name and other records, and offsets that mean something else; so a
state is bound to the topic's id, which Kafka never uses twice. Where vnodes are partitions, none may be added;
retention and compaction take away what a replica is made of. Each of these is looked for before anything is touched,
every few seconds while the service runs, and when Spark gives up without a reason of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

import structlog
from confluent_kafka.admin import AdminClient

from schemas.errors import BackfillError, Code, EnvironmentProblem, StateError, TopicError
from schemas.formats.protocol import Images, UpstreamFormat
from state.initial.start import KEY as START
from state.initial.start import AnyStart
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH
from state.storage import Storage, corrupt
from state.values.bound_table import BoundTable
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import Watermarks, admin, describe_topic, known_settings, watermarks
from streaming.source.retention import Gaps, Margin, Retention

log = structlog.get_logger(__name__)

_COMPACTION_LAG, _LEAST_COMPACTION_LAG_MS = "min.compaction.lag.ms", 3_600_000
_UPSTREAM = "upstream"
_WAIT_S = 2.0
"""The time, in seconds, to wait for an answer while the service runs: the asking thread also has to notice SIGTERM."""


@dataclass(frozen=True, slots=True)
class UpstreamIdentity:
    """The upstream that a state was made from.

    `may_gain`: its table takes further partitions in, as its vnodes do not depend on them.
    """

    topic: str
    id: str
    partitions: int
    may_gain: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls, kafka: KafkaSettings, topic: str, *, client: AdminClient | None = None, may_gain: bool = False
    ) -> Self:
        """The topic's current identity. Raises: TopicError(TOPIC_MISSING)."""
        found = describe_topic(kafka, topic, client=client)
        return cls(topic, found.id, found.partitions, may_gain)

    def gains(self, kafka: KafkaSettings, fault: BackfillError) -> bool:
        """True for a fault of barriers for more partitions than these, which the topic has by now and may gain."""
        if fault.code is not Code.PARTITIONS_CHANGED or not self.may_gain:
            return False
        with suppress(BackfillError):
            found = UpstreamIdentity.of(kafka, self.topic).partitions
            log.info("partitions_added", upstream=self.topic, before=self.partitions, found=found)
            return found > self.partitions
        return False

    def refuse_other(self, found: UpstreamIdentity, *, state: str) -> None:
        """Raises: StateError(STATE_FOREIGN); TopicError(TOPIC_REPLACED, PARTITIONS_CHANGED)."""
        if found.topic != self.topic:
            raise StateError(
                Code.STATE_FOREIGN, where=state, found=f"a state of topic {self.topic}", topic=found.topic
            )
        if found.id != self.id:
            raise TopicError(
                Code.TOPIC_REPLACED,
                where=self.topic,
                found=f"a topic with this name and another id ({found.id})",
                id=self.id,
            )
        if found.partitions < self.partitions or (found.partitions > self.partitions and not self.may_gain):
            raise TopicError(
                Code.PARTITIONS_CHANGED,
                where=self.topic,
                found=f"{found.partitions} partitions",
                partitions=self.partitions,
                before="when the state was made",
            )


def binding(version: BoundTable, upstream: UpstreamIdentity, start: AnyStart | None = None) -> str:
    """The table, topic and start that a state is bound to, as JSON for the journal."""
    bound = {} if start is None else start.bound()
    named = {name: getattr(upstream, name) for name in ("topic", "id", "partitions")}
    return json.dumps({**version.to_dict(), _UPSTREAM: named, **bound})


def refuse_foreign(known: str, upstream: UpstreamIdentity, *, state: str, has_plan: bool = True) -> None:
    """Check that the state with the binding `known` is one of this upstream.

    A state without a plan has read nothing, so the topic may have gained partitions since, unless it starts at offsets.
    Raises: as `UpstreamIdentity.refuse_other`.
    """
    raw = json.loads(known)
    if _UPSTREAM not in raw:
        return
    bound = UpstreamIdentity(**raw[_UPSTREAM], may_gain=upstream.may_gain)
    if not has_plan and START not in raw:  # `streaming.service.initial.start` looks at that
        bound = replace(bound, partitions=upstream.partitions)
    bound.refuse_other(upstream, state=state)


def refuse_partial(storage: Storage, entry: Entry | None) -> None:
    """Check that all tables of the state exist: a missing one would be created anew, empty. `entry` is the journal's.

    The journal comes first and the others before the first plan, so a crash leaves no other gaps.
    Raises: StateError(STATE_TABLE_CORRUPT).
    """
    others = {path: storage.exists(path, "_delta_log") for path in (BASE_PATH, LOG_PATH, PROGRESS_PATH)}
    if entry is None and any(others.values()):
        missing = JOURNAL_PATH
    elif entry is not None and entry.plan is not None and not all(others.values()):
        missing = next(path for path, there in others.items() if not there)
    else:
        return
    raise corrupt(storage.uri(missing), "a state without this table")


class UpstreamGuard:
    """Checks one upstream of a running service. `state` is the state's location, for messages.

    `gaps` is what is known of its offsets; `look` adds to it.
    """

    def __init__(
        self, kafka: KafkaSettings, bound: UpstreamIdentity, state: str, gaps: Gaps | None = None
    ) -> None:
        self._kafka, self._bound, self._state = replace(kafka, wait_s=_WAIT_S), bound, state
        self._gaps = Gaps() if gaps is None else gaps
        self._client: AdminClient | None = None
        self._retention = Retention(self._kafka, bound.topic)

    def look(self, next_offsets: Sequence[int]) -> tuple[Watermarks, ...]:
        """Check identity and completeness from `next_offsets` on; returns the watermarks of each partition.

        For one thread. Raises: as `UpstreamIdentity.refuse_other` and `Gaps.refuse_lost`;
        TopicError(TOPIC_MISSING); EnvironmentProblem.
        """
        topic = self._bound.topic
        try:
            if self._client is None:
                self._client = admin(self._kafka)
            self._bound.refuse_other(
                UpstreamIdentity.of(self._kafka, topic, client=self._client), state=self._state
            )
            marks = watermarks(self._kafka, topic, client=self._client)
        except EnvironmentProblem:
            self._client = None
            raise
        self._gaps.refuse_lost(topic, marks, next_offsets)
        self._gaps.observe(self._kafka, topic, marks, next_offsets)
        return marks

    def margins(self, marks: Sequence[Watermarks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
        """The time for which unread records are kept, by partition (`Retention.look`)."""
        return self._retention.look(marks, self._gaps.first(next_offsets))

    def reason(self, problem: EnvironmentProblem, next_offsets: Sequence[int]) -> BackfillError:
        """The cause of a failure of Spark, if it is the upstream or its broker; else the problem itself."""
        if problem.code is not Code.SPARK_FAILED:
            return problem
        try:
            UpstreamGuard(self._kafka, self._bound, self._state, self._gaps).look(next_offsets)
        except BackfillError as reason:
            return reason
        return problem


def refuse_compacted(kafka: KafkaSettings, topic: str, upstream_format: UpstreamFormat) -> bool:
    """Check that compaction of the topic, if any, removes nothing that is needed.

    In a format whose records hold whole rows, compaction removes only what was superseded; but a batch may have to read
    its records again, hence the least lag. A topic whose settings can't be read is accepted; False then.
    Raises: TopicError(COMPACTED_INPUT, COMPACTION_LAG_TOO_SHORT).
    """
    settings = known_settings(kafka, topic)
    if settings is None:
        return False
    if "compact" in (policy := settings["cleanup.policy"]):
        if upstream_format.images is not Images.AFTER_ONLY:
            raise TopicError(Code.COMPACTED_INPUT, where=topic, found=f"cleanup.policy={policy}")
        if (lag_ms := int(settings[_COMPACTION_LAG])) < _LEAST_COMPACTION_LAG_MS:
            raise TopicError(
                Code.COMPACTION_LAG_TOO_SHORT,
                where=topic,
                found=f"a compacted topic with {_COMPACTION_LAG}={lag_ms}",
                least=f"{_COMPACTION_LAG}={_LEAST_COMPACTION_LAG_MS}",
            )
    return True

"""Checks of the broker: its address, transactions and clock, the rights on topics, and the topics themselves.

The upstream keeps its records, and outputs are as their jobs declare and hold none of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from schemas.errors import BackfillError, Code, EnvironmentProblem
from schemas.settings.config import ServiceConfig
from schemas.topics import DEAD_LETTERS_SUFFIX
from streaming.kafka.errors import is_missing, is_refusal, translate
from streaming.kafka.topics import answered, missing_topic, partitions_of, watermarks
from streaming.service.checks.surroundings import Finding, Grade, Surroundings
from streaming.source.barriers.injecting.target import refuse_incompatible_topic
from streaming.source.retention import Gaps
from streaming.source.upstream_checks import refuse_compacted

_PROBE = "backfill-doctor"
_SKEW_S = 2.0
_READ, _WRITE = frozenset({"READ", "DESCRIBE"}), frozenset({"WRITE", "DESCRIBE"})
_SETTINGS = frozenset({"DESCRIBE_CONFIGS"})


def reached(found: Surroundings) -> Iterator[Finding]:
    """Check that it answers and lets this user in. Raises: EnvironmentProblem(BROKER_UNREACHABLE, AUTH_FAILED)."""
    if found.kafka is None:
        text = "an embedded one, started by the service; none to look at before that"
        yield Finding("broker", Grade.UNKNOWN, text)
        return
    _ = found.admin
    yield Finding.ok("broker", found.kafka.bootstrap)


def transactions(found: Surroundings) -> Iterator[Finding]:
    """By one that is begun for nothing: the broker keeps a name for it, and no record. Raises: as `translate`."""
    settings = found.broker
    try:
        producer = Producer(settings.transactional(_PROBE))
        producer.init_transactions(settings.wait_s)
    except KafkaException as raised:
        error = raised.args[0]
        if is_refusal(error) or error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text = f"refused for {_PROBE}; right if only the prefix of this state is granted"
            yield Finding.warning("transactions", text, "grant Write to the prefix backfill-")
        else:
            raise translate(error, settings, what="transactions") from None
        return
    yield Finding.ok("transactions", "begun")


def clock(found: Surroundings) -> Iterator[Finding]:
    """Compare clocks by the newest record: Kafka has no request for its time, but no record can be from the future."""
    topic, wait_s = found.upstream, found.broker.wait_s
    futures = found.admin.list_offsets(
        {
            TopicPartition(topic.topic, number): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for number in range(topic.partitions)
        },
        request_timeout=wait_s,
    )
    try:
        newest_ms = max(int(answered(future, found.broker).timestamp) for future in futures.values())
    except (KafkaException, ValueError):
        step = "compare by hand: date"
        yield Finding("clock", Grade.UNKNOWN, "no time of a record to compare with", step)
        return
    ahead_s = newest_ms / 1_000 - time.time()
    if newest_ms < 0:
        yield Finding.ok("clock", "no record to compare with yet")
    elif ahead_s > _SKEW_S:
        text = f"the newest record is {ahead_s:,.0f} s in the future"
        yield Finding.warning("clock", text, "set this machine's clock, or its producer's, by NTP")
    else:
        yield Finding.ok("clock", f"the newest record is {-ahead_s:,.0f} s old")


@dataclass(frozen=True, slots=True)
class TopicNeed:
    """A topic that is used, with the operations on it (`READ`); whether it has to be there, for who else makes it."""

    topic: str
    operations: frozenset[str]
    must_exist: bool = False

    def lacking(self, granted: Collection[str]) -> list[str]:
        """The operations that are not granted, in order; none where the broker does not tell them."""
        return sorted(self.operations - set(granted)) if granted else []


def upstream_needs(config: ServiceConfig) -> tuple[TopicNeed, ...]:
    """The topics on the upstream's side with what `run` does with them: the tables of docs/security.md."""
    topics, injects = config.topics, config.barriers.injects
    inline = topics.barriers is None
    upstream = _READ | (_SETTINGS if inline else set()) | (_WRITE if inline and injects else set())
    needs = [TopicNeed(topics.data, upstream, must_exist=True)]
    if topics.barriers is not None:
        needs.append(TopicNeed(topics.barriers, _READ | _WRITE if injects else _READ, must_exist=not injects))
    return tuple(needs)


def other_needs(config: ServiceConfig) -> tuple[TopicNeed, ...]:
    """The other topics, without Create. Outputs are the configuration's; jobs made since have the like."""
    needs = [TopicNeed(config.topics.control, _READ)] if config.barriers.injects else []
    for job in config.jobs:
        needs.append(TopicNeed(job.output, _READ | _WRITE | _SETTINGS))
        if job.barrier_topic is not None:
            needs.append(TopicNeed(job.barrier_topic, _READ | _WRITE | _SETTINGS))
        if config.on_bad_record == "park":
            needs.append(TopicNeed(f"{job.output}{DEAD_LETTERS_SUFFIX}", _WRITE | _SETTINGS))
    return tuple(needs)


def rights(needs: Callable[[ServiceConfig], Sequence[TopicNeed]], found: Surroundings) -> Iterator[Finding]:
    """Check the topics of `needs`, those that are read or all others: that they are there, and what is granted."""
    yield from (_looked_at(found, need) for need in needs(found.declared))


def _looked_at(found: Surroundings, need: TopicNeed) -> Finding:
    subject, settings = f"topic {need.topic}", found.broker
    answer = found.admin.describe_topics(
        TopicCollection([need.topic]), include_authorized_operations=True, request_timeout=settings.wait_s
    )
    try:
        topic: Any = answer[need.topic].result(settings.wait_s)
    except KafkaException as raised:
        error = raised.args[0]
        if not is_missing(error):
            return Finding.of(subject, translate(error, settings, what=need.topic))
        if need.must_exist:
            return Finding.of(subject, missing_topic(settings, need.topic, found.admin))
        return Finding.ok(subject, "not there yet; made when it is needed, which takes the right to Create")
    count = len(topic.partitions)
    said = f"{count} partition{'' if count == 1 else 's'}"
    lacking = need.lacking([operation.name for operation in topic.authorized_operations or ()])
    if not lacking:
        return Finding.ok(subject, f"{said}, with {', '.join(sorted(need.operations))}")
    text = f"{said}, without the right to {', '.join(lacking)}"
    step = "grant it, see the tables in docs/security.md"
    # Without this one the service only can't see whether records are taken out of its upstream.
    if lacking == ["DESCRIBE_CONFIGS"] and need.must_exist:
        return Finding.warning(subject, text, step)
    rights = ", ".join(sorted(need.operations))
    expected = f"the rights to {rights}"
    error = EnvironmentProblem(
        Code.AUTH_FAILED, where=need.topic, found=text, expected=expected, next_step=step
    )
    return Finding.of(subject, error)


def upstream(found: Surroundings) -> Iterator[Finding]:
    """Raises: TopicError(TOPIC_MISSING, COMPACTED_INPUT, COMPACTION_LAG_TOO_SHORT)."""
    config = found.declared
    _ = found.upstream
    if refuse_compacted(found.broker, config.upstream, config.upstream_format):
        yield Finding.ok("upstream", "is not compacted in a way that takes what is needed")
    else:
        step = "grant DescribeConfigs on it, or see that it is not compacted"
        yield Finding.warning("upstream", "its settings can't be read (topic_settings_unknown)", step)


def partitions(found: Surroundings) -> Iterator[Finding]:
    """Raises: ConfigError(CONFIG_INVALID) for lanes that don't divide them, where vnodes are partitions."""
    text = f"{found.upstream.partitions}, for {found.config.lanes} lanes"
    yield Finding.ok("partitions", text)


def barriers(found: Surroundings) -> Iterator[Finding]:
    """The separate topic of barriers. Raises: TopicError(TOPIC_MISSING, BARRIER_TOPIC_MISMATCH)."""
    config, topic = found.declared, found.declared.topics.barriers
    if topic is None:
        return
    is_there = partitions_of(found.broker, topic, client=found.admin) is not None
    if is_there or not config.barriers.injects:
        refuse_incompatible_topic(found.broker, config.topics, found.upstream.partitions, _least(found))
    yield Finding.ok("barrier topic", topic if is_there else f"{topic}, made by the service")


def _least(found: Surroundings) -> int | None:
    """The partitions that a barrier topic has at least: the service adds others, or their owner may, to a known one."""
    if found.declared.barriers.injects:
        return 1
    with suppress(BackfillError):  # which the checks of the state report
        plan = None if found.entry is None else found.entry.plan
        return None if plan is None else plan.barriers[0].barrier.partitions
    return None


def outputs(found: Surroundings, *, by_partition: bool = False) -> Iterator[Finding]:
    """Outputs without the upstream's partitions. Raises: TopicError(OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS)."""
    known = {job.name for job in found.known.jobs} if by_partition else set()
    for job in found.declared.jobs:
        if job.parts_are_partitions == by_partition:
            own = job.with_partitions(found.upstream.partitions)
            found.sinks(job).check(own, gains=job.name in known)
            yield Finding.ok(f"output {job.output}", "as its job declares, or not there yet")


def outputs_by_partition(found: Surroundings) -> Iterator[Finding]:
    """Outputs with the upstream's partitions, once it is known to be the state's. Raises: as `outputs`."""
    return outputs(found, by_partition=True)


def unread(found: Surroundings) -> Iterator[Finding]:
    """Before the first plan, which knows better. Raises: InputError(DATA_LOST)."""
    if found.entry is not None and found.entry.plan is not None:
        return
    topic, gaps = found.upstream.topic, Gaps(named=found.skip_records)
    gaps.refuse_lost(topic, watermarks(found.broker, topic), found.beginning)
    yield Finding.ok("unread records", f"there, from offsets {', '.join(map(str, found.beginning))} on")


def unused(found: Surroundings) -> Iterator[Finding]:
    """A state without a plan has sent nothing, so records of an output are others', unless a lost one is rebuilt.

    Raises: TopicError(OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS, SAME_TOPIC).
    """
    if found.rebuild or (found.entry is not None and found.entry.plan is not None):
        return
    for job in found.config.jobs:
        found.sinks(job).refuse_used(job.with_partitions(found.upstream.partitions))
        yield Finding.ok(f"output {job.output}", "without records, or not there yet")

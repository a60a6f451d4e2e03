"""The rights on topics: those that a configuration needs, and those that the broker says this user has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.config import ServiceConfig
from schemas.topics import DEAD_LETTERS_SUFFIX
from streaming.kafka.errors import is_missing, translate
from streaming.kafka.topics import missing_topic
from streaming.service.checks.findings import Finding
from streaming.service.checks.surroundings import Surroundings

_READ, _WRITE = frozenset({"READ", "DESCRIBE"}), frozenset({"WRITE", "DESCRIBE"})
_SETTINGS = frozenset({"DESCRIBE_CONFIGS"})


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


def of_upstream(found: Surroundings) -> Iterator[Finding]:
    """Check the topics that are read."""
    yield from (_looked_at(found, need) for need in upstream_needs(found.declared))


def of_others(found: Surroundings) -> Iterator[Finding]:
    """Check the control topic, outputs and dead letters."""
    yield from (_looked_at(found, need) for need in other_needs(found.declared))


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

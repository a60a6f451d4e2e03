"""Checks of topics: the upstream keeps its records, and outputs are as their jobs declare and hold none of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from schemas.errors import BackfillError
from streaming.kafka.topics import partitions_of
from streaming.service.checks.findings import Finding
from streaming.service.checks.surroundings import Surroundings
from streaming.source.barriers.injecting.target import refuse_unfit
from streaming.source.gaps import Gaps, refuse_lost
from streaming.source.upstream_checks import refuse_compacted


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
        refuse_unfit(found.broker, config.topics, found.upstream.partitions, _least(found))
    yield Finding.ok("barrier topic", topic if is_there else f"{topic}, made by the service")


def _least(found: Surroundings) -> int | None:
    """The partitions that a barrier topic has at least: the service adds others, or their owner may, to a known one."""
    if found.declared.barriers.injects:
        return 1
    with suppress(BackfillError):  # which the checks of the state report
        plan = None if found.entry is None else found.entry.plan
        return None if plan is None else plan.barriers[0].barrier.partitions
    return None


def outputs(found: Surroundings) -> Iterator[Finding]:
    """Raises: TopicError(OUTPUT_TOPIC_MISMATCH, OUTPUT_LOSES_RECORDS)."""
    yield from _checked(found, have_its_partitions=False)


def outputs_by_partition(found: Surroundings) -> Iterator[Finding]:
    """Outputs with the upstream's partitions, once it is known to be the state's. Raises: as `outputs`."""
    yield from _checked(found, have_its_partitions=True)


def _checked(found: Surroundings, *, have_its_partitions: bool) -> Iterator[Finding]:
    known = {job.name for job in found.known.jobs} if have_its_partitions else set()
    for job in found.declared.jobs:
        if job.parts_are_partitions == have_its_partitions:
            own = job.with_partitions(found.upstream.partitions)
            found.sinks(job).check(own, gains=job.name in known)
            yield Finding.ok(f"output {job.output}", "as its job declares, or not there yet")


def unread(found: Surroundings) -> Iterator[Finding]:
    """Before the first plan, which knows better. Raises: InputError(DATA_LOST)."""
    if found.entry is not None and found.entry.plan is not None:
        return
    refuse_lost(found.broker, found.upstream.topic, found.beginning, Gaps(named=found.skip_records))
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

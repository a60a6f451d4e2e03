"""Topics by name: those of an upstream, for data, separate barriers and control requests; and those of an output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import Code
from schemas.faults import Faults, brief
from schemas.formats.protocol import Images, OutputFormat, UpstreamFormat

CONTROL_SUFFIX, BARRIERS_SUFFIX = ".control", ".barriers"
DEAD_LETTERS_SUFFIX = ".dead-letters"
UPSTREAM_KEYS = {
    "topic": ("", "Topic of the changelog."),
    "read_limit": (
        "none",
        "Records per second that are read of it at most, see [how fast it is read](operations.md#how-fast-it-is-read).",
    ),
}
"""Keys of `upstream` in addition to those of its format: default and meaning, in Markdown."""
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """True if Kafka takes it as a topic's name: letters, digits, `.`, `_`, `-`; 249 at most; no `.`, `..`."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTopics:
    """Topics of one service on the upstream's side. `barriers` is None where they are records of the data.

    A topic `barriers` and a topic `control` are those of one service; `data` may be the upstream of several.
    """

    data: str
    barriers: str | None = None
    control: str

    @classmethod
    def of(cls, data: str, *, barriers: str | None = None, control: str | None = None) -> UpstreamTopics:
        """The topics of an upstream; the control topic is `<data>.control` unless it is given."""
        return cls(data=data, barriers=barriers, control=control or data + CONTROL_SUFFIX)

    @property
    def with_barriers(self) -> str:
        """The topic that barriers are records of."""
        return self.data if self.barriers is None else self.barriers

    @property
    def lag_group(self) -> str:
        """The consumer group that shows how far the service is; each on one upstream has its own, by its `control`."""
        return f"backfill-{self.control.removesuffix(CONTROL_SUFFIX)}"

    @property
    def all(self) -> frozenset[str]:
        """Every one of them, and that of the table's dead letters; none can be an output."""
        return frozenset({self.data, self.with_barriers, self.control, self.data + DEAD_LETTERS_SUFFIX})


@dataclass(frozen=True, slots=True)
class UpstreamSection:
    """The section `upstream` of a configuration. `read_limit`: records a second, None for any number."""

    topic: str
    format: UpstreamFormat
    read_limit: int | None = None

    def topics(self, barriers: str | None, control: str | None) -> UpstreamTopics:
        """The topics on the upstream's side; `barriers` and `control` are those that the configuration names."""
        if self.format.barriers_are_beside:
            barriers = barriers or self.topic + BARRIERS_SUFFIX
            if barriers == self.topic and self.format.may_hold_barriers:
                barriers = None  # the topic that they are records of
        return UpstreamTopics.of(self.topic, barriers=barriers, control=control)


def barriers_of_output(declaration: Mapping[str, Any], format_: OutputFormat, faults: Faults) -> str | None:
    """The topic that a job's definition names for its barriers, None where they are records of the output."""
    output, declared = declaration.get("output"), declaration.get("barrier_topic")
    if declared is None:
        return f"{output}{BARRIERS_SUFFIX}" if format_.barriers_are_beside else None
    if declared == output and format_.barriers_are_beside and format_.may_hold_barriers:
        return None  # the topic that they are records of
    if not is_topic_name(declared):
        faults.add(f"barrier_topic {brief(declared)} is no topic name (letters, digits, '.', '_', '-')")
    elif declared in (output, f"{output}{DEAD_LETTERS_SUFFIX}"):
        faults.add(f"barrier_topic {brief(declared)} is another topic of the job", Code.SAME_TOPIC)
    return str(declared)


def no_compaction(format_: OutputFormat, barriers: str | None) -> str | None:
    """The reason why such an output can't be compacted, None if it can."""
    if format_.images is Images.ROWS:
        return "rows without identity are no versions of one another"
    return "barriers in the output have no key; name a barrier_topic for them" if barriers is None else None

"""The topics of one upstream, by name: data, barriers where they stand beside the data, control requests."""

from __future__ import annotations

from dataclasses import dataclass

CONTROL_SUFFIX, BARRIERS_SUFFIX = ".control", ".barriers"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTopics:
    """What one service reads and writes on the upstream's side. `barriers` is None where they are records of the data.

    A topic `barriers` and a topic `control` are those of one service; `data` may be the upstream of several.
    """

    data: str
    barriers: str | None = None
    control: str

    @classmethod
    def of(cls, data: str, *, barriers: str | None = None, control: str | None = None) -> UpstreamTopics:
        """With the usual name of a topic for requests, unless it is given."""
        return cls(data=data, barriers=barriers, control=control or data + CONTROL_SUFFIX)

    @property
    def with_barriers(self) -> str:
        """The topic that barriers are records of."""
        return self.data if self.barriers is None else self.barriers

    @property
    def all(self) -> frozenset[str]:
        """Every one of them; none can be an output."""
        return frozenset({self.data, self.with_barriers, self.control})

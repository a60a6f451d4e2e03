"""The last hour of a service, in bounded memory: a point a second for ten minutes, before that one in ten seconds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from streaming.observe.models import Point
from streaming.service.events import HOUR_S

_RECENT, _RECENT_S = 600, 1.0
_OLDER, _OLDER_S = 300, 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """One batch, or some one after another: counts are sums, `latency_s`, `behind_s` and `batch_s` the longest.

    `at` is the end of the last one; counts of jobs leave out those without any.
    """

    at: float
    elapsed_s: float
    latency_s: float | None
    behind_s: float | None
    batch_s: float
    changes: int
    rows: Mapping[str, int]
    sent: Mapping[str, int]

    def with_next(self, following: Span) -> Span:
        """Both in one."""
        return Span(
            at=following.at,
            elapsed_s=self.elapsed_s + following.elapsed_s,
            latency_s=_longer(self.latency_s, following.latency_s),
            behind_s=_longer(self.behind_s, following.behind_s),
            batch_s=max(self.batch_s, following.batch_s),
            changes=self.changes + following.changes,
            rows=Counter(self.rows) + Counter(following.rows),
            sent=Counter(self.sent) + Counter(following.sent),
        )

    def point(self) -> Point:
        """The rates of the span."""
        return Point(
            at=self.at,
            latency_s=self.latency_s,
            behind_s=self.behind_s,
            batch_s=self.batch_s,
            changes_per_s=self.changes / self.elapsed_s,
            rows_per_s={name: rows / self.elapsed_s for name, rows in self.rows.items()},
            sent_per_s={name: records / self.elapsed_s for name, records in self.sent.items()},
        )


class History:
    """The spans of the last hour. For one thread at a time."""

    def __init__(self) -> None:
        self._recent = deque[Span]()
        self._older = deque[Span](maxlen=_OLDER)

    def note(self, span: Span) -> None:
        """Add the next batch."""
        _add(self._recent, span, _RECENT_S)
        if len(self._recent) > _RECENT:
            _add(self._older, self._recent.popleft(), _OLDER_S)

    def points(self) -> list[Point]:
        """Oldest first."""
        return [span.point() for span in (*self._older, *self._recent)]

    def most_behind(self, since: float, now: float) -> tuple[float, float] | None:
        """The highest `behind_s` of the last hour, and its time, of spans after `since`."""
        begin = max(since, now - HOUR_S)
        spans = (span for span in (*self._older, *self._recent) if span.at > begin)
        return max(((span.behind_s, span.at) for span in spans if span.behind_s is not None), default=None)


def _longer(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _add(spans: deque[Span], span: Span, least_s: float) -> None:
    if spans and spans[-1].elapsed_s < least_s:
        spans[-1] = spans[-1].with_next(span)
    else:
        spans.append(span)

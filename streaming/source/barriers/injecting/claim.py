"""The claim on an upstream, of the one injector that writes its barriers: a state's, or that of `backfill barriers`.

Two services with states of their own would both obey each request, and write the same outputs. So the injector's
offset on the control topic carries a claim as its metadata, and moves only inside the transaction of a barrier: the
sender of a barrier has the claim. An injector of the same owner takes over at once, whatever the one before does. One
of another owner is let in when the one before is gone: none of its barriers has come for three of its intervals.

    look at the claim ──▶ another's? watch its barriers ──▶ one comes, or is due: refused, without fencing
                                       │ none
                                       ▼
    fence ──▶ look again: another claim, or a barrier since? refused ──▶ send the first barrier, with the claim

Not covered: two copies of one state folder have the same id. And an owner away for longer than `silent_after_ms`
(suspended, cut off from the broker) loses its claim; it ends when it is back, because then the other one lives.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from schemas.errors import Code, TopicError
from schemas.records import Barrier
from schemas.settings.limits import duration_text
from streaming.kafka.barriers import is_marked
from streaming.kafka.consumer import RangeReader

ALONE = "backfill barriers"
"""Owner of an injector without a state."""
_MARGIN_MS = 2_000
_LONGEST_WATCH_MS = 10_000
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim. `owner` is the id of a state, or `ALONE` with a name; `who` names its process, for error messages.

    `by_name`: its owner's version knows mutations that have no branch of their own in Avro.
    """

    owner: str
    interval_ms: int
    who: str
    by_name: bool = True

    @property
    def silent_after_ms(self) -> int:
        """Time without a barrier after which its injector counts as gone."""
        return 3 * self.interval_ms + _MARGIN_MS

    def to_metadata(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_metadata(cls, text: str | None) -> Claim | None:
        """Parse a claim; None for any other text, as a version without claims may have left."""
        try:
            found = json.loads(text or "null")
            known = str(found["owner"]), int(found["interval_ms"]), str(found["who"])
            return cls(*known, by_name="by_name" in found)
        except (ValueError, TypeError, KeyError):
            return None


def watch_ms(claim: Claim, last: Barrier | None, now_ms: int) -> int:
    """Milliseconds to watch for a barrier of another owner; `last` is the last one there is.

    Long enough for one more of its barriers, even if the clocks of the two machines differ.
    """
    age_ms = claim.silent_after_ms if last is None else now_ms - last.injected_at_ms
    least_ms = min(claim.interval_ms + _MARGIN_MS, _LONGEST_WATCH_MS)
    return max(least_ms, claim.silent_after_ms - max(0, age_ms))


class BarrierWatch:
    """Detects a barrier in partition 0 since this was made, or since the last call."""

    def __init__(self, reader: RangeReader, topic: str) -> None:
        self._reader, self._topic = reader, topic
        self._next = reader.watermarks(topic)[0].stable

    def __call__(self) -> bool:
        """Raises: as `RangeReader.read`."""
        begin, self._next = self._next, self._reader.watermarks(self._topic)[0].stable
        chunks = list(self._reader.read(self._topic, {0: (begin, self._next)}))
        return any(is_marked(message) for chunk in chunks for message in chunk)


def outlive(
    claim: Claim, upstream: str, last: Barrier | None, newer: Callable[[], bool], now_ms: int
) -> None:
    """Watch until another owner's injector counts as gone. `newer()` is True once a barrier came since `last`.

    Raises: TopicError(BARRIERS_TAKEN), at once when that would take long.
    """
    wait_ms = watch_ms(claim, last, now_ms)
    if wait_ms > _LONGEST_WATCH_MS:
        later = duration_text(-(-wait_ms // 1_000) * 1_000)
        raise taken(
            claim, upstream, f"stop that one, name a `barrier_topic` of its own here, or try again in {later}"
        )
    deadline = time.monotonic() + wait_ms / 1_000
    while time.monotonic() < deadline:
        if newer():
            raise taken(claim, upstream)
        time.sleep(_LOOK_EVERY_S)


def who() -> str:
    """The name of this process, for the error of an injector that it keeps out."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def taken(claim: Claim, upstream: str, next_step: str | None = None) -> TopicError:
    """The error for an upstream that has barriers of another owner."""
    return TopicError(
        Code.BARRIERS_TAKEN, where=upstream, found=f"barriers of {claim.who}", next_step=next_step
    )

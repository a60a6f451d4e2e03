"""Backfill progress of one part of a job (a vnode, where the replica is read): a small state machine with named moves.

    NotStarted ──advance──▶ InProgress ──advance──▶ InProgress ──finish──▶ Completed
        └────────────────────────finish──────────────────────────────────────▲

`covers(key)` decides visibility: has the snapshot read passed this key?

    NotStarted   no      nothing was read yet: position −∞
    InProgress   key <= position
    Completed    yes     position +∞, so inserts behind the last key are covered as well

It is decided per part, never per job ("is anything in progress?"): after a change of lanes a job has Completed and
NotStarted parts, and live changes of the former must go on. (RisingWave decides for all vnodes at once, `has_progress`
in src/stream/src/executor/backfill/arrangement_backfill.rs, and loses these.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from schemas.position import Key, order_key


class IllegalMove(AssertionError):
    """A bug in this code: the progress stays as it was."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing was read; such a part has no row in the progress table."""

    position: None = None
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class InProgress:
    """`position` is a bound, not necessarily an existing key; every key <= position was read."""

    position: Key
    row_count: int


@dataclass(frozen=True, slots=True)
class Completed:
    """`position` is the last bound that was published before completion, None if there was none."""

    position: Key | None
    row_count: int


Progress = NotStarted | InProgress | Completed


def advance(progress: Progress, position: Key, rows_read: int) -> InProgress:
    """Raise the position after a snapshot read that did not reach the part's end.

    Raises: IllegalMove from Completed, or when the position does not rise, or for a negative count.
    """
    if isinstance(progress, Completed):
        raise IllegalMove(f"advance to {position} after completion")
    if isinstance(progress, InProgress) and order_key(position) <= order_key(progress.position):
        raise IllegalMove(f"position falls from {progress.position} to {position}")
    _check_count(rows_read)
    return InProgress(position, progress.row_count + rows_read)


def finish(progress: Progress, rows_read: int) -> Completed:
    """Complete a part whose last slice was read; an empty one completes from NotStarted.

    Raises: IllegalMove from Completed, or for a negative count.
    """
    if isinstance(progress, Completed):
        raise IllegalMove("finished twice")
    _check_count(rows_read)
    return Completed(progress.position, progress.row_count + rows_read)


def _check_count(rows_read: int) -> None:
    if rows_read < 0:
        raise IllegalMove(f"{rows_read} rows read")


def covers(progress: Progress, key: Key) -> bool:
    """True if the snapshot read has passed `key`, so that its live changes are visible."""
    match progress:
        case NotStarted():
            return False
        case InProgress(position, _):
            return order_key(key) <= order_key(position)
        case Completed():
            return True


def after_slice(progress: Progress, upto: Key | None, rows_read: int) -> Progress:
    """The progress once a slice that ends at `upto` (None: the part's end) was read."""
    return finish(progress, rows_read) if upto is None else advance(progress, upto, rows_read)


class Parts(Mapping[int, Progress]):
    """The progress of the started parts of a job, never changed, with its sums cached.

    They are needed several times a batch, also for finished jobs of some thousand parts.
    """

    def __init__(self, states: Mapping[int, Progress] | None = None) -> None:
        self._states = dict(states or {})

    def __getitem__(self, part: int) -> Progress:
        return self._states[part]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    @cached_property
    def done(self) -> int:
        """The number of parts that were read to their end."""
        return sum(isinstance(state, Completed) for state in self._states.values())

    @cached_property
    def row_count(self) -> int:
        return sum(state.row_count for state in self._states.values())


@dataclass(frozen=True, slots=True)
class AllDone(Mapping[int, Progress]):
    """The progress of a job whose every part is Completed, without positions and row counts.

    It is sent to each lane with each batch, so its size should not grow with the parts.
    """

    part_count: int

    def __getitem__(self, part: int) -> Progress:
        if 0 <= part < self.part_count:
            return _DONE
        raise KeyError(part)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.part_count))

    def __len__(self) -> int:
        return self.part_count


_DONE = Completed(None, 0)


def for_lanes(progress: Mapping[int, Progress], part_count: int) -> Mapping[int, Progress]:
    """The progress as it is sent to lanes: `AllDone` for a complete job."""
    return AllDone(part_count) if is_complete(progress, part_count) else progress


def of_parts(progress: Mapping[int, Progress], parts: Iterable[int]) -> Mapping[int, Progress]:
    """The progress of these parts; `AllDone` stays as it is, for any parts."""
    if isinstance(progress, AllDone):
        return progress
    return {part: progress[part] for part in parts if part in progress}


def is_complete(progress: Mapping[int, Progress], part_count: int) -> bool:
    """True if every part was read to its end."""
    return parts_done(progress) == part_count


def parts_done(progress: Mapping[int, Progress]) -> int:
    """The number of parts that were read to their end."""
    return progress.done if isinstance(progress, Parts) else Parts(progress).done


def rows_read(progress: Mapping[int, Progress]) -> int:
    """The number of rows that were read of all parts."""
    return progress.row_count if isinstance(progress, Parts) else Parts(progress).row_count

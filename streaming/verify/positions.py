"""The position of each vnode from the output's barriers, checked for consistency."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from schemas.position import Key
from schemas.records import VnodeProgress
from streaming.verify.findings import Findings, Rule
from streaming.verify.history import Closed


class PublishedParts(Protocol):
    """The parts that have positions: the vnodes of a table, or the partitions of an upstream."""

    vnode_count: int

    @property
    def name(self) -> str:
        """The word for a part in findings."""

    def partition_of(self, vnode: int) -> int:
        """The output partition that holds a part."""

    def position(self, text: str) -> Key:
        """The bound that a published position means. ValueError if it is none."""


@dataclass(slots=True)
class Standing:
    """`bound` None and not finished is −∞; finished is +∞, whatever the bound."""

    bound: Key | None = None
    finished: bool = False
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """The progress of one vnode in a barrier: its new position, and how many rows were read since the last one.

    `rows_claimed` is None where that can't be known: in a barrier that stands for others, too.
    """

    vnode: int
    standing: Standing
    rows_claimed: int | None


class Positions:
    """pos_v for every vnode, as published: the law is checked with that. Inconsistencies are reported."""

    def __init__(self, keys: PublishedParts, findings: Findings) -> None:
        self._keys, self._findings = keys, findings
        self._standings = [Standing() for _ in range(keys.vnode_count)]

    def covers(self, vnode: int, order: Key) -> bool:
        """True if a key is at or below the vnode's position."""
        standing = self._standings[vnode]
        return standing.finished or (standing.bound is not None and order <= standing.bound)

    def move(self, partition: int, closed: Closed) -> list[Move]:
        """Take the progress that a barrier of this partition carries."""
        moves: list[Move] = []
        seen: set[int] = set()
        for progress in closed.barrier.progress:
            vnode = progress.vnode
            if not 0 <= vnode < self._keys.vnode_count or self._keys.partition_of(vnode) != partition:
                self._invalid(
                    closed, vnode, "progress of this partition's vnodes", f"progress of vnode {vnode}"
                )
            elif vnode in seen:
                self._invalid(closed, vnode, "one entry a vnode", "a second one")
            else:
                seen.add(vnode)
                move = self._moved(progress, closed)
                if move is not None:
                    moves.append(replace(move, rows_claimed=None) if closed.joined else move)
        if closed.barrier.full:
            self._check_full(partition, closed, seen)
        return moves

    def expect_finished(self, partition: int, closed: Closed) -> None:
        """Report a vnode of this partition that is not finished with the barrier at which a job begins now."""
        for vnode, standing in enumerate(self._standings):
            if not standing.finished and self._keys.partition_of(vnode) == partition:
                self._invalid(closed, vnode, "all vnodes finished, as the job begins now", "one that is not")
                return

    def _check_full(self, partition: int, closed: Closed, listed: set[int]) -> None:
        for vnode in range(self._keys.vnode_count):
            if vnode not in listed and self._keys.partition_of(vnode) == partition:
                self._invalid(
                    closed, vnode, "a full barrier to list each vnode of its partition", "none of it"
                )
                return

    def _moved(self, progress: VnodeProgress, closed: Closed) -> Move | None:
        old = self._standings[progress.vnode]
        try:
            bound = None if progress.position is None else self._keys.position(progress.position)
        except ValueError:
            self._invalid(closed, progress.vnode, "a position of its kind as a JSON array", "another text")
            return None
        new = Standing(bound, progress.finished, progress.row_count)
        self._check(old, new, progress.vnode, closed)
        if old.finished:
            new.finished = True
        elif old.bound is not None and (bound is None or bound < old.bound):
            new.bound = old.bound  # what was sent stays sent: the law goes on with the higher bound
        self._standings[progress.vnode] = new
        return Move(progress.vnode, new, new.row_count - old.row_count)

    def _check(self, old: Standing, new: Standing, vnode: int, closed: Closed) -> None:
        if new == old and not closed.barrier.full:
            self._say(
                Rule.PROGRESS_UNCHANGED,
                closed,
                vnode,
                "only vnodes whose progress changed",
                "the same progress again",
            )
        if old.finished and not new.finished:
            self._say(Rule.FINISHED_UNSET, closed, vnode, "finished for good", "not finished")
        fell = new.bound < old.bound if new.bound and old.bound else bool(old.bound) and not new.finished
        if fell and not (old.finished and not new.finished):
            self._say(
                Rule.POSITION_FELL, closed, vnode, "a position that never falls", "a lower one than before"
            )

    def _invalid(self, closed: Closed, vnode: int, expected: str, found: str) -> None:
        self._say(Rule.PROGRESS_INVALID, closed, vnode, expected, found)

    def _say(self, rule: Rule, closed: Closed, vnode: int, expected: str, found: str) -> None:
        self._findings.of_output(rule, closed.where, expected, found, closed.barrier.curr, vnode)

    @property
    def finished(self) -> int:
        return sum(standing.finished for standing in self._standings)

    def first_unfinished(self) -> int | None:
        """The lowest vnode that is not finished."""
        open_vnodes = (vnode for vnode, standing in enumerate(self._standings) if not standing.finished)
        return next(open_vnodes, None)

    @property
    def in_progress(self) -> int:
        """The number of vnodes that have a position and are not finished."""
        return sum(standing.bound is not None and not standing.finished for standing in self._standings)

    @property
    def snapshot_rows(self) -> int:
        """Rows read by the snapshot so far, as published, filtered ones included."""
        return sum(standing.row_count for standing in self._standings)

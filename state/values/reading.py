"""Progress of reading a table from its database: which keys are read, and up to which key they are released.

    −∞ ═══ released ═══╡──── chunk ────┤── chunk ──┤ unread  ├── chunk ──┤   unread        +∞
                              S1            S2        S2          S3        S3

A chunk's rows are newer than the events that have arrived so far: its snapshot sees transactions whose events are still
on their way. It is *released* at the first barrier behind all of these; from then on its keys follow the events up to
each barrier. Chunks are released in key order, so one key is the end of what is released.

    read      a chunk is read, and staged
    due       by a proof, every event that the chunk's snapshot sees lies before some offsets, and a barrier does not
              end before them
    released  the batch of this barrier has brought the chunk's rows, as of the barrier, into the log

The proof has to come from the slot (`Streamed`). Events confirmed there are never sent again either, so that nothing
has to be remembered of a released chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.position import Key, order_key
from schemas.table import Column
from state.values.chunks import Chunk, KeyRange, Streamed, TransactionSnapshot


class IncompatibleChunkError(ValueError):
    """A chunk that does not continue the reading: by its keys, or by a snapshot older than the one before."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Keys that are still to be read, from the lower end on. Every snapshot of theirs to come `holds` `since`."""

    keys: KeyRange
    since: TransactionSnapshot


@dataclass(frozen=True, slots=True)
class TableRead:
    """The keys of a table, each in one of three: `released`, from −∞ on; `chunks`, and `unread`, both in key order.

    `released` None: no key is. `near` is the newest snapshot, by which numbers of transactions are widened.
    """

    released: KeyRange | None
    chunks: tuple[Chunk, ...]
    unread: tuple[Unread, ...]
    near: TransactionSnapshot

    @classmethod
    def begin(cls, first: TransactionSnapshot, bounds: Sequence[Key] = ()) -> TableRead:
        """Nothing was read. `bounds`, which rise, cut the keys into ranges that are read side by side.

        `first` has to be taken before any chunk is read, but only once events are known to come: every transaction
        that it does not see has its events among those that are read.
        """
        ends = [*bounds, None]
        ranges = [KeyRange(after, upto) for after, upto in zip([None, *bounds], ends, strict=True)]
        return cls(None, (), tuple(Unread(keys, first) for keys in ranges), first)

    @property
    def is_done(self) -> bool:
        """True once every key is released: then no event waits any more."""
        return self.released is not None and self.released.upto is None

    def read(self, chunk: Chunk) -> TableRead:
        """The reading with one more chunk. Raises: IncompatibleChunkError."""
        for index, rest in enumerate(self.unread):
            if chunk.keys.after == rest.keys.after:
                return self._read(chunk, rest, index)
        raise IncompatibleChunkError("a chunk that begins where nothing is to be read")

    def _read(self, chunk: Chunk, rest: Unread, index: int) -> TableRead:
        if not chunk.snapshot.holds(rest.since):
            raise IncompatibleChunkError("a chunk whose snapshot is older than that of the one before it")
        upto, end = chunk.keys.upto, rest.keys.upto
        left: tuple[Unread, ...] = ()
        if upto != end:
            if upto is None or (end is not None and order_key(upto) > order_key(end)):
                raise IncompatibleChunkError("a chunk that goes on behind its range")
            left = (Unread(KeyRange(upto, end), chunk.snapshot),)
        return replace(
            self,
            chunks=tuple(sorted((*self.chunks, chunk), key=_by_start)),
            unread=(*self.unread[:index], *left, *self.unread[index + 1 :]),
            near=chunk.snapshot if chunk.snapshot.xmax >= self.near.xmax else self.near,
        )

    def due(self, ends: Sequence[int], proofs: Iterable[Streamed], most_rows: int | None = None) -> int:
        """The number of `chunks`, from the first one, that may be released at a barrier with these exclusive ends.

        Proofs of any age count, because records never move. With `most_rows`, no more chunks than have so many rows
        together, but at least one.
        """
        proven = max((proof.lsn for proof in proofs if _lies_before(proof.ends, ends)), default=-1)
        count, rows, after = 0, 0, self.released
        for chunk in self.chunks:
            follows = chunk.keys.after == (None if after is None else after.upto)
            rows += chunk.rows
            too_many = most_rows is not None and rows > most_rows and count > 0
            if not follows or chunk.written_lsn > proven or too_many:
                break
            count, after = count + 1, chunk.keys
        return count

    def release(self, count: int) -> TableRead:
        """The reading after the first `count` of `chunks` were released. They have to be due."""
        if not count:
            return self
        upto = self.chunks[count - 1].keys.upto
        return replace(self, released=KeyRange(None, upto), chunks=self.chunks[count:])

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads back."""
        return {
            "released": None if self.released is None else self.released.to_list(),
            "chunks": [chunk.to_dict() for chunk in self.chunks],
            "unread": [[each.keys.to_list(), each.since.to_text()] for each in self.unread],
            "near": self.near.to_text(),
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> TableRead:
        """Read what `to_dict` gave."""
        released, snapshot = raw["released"], TransactionSnapshot.from_text
        return cls(
            None if released is None else KeyRange.from_list(released, key_columns),
            tuple(Chunk.from_dict(each, key_columns) for each in raw["chunks"]),
            tuple(
                Unread(KeyRange.from_list(keys, key_columns), snapshot(since))
                for keys, since in raw["unread"]
            ),
            snapshot(raw["near"]),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of a table, as a batch's plan holds it: the batch releases the first `due` chunks of `read`.

    `files[i]` are those with the rows of chunk i, `waiting` is the version of the table of events that wait. `read` is
    as of the barrier that the batch starts from, but for the chunks: those that were read by the time of its plan.
    """

    read: TableRead
    files: tuple[tuple[str, ...], ...]
    waiting: int
    due: int = 0

    def __post_init__(self) -> None:
        if len(self.files) != len(self.read.chunks) or not 0 <= self.due <= len(self.files):
            raise ValueError("chunks and their files that do not fit together")

    @property
    def due_files(self) -> tuple[str, ...]:
        """The files of all chunks that are released."""
        return tuple(file for files in self.files[: self.due] for file in files)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads back."""
        return {
            "read": self.read.to_dict(),
            "files": [list(each) for each in self.files],
            "waiting": self.waiting,
            "due": self.due,
        }

    @classmethod
    def from_dict(cls, raw: dict[str, Any], key_columns: Sequence[Column]) -> Reading:
        """Read what `to_dict` gave."""
        read = TableRead.from_dict(raw["read"], key_columns)
        return cls(read, tuple(map(tuple, raw["files"])), raw["waiting"], raw["due"])


def _by_start(chunk: Chunk) -> tuple[bool, Key]:
    """A sort key: chunks in key order."""
    after = chunk.keys.after
    return (False, ()) if after is None else (True, order_key(after))


def _lies_before(ends: Sequence[int], others: Sequence[int]) -> bool:
    return all(end <= other for end, other in zip(ends, others, strict=True))

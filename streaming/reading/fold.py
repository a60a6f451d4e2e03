"""A topic folded into its table, with what its barriers say about the backfill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Barrier, Change, Op, Row
from streaming.reading.records.forms import RowImages
from streaming.reading.topic import Record


@dataclass(slots=True)
class Tally:
    """Records counted by kind, how far each partition got, and which vnodes have finished."""

    counts: Counter[str] = field(default_factory=Counter)
    epochs: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def add(self, record: Record) -> None:
        """Count a record; those of a partition come in order."""
        if isinstance(record.body, Barrier):
            self.counts["barriers"] += 1
            self.epochs[record.partition] = record.epoch
            self.finished.update(item.vnode for item in record.body.progress if item.finished)
        else:
            self.counts[f"{record.body.op.name.lower()}s"] += 1


class TableFold:
    """The rows of the table after the changes so far.

    With rows before (`FULL`) a change that does not fit them is an error; else there is nothing to compare it with.
    """

    def __init__(
        self,
        rows_before: RowImages = RowImages.FULL,
        begins: Iterable[tuple[Key, Row]] = (),
        whole: Callable[[Row], Row] = lambda row: row,
    ) -> None:
        """`begins` are the rows that were there before the first change; `whole` as `RecordStream.whole`."""
        self._whole = whole
        self.rows: dict[Key, Row] = dict(begins)
        self._rows_before = rows_before

    def apply(self, key: Key, change: Change, where: str) -> None:
        """Raises: InputError INSERT_EXISTING_KEY, DELETE_MISSING_KEY (of UPDATE too), OLD_ROW_MISMATCH."""
        if self._rows_before is RowImages.FULL:
            self._check(self.rows.get(key), change, where)
        if change.after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = change.after

    def _check(self, present: Row | None, change: Change, where: str) -> None:
        if change.op is Op.INSERT and present is not None:
            raise _contradiction(Code.INSERT_EXISTING_KEY, where, "an INSERT of a key that is there")
        if change.op is not Op.INSERT and present is None:
            raise _contradiction(
                Code.DELETE_MISSING_KEY, where, f"{change.op.name} of a key that is not there"
            )
        rows = (None if row is None else self._whole(row) for row in (change.before, present))
        if not _same(*rows):
            raise _contradiction(Code.OLD_ROW_MISMATCH, where, "another row in `before` than the one there")


def _same(one: Row | None, other: Row | None) -> bool:
    """Equality of rows, with NaN equal to itself."""
    if one is None or other is None:
        return one is other
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def _contradiction(code: Code, where: str, found: str) -> InputError:
    return InputError(code, where=where, found=found)

"""Dead letters judged: each parked record is listed once, is really invalid, and nothing else was left out.

An invalid upstream record is no part of the table. A service that parks them says so in `<output>.dead-letters`, with
the record's place and bytes; the judge does not rely on that and checks the record itself:

    listed, invalid         left out of U(b), as the service did
    listed twice            DEAD_LETTER_DOUBLED
    listed, other bytes     DEAD_LETTER_DIFFERS
    listed, sound           DEAD_LETTER_UNFOUNDED: a change was withheld; not where an output is said to take no
                            record as long as its change (RECORD_TOO_LARGE), which depends on the output's limit then
    listed, nowhere         DEAD_LETTER_UNKNOWN
    invalid, not listed     DEAD_LETTER_MISSING: a record was skipped in silence

A job has letters from its start to the last barrier of its output. What was invalid before is in the letters of the
jobs that were open then. A batch becomes visible partition by partition, so a letter that is missing is looked for
once more at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from schemas.errors import Code, InputError
from schemas.records import RecordId
from schemas.table import TableSchema
from streaming.reading.entries import Place
from streaming.reading.values.avro_bytes import RowCodec
from streaming.verify.findings import Findings, Rule
from streaming.verify.history import PartitionHistory, TopicEntry

_PLACE = re.compile(r"(.+)-([0-9]{1,9})@([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class ListedLetter:
    """A record of the dead-letter topic; `place` and `code` are its headers of these names."""

    where: Place
    place: str
    key: bytes | None
    value: bytes | None
    code: str = ""

    @property
    def upstream_place(self) -> RecordId | None:
        """Partition and offset of the record that was parked, None if the header names none."""
        match = _PLACE.fullmatch(self.place)
        return None if match is None else (int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class _Unlisted:
    where: Place
    entry: TopicEntry
    reason: str


class DeadLetters:
    """The letters of one output.

    Make it before the ends of the topics are fixed, hand every upstream change to `sort`, call `settle` after each
    interval, and `close` at the end.
    `read` gives the letters there are. `elsewhere` are the places in the letters of other outputs; `named` those that
    an operator left out, which `sort` never gets to see. `are_empty`: they are those of a job that masks columns.
    """

    def __init__(
        self,
        table: TableSchema,
        findings: Findings,
        read: Callable[[], Iterable[ListedLetter]],
        elsewhere: frozenset[RecordId] = frozenset(),
        named: frozenset[RecordId] = frozenset(),
        *,
        are_empty: bool = False,
    ) -> None:
        self._table, self._findings, self._read = table, findings, read
        self._elsewhere, self._named, self._are_empty = elsewhere, named, are_empty
        self._rows, self._keys = RowCodec(table.columns), RowCodec(table.key_columns)
        self._unopened: dict[RecordId, ListedLetter] = {}
        self._seen: set[Place] = set()
        self._listed: set[RecordId] = set()
        self._open: list[_Unlisted] = []
        self._unlisted: list[_Unlisted] = []
        self._load()
        self._first = frozenset(self._unopened)

    def sort(
        self,
        partition: PartitionHistory,
        entry: TopicEntry,
        apply: Callable[[PartitionHistory, TopicEntry], None],
        *,
        due: bool,
    ) -> None:
        """Apply the change unless it was parked. `due`: the job had started, so it has letters.

        Raises: InputError as `apply`, for a record before the start that no letter names.
        """
        place, where = (partition.partition, entry.offset), partition.at(entry.offset)
        letter = self._unopened.pop(place, None)
        if letter is not None:
            self._judge(letter, where, entry)
            return
        if place in self._elsewhere:
            if due:
                self._open.append(_Unlisted(where, entry, "other outputs have its letter"))
            return
        try:
            apply(partition, entry)
        except InputError as error:
            if not due:
                raise
            self._open.append(_Unlisted(where, entry, error.code))

    def settle(self, *, judged: bool) -> None:
        """The interval is over; `judged`: the output has its barrier, so its letters are due."""
        if judged:
            self._unlisted += self._open
        self._open.clear()

    def close(self) -> None:
        """Add findings for missing letters, and for letters whose record is not known."""
        if self._unlisted:
            self._load()
        for unlisted in self._unlisted:
            place = unlisted.where.partition, unlisted.entry.offset
            letter = self._unopened.pop(place, None)
            if letter is not None:
                self._judge(letter, unlisted.where, unlisted.entry)
            else:
                found = f"none for a record at fault ({unlisted.reason})"
                self._findings.of_output(Rule.DEAD_LETTER_MISSING, unlisted.where, "a letter", found)
        for place in sorted(self._first & self._unopened.keys() - self._named):
            self._unknown(self._unopened[place])

    def _load(self) -> None:
        for letter in self._read():
            if letter.where in self._seen:
                continue
            self._seen.add(letter.where)
            place = letter.upstream_place
            if place is None:
                self._unknown(letter)
            elif place in self._listed:
                expected, found = "each parked record once", f"{letter.place} a second time"
                self._findings.of_output(Rule.DEAD_LETTER_DOUBLED, letter.where, expected, found)
            else:
                self._listed.add(place)
                self._unopened[place] = letter

    def _judge(self, letter: ListedLetter, where: Place, entry: TopicEntry) -> None:
        wanted = (None, None) if self._are_empty else (entry.key, entry.value)
        if letter.place != str(where) or (letter.key, letter.value) != wanted:
            expected = f"no bytes of {where}" if self._are_empty else f"the bytes of {where}"
            self._findings.of_output(Rule.DEAD_LETTER_DIFFERS, letter.where, expected, "others")
        if letter.code != Code.RECORD_TOO_LARGE and self._is_sound(entry):
            found = f"a sound one at {where}"
            self._findings.of_output(Rule.DEAD_LETTER_UNFOUNDED, letter.where, "a record at fault", found)

    def _is_sound(self, entry: TopicEntry) -> bool:
        """True if a record by itself is valid by the contract."""
        if entry.change is None:
            return False
        key, *rows = entry.change
        keys = {self._table.key_of(self._rows.row(row)) for row in rows if row is not None}
        return keys == {self._keys.row(key or b"") if self._table.has_key else ()}

    def _unknown(self, letter: ListedLetter) -> None:
        expected = "the place of an upstream record after the job's start"
        self._findings.of_output(Rule.DEAD_LETTER_UNKNOWN, letter.where, expected, ascii(letter.place[:100]))

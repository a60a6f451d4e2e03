"""Barriers in the data, in Avro, and in a topic of their own, in JSON (docs/contract.md#barriers)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

from schemas.errors import Code, InputError
from schemas.records import (
    Add,
    Barrier,
    BarrierKind,
    Drop,
    Lanes,
    Mutation,
    Other,
    Pause,
    Resume,
    Stop,
    Throttle,
    VnodeProgress,
)
from streaming.reading.entries import Place, Source, TopicEntry
from streaming.reading.values.avro_bytes import MAX_ITEMS, AvroCursor
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import JsonObject, as_object, compact, parsed, text_of
from streaming.reading.values.json_values import whole

MAX_BARRIER_BYTES = 16 << 20
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_EPOCH = re.compile(r"0|[1-9][0-9]{0,18}")
_MS_OF_YEARS = range(-62_135_596_800_000, 253_402_300_800_000)
_MUTATIONS: dict[str, tuple[type, tuple[str, ...]]] = {
    "Add": (Add, ("job",)),
    "Drop": (Drop, ("job",)),
    "Pause": (Pause, ("job",)),
    "Resume": (Resume, ("job",)),
    "Throttle": (Throttle, ("job", "rate_limit")),
    "Stop": (Stop, ()),
    "Other": (Other, ("name", "value")),
}
"""In the order of the union in Avro, behind null; with their fields."""
_OPTIONAL = {"Pause", "Resume"}
"""Their job may be null; so may every rate limit."""


class _BarrierError(InvalidRecordError):
    """The reason why a record is no barrier; BARRIER_MALFORMED unless it says another code."""


def read_barrier(header: bytes | None, value: bytes | None, *, where: str | None = None) -> Barrier:
    """A barrier in the data, from its header and value, which must agree.

    Raises: InputError: BARRIER_MALFORMED; BARRIER_UNSUPPORTED for a kind or a mutation that is not known; AVRO_LIMIT.
    """
    try:
        if value is None:
            raise _BarrierError("null value")
        if len(value) > MAX_BARRIER_BYTES:
            raise _BarrierError("more than a barrier can have", Code.AVRO_LIMIT)
        barrier = _from_avro(AvroCursor(value, most_items=MAX_ITEMS))
        _check(barrier, header)
    except InvalidRecordError as reason:
        known = (Code.AVRO_LIMIT, Code.BARRIER_UNSUPPORTED)
        raise InputError(
            reason.code if reason.code in known else Code.BARRIER_MALFORMED,
            where=where,
            found=f"a record with the header `barrier` that is no barrier ({reason})",
        ) from None
    return barrier


def _check(barrier: Barrier, header: bytes | None) -> None:
    if header != str(barrier.curr).encode():
        raise _BarrierError("header and value name different epochs")
    if not barrier.curr > barrier.prev >= 0:
        raise _BarrierError("curr is not above prev")
    if not 1 <= barrier.partitions <= _INT_MAX:
        raise _BarrierError("partitions is below 1 or no int")


def _from_avro(cursor: AvroCursor) -> Barrier:
    curr, prev, kind = cursor.long(), cursor.long(), _choice(cursor, len(BarrierKind))
    partitions, injected_at_ms = cursor.integer(), cursor.long()
    if injected_at_ms not in _MS_OF_YEARS:
        raise _BarrierError("a time outside of the years 1 to 9999")
    mutation, progress = _mutation_from_avro(cursor), cursor.blocks(_progress_from_avro)
    cursor.end()
    return Barrier(curr, prev, BarrierKind(kind), partitions, injected_at_ms, mutation, tuple(progress))


def _choice(cursor: AvroCursor, count: int) -> int:
    number = cursor.integer()
    if not 0 <= number < count:
        raise _BarrierError(f"number {number} where 0..{count - 1} exist", Code.BARRIER_UNSUPPORTED)
    return number


def _optional(cursor: AvroCursor, read: Callable[[AvroCursor], Any]) -> Any:
    return read(cursor) if cursor.choice(2) else None


def _mutation_from_avro(cursor: AvroCursor) -> Mutation | None:
    number = _choice(cursor, len(_MUTATIONS) + 1)
    if number == 0:
        return None
    name = list(_MUTATIONS)[number - 1]

    def read(field: str) -> Any:
        if field == "rate_limit":
            return _optional(cursor, AvroCursor.long)
        return _optional(cursor, AvroCursor.string) if name in _OPTIONAL else cursor.string()

    mutation = _mutation(name, read)
    return _named(mutation.name, mutation.value) if isinstance(mutation, Other) else mutation


def _mutation(name: str, read: Callable[[str], Any]) -> Mutation:
    make, fields = _MUTATIONS[name]
    mutation: Mutation = make(**{field: read(field) for field in fields})
    return mutation


def _named(name: str, text: str) -> Mutation:
    """A mutation of the union's last branch. One that is not known here is left as it is."""
    given = parsed(text)
    if name in _MUTATIONS:
        raise _BarrierError("a mutation that has a branch of its own")
    return _lanes(given) if name == "Lanes" else Other(name, text)


def _lanes(given: object) -> Lanes:
    fields = dict(as_object(given))
    if set(fields) != {"lanes"}:
        raise _BarrierError("Lanes with other fields than its own")
    return Lanes(_whole(fields, "lanes", -_LONG_MAX - 1, _LONG_MAX))


def _progress_from_avro(cursor: AvroCursor) -> VnodeProgress:
    return VnodeProgress(
        cursor.integer(), _optional(cursor, AvroCursor.string), cursor.boolean(), cursor.long()
    )


# In a topic of their own.


class SeparateBarrier(NamedTuple):
    """A barrier of one data partition, and the exclusive end of its interval there."""

    barrier: Barrier
    end: int


def read_separate_barrier(
    header: bytes | None, key: bytes | None, value: bytes | None, *, partition: int, where: str | None = None
) -> SeparateBarrier:
    """A record of a barrier topic. Its three parts must agree. Raises: InputError, as `read_barrier`."""
    size = len(value or b"")
    if size > MAX_BARRIER_BYTES:
        found = f"a barrier of {size} bytes"
        raise InputError(Code.AVRO_LIMIT, where=where, found=found, expected=f"at most {MAX_BARRIER_BYTES}")
    try:
        separate = _from_json(as_object(parsed(text_of(value or b""))))
        _check(separate.barrier, header)
        if key != str(partition).encode():
            raise _BarrierError("the key is not the partition's number")
    except InvalidRecordError as reason:
        raise InputError(
            Code.BARRIER_UNSUPPORTED if reason.code is Code.BARRIER_UNSUPPORTED else Code.BARRIER_MALFORMED,
            where=where,
            found=f"a record with the header `barrier` that is no barrier of a barrier topic ({reason})",
            expected="header = curr in decimal, key = the partition's number, value = JSON of a barrier with its end",
            next_step="correct what writes this topic; another `barrier_topic` begins with a new state",
        ) from None
    return separate


def _from_json(fields: JsonObject) -> SeparateBarrier:
    value = dict(fields)
    kind, mutation = _field(value, "kind", str), _field(value, "mutation", tuple, null=True)
    if kind not in BarrierKind.__members__:
        raise _BarrierError("kind: another text")
    barrier = Barrier(
        curr=_epoch(value, "curr"),
        prev=_epoch(value, "prev"),
        kind=BarrierKind[kind],
        partitions=_whole(value, "partitions", 1, _INT_MAX),
        injected_at_ms=_whole(value, "injected_at", -_LONG_MAX, _LONG_MAX),
        mutation=None if mutation is None else _mutation_from_json(mutation),
        progress=tuple(
            _progress_from_json(dict(as_object(each))) for each in _field(value, "progress", list)
        ),
        full="full" in value and _field(value, "full", bool),
        columns=tuple(_columns_from_json(value)),
    )
    return SeparateBarrier(barrier, _whole(value, "end", 0, _LONG_MAX))


def _field(value: Mapping[str, Any], name: str, kind: type, *, null: bool = False) -> Any:
    """A field of exactly this type. Fields that are not asked for are ignored: a later version may write them."""
    found = value.get(name)
    if type(found) is not kind and not (null and found is None and name in value):
        raise _BarrierError(f"{name}: no {'object' if kind is tuple else kind.__name__}")
    return found


def _epoch(value: Mapping[str, Any], name: str) -> int:
    text = _field(value, name, str)
    if not _EPOCH.fullmatch(text) or int(text) > _LONG_MAX:
        raise _BarrierError(f"{name}: no epoch in decimal")
    return int(text)


def _whole(value: Mapping[str, Any], name: str, least: int, most: int) -> int:
    try:
        number = whole(value.get(name), _LONG_MAX + 1)
    except (ValueError, OverflowError):
        number = least - 1
    if not least <= number <= most:
        raise _BarrierError(f"{name}: no whole number from {least} to {most}")
    return number


def _progress_from_json(value: Mapping[str, Any]) -> VnodeProgress:
    return VnodeProgress(
        _whole(value, "vnode", 0, _INT_MAX),
        _field(value, "position", str, null=True),
        _field(value, "finished", bool),
        _whole(value, "row_count", 0, _LONG_MAX),
    )


def _columns_from_json(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The columns that an output has got, each with its type and fill as JSON."""
    for name, announced in _field(value, "columns", tuple) if "columns" in value else ():
        fields = dict(as_object(announced))
        _field(fields, "type", str)
        if "fill" not in fields:
            raise _BarrierError("columns: one without its fill")
        more = (("incomplete", True),) if fields.get("incomplete") is True else ()
        yield name, compact((("type", fields["type"]), ("fill", fields["fill"]), *more))


def _mutation_from_json(value: JsonObject) -> Mutation:
    if len(value) != 1:
        raise _BarrierError(f"a mutation with {len(value)} names")
    [(name, given)] = value
    if name == "Lanes":
        return _lanes(given)
    if name not in _MUTATIONS or name == "Other":
        return Other(name, compact(given))
    fields = dict(as_object(given))
    if set(fields) != set(_MUTATIONS[name][1]):
        raise _BarrierError(f"{name} with other fields than its own")

    def read(field: str) -> Any:
        if field != "rate_limit":
            return _field(fields, field, str, null=name in _OPTIONAL)
        return None if fields[field] is None else _whole(fields, field, -_LONG_MAX - 1, _LONG_MAX)

    return _mutation(name, read)


class MovableSource(Source, Protocol):
    """A source whose end goes by that of its barriers."""

    def settle(self) -> bool:
        """Move the end behind all that is in the partition now, once that is decided; True if it has moved."""


class MergedSource:
    """One partition of the data merged with that of its barrier topic: each barrier behind the last of its interval.

    `topic` and `partition` are the barriers'. `begin`: the first offset of the data that counts; barriers that end
    before it are left out. `on_barrier` gets each barrier before the data that it closes; data is held until then.
    """

    def __init__(
        self,
        data: MovableSource,
        barriers: Source,
        topic: str,
        partition: int,
        *,
        begin: int = 0,
        reaches: Callable[[int], bool] = lambda _: True,
        on_barrier: Callable[[Barrier], None] | None = None,
    ) -> None:
        self._on_barrier = on_barrier
        self._data, self._barriers, self._begin = data, barriers, begin
        self._topic, self._partition, self._reaches = topic, partition, reaches
        self._held_barrier: TopicEntry | None = None
        self._records = data.entries()
        self._held: TopicEntry | None = None

    def entries(self) -> Iterator[TopicEntry]:
        """The barriers, each behind the data that it closes, and in the end the data that none closes.

        Raises: InputError for a record of the barrier topic that is marked as a barrier and is none.
        """
        held, self._held_barrier = self._held_barrier, None
        for record in chain([held] if held else [], self._barriers.entries()):
            if record.barrier is None:
                continue
            where = str(Place(self._topic, self._partition, record.offset))
            found = read_separate_barrier(
                record.barrier, record.key, record.value, partition=self._partition, where=where
            )
            if found.end < self._begin:
                continue
            if self._on_barrier is not None:
                self._on_barrier(found.barrier)
            yield from self._below(found.end)
            if not self._reaches(found.end):
                self._held_barrier = record
                return
            yield record._replace(key=None, value=None, closes=found.barrier)
        if self._on_barrier is None:
            yield from self._below(None)

    def _below(self, end: int | None) -> Iterator[TopicEntry]:
        """The data before an offset; the first record behind it is held for the next interval."""
        while True:
            record = self._held or next(self._records, None)
            self._held = None
            if record is None:
                return
            if end is not None and record.offset >= end:
                self._held = record
                return
            yield record._replace(barrier=None)  # such a header is the owner's

    def extend(self) -> bool:
        """The barriers, as far as they have grown, with the data that these close."""
        grown = self._barriers.extend()
        if grown and self._data.settle():
            self.follow()
        return grown

    def follow(self) -> None:
        """Go on with the data, whose end was moved."""
        self._records = self._data.entries()

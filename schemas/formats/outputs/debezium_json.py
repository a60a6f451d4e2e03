"""The strict reference of the output format `debezium` in JSON: events, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.codec.json.text import fields_in
from schemas.errors import Code
from schemas.formats.outputs.envelope import CONNECTOR, OPS, event_frame, source, tail
from schemas.formats.outputs.halves import EventRows, Events
from schemas.formats.outputs.json_records import JsonKeyRows, error, payload_of, read_row, same
from schemas.formats.protocol import Origin
from schemas.json.parsing.tokens import JsonError, Kind, Token
from schemas.json.written import Encoding, written_row
from schemas.records import Barrier, BarrierKind, Change, Row
from schemas.table import Column

_PARTS = ["before", "after", "source", "op", "ts_ms"]


def json_event_rows(
    columns: Sequence[Column], key_columns: Sequence[Column], encoding: Encoding, *, tombstones: bool
) -> EventRows:
    """The reference implementation."""
    keys, events = JsonKeyRows(key_columns, encoding), JsonEvents(columns, encoding)
    return EventRows(columns, keys, events, tombstones=tombstones)


class JsonEvents(Events):
    """Reads an event by writing it again from its content, and comparing: any other form is refused."""

    def __init__(self, columns: Sequence[Column], encoding: Encoding) -> None:
        self._columns, self._encoding = tuple(columns), encoding

    def read(self, data: bytes, where: str | None) -> Change:
        """Raises: InputError: JSON_MALFORMED, UNKNOWN_OP, VALUE_OUT_OF_RANGE, BAD_ENCODING."""
        try:
            return self._change(data)
        except JsonError as reason:
            raise error(reason, "a value", where) from None

    def _change(self, value: bytes) -> Change:
        fields = payload_of(value, event_frame(self._columns, self._encoding))
        if [name for name, _ in fields] != _PARTS:
            raise JsonError("other fields than an event's")
        tokens = dict(fields)
        letter = tokens["op"].text
        if letter not in OPS or tokens["op"].kind is not Kind.TEXT:
            raise JsonError("an op that is none of r, c, u and d", Code.UNKNOWN_OP)
        before, after = (self._row(tokens[half]) for half in ("before", "after"))
        change = Change(OPS[letter], before, after)
        if not change.is_well_formed():
            raise JsonError(f"an event {letter} with other rows than it has")
        origin, by = _origin(tokens["source"])
        same(value, self.write(letter, change, origin, by))
        return change

    def _row(self, token: Token) -> Row | None:
        if token.kind is Kind.NULL:
            return None
        return read_row(fields_in(token), self._columns, self._encoding)

    def write(self, letter: str, change: Change, origin: Origin, by: str) -> bytes:
        before, after = (
            "null" if row is None else written_row(row, self._columns, self._encoding)
            for row in (change.before, change.after)
        )
        rows = f'{{"before":{before},"after":{after}'
        behind = source(origin.job, origin.table, letter, origin.barrier, by) + str(origin.part)
        begin, end = event_frame(self._columns, self._encoding)
        return begin + (rows + behind + tail(letter, origin.barrier)).encode() + end


_SOURCE = ["version", "connector", "name", "ts_ms", "snapshot", "db", "table", "epoch", "vnode"]
_TEXTS = ("version", "name", "table", "epoch")
_NUMBERS = ("ts_ms", "vnode")


def _origin(token: Token) -> tuple[Origin, str]:
    """The origin in an event's source, and the version that wrote it. Raises: JsonError."""
    fields = fields_in(token)
    if [name for name, _ in fields] != _SOURCE:
        raise JsonError("other fields than a source's")
    found = dict(fields)
    texts = [found[name].text for name in _TEXTS if found[name].kind is Kind.TEXT]
    numbers = [int(found[name].text) for name in _NUMBERS if found[name].kind is Kind.INTEGER]
    if len(texts) != len(_TEXTS) or len(numbers) != len(_NUMBERS) or found["connector"].text != CONNECTOR:
        raise JsonError(f"a source that is not of {CONNECTOR}")
    by, job, table, epoch = texts
    if not (epoch.isascii() and epoch.isdigit()):
        raise JsonError("an epoch that is no number")
    barrier = Barrier(int(epoch), 0, BarrierKind.BARRIER, 1, numbers[0])
    return Origin(job, table, numbers[1], barrier), by

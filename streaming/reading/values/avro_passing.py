"""Values of a writer's schema that are passed over: their bytes are checked, and nothing is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming.reading.values.avro_bytes import AvroCursor, FieldReader
from streaming.reading.values.writer_schemas import AvroSchema


def _of_size(size: int) -> FieldReader:
    return lambda cursor: cursor.take(size)


class PassingReaders:
    """Goes over values that are not read. One that contains itself is a step that leads to itself."""

    def __init__(self) -> None:
        self._known: dict[int, list[FieldReader]] = {}

    def over(self, schema: AvroSchema) -> FieldReader:
        """Goes over a value of this type."""
        if has_no_bytes(schema, {}):
            return lambda _: None
        match schema:
            case list():
                branches = [self.over(branch) for branch in schema]
                return lambda cursor: cursor.nested(branches[cursor.choice(len(branches))])
            case {"type": "record" | "error", "fields": fields}:
                return self._over_record(schema, [each["type"] for each in fields])
            case {"type": "enum", "symbols": symbols}:
                return lambda cursor: cursor.choice(len(symbols))
            case {"type": "fixed", "size": size}:
                return _of_size(size)
            case {"type": "array", "items": items}:
                return _over_blocks(self.over(items))
            case {"type": "map", "values": values}:
                value = self.over(values)
                return _over_blocks(lambda cursor: (cursor.bytes(), value(cursor)))
            case {"type": inner}:
                return self.over(inner)
        return _PLAIN[schema]

    def _over_record(self, schema: Any, fields: Sequence[AvroSchema]) -> FieldReader:
        steps = self._known.get(id(schema))
        if steps is None:
            steps = self._known[id(schema)] = []
            steps += [self.over(field) for field in fields]
        own = steps

        def record(cursor: AvroCursor) -> None:
            for step in own:
                cursor.nested(step)

        return record


def _over_blocks(item: FieldReader) -> FieldReader:
    return lambda cursor: cursor.blocks(lambda inner: inner.nested(item))


_PLAIN: dict[str, FieldReader] = {
    "boolean": AvroCursor.boolean,
    "int": AvroCursor.long,
    "long": AvroCursor.long,
    "float": _of_size(4),
    "double": _of_size(8),
    "bytes": AvroCursor.bytes,
    "string": AvroCursor.bytes,
}


def has_no_bytes(schema: AvroSchema, known: dict[int, bool]) -> bool:
    """True where every value of a type is written as nothing."""
    match schema:
        case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case {"type": "record" | "error", "fields": fields}:
            if id(schema) not in known:
                known[id(schema)] = False  # one that contains itself never ends
                known[id(schema)] = all(has_no_bytes(field["type"], known) for field in fields)
            return known[id(schema)]
        case {"type": dict() as inner}:
            return has_no_bytes(inner, known)
    return False


def is_unbounded(schema: AvroSchema, inside: frozenset[int] = frozenset()) -> bool:
    """True where few bytes may ask for any number of steps: a type that contains itself, or a list of nothing."""
    match schema:
        case list():
            return any(is_unbounded(branch, inside) for branch in schema)
        case {"type": "record" | "error", "fields": fields}:
            if id(schema) in inside:
                return True
            return any(is_unbounded(field["type"], inside | {id(schema)}) for field in fields)
        case {"type": "array", "items": items}:
            return has_no_bytes(items, {}) or is_unbounded(items, inside)
        case {"type": "map", "values": values}:
            return is_unbounded(values, inside)
        case {"type": dict() | list() as inner}:
            return is_unbounded(inner, inside)
    return False

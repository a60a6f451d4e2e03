"""The frame that Kafka Connect puts around a key or value in JSON: `{"schema": ..., "payload": ...}`.

It is ten times as long as most rows, and the same in most records: one that was seen is compared and not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from schemas.codec.json.text import fields_in, read_object
from schemas.json.parsing.field_schemas import FieldSchema, field_schemas
from schemas.json.parsing.tokens import Fields, JsonError, Kind, Token

FRAMED = '{"schema"'
"""The first bytes of a key or value that comes with its schema, as Kafka Connect writes it."""
FRAME_PARTS = ("schema", "payload")
_PAYLOAD = '"payload":'
_MOST_FRAMES = 64
"""The number of frames that are remembered: one for each table and version of it."""
_MISSING = Token(Kind.BOOLEAN, "false")
"""The marker for a missing payload: neither an object nor null."""

ShapeT = TypeVar("ShapeT")


@dataclass(frozen=True)
class Frame(Generic[ShapeT]):
    """The text before a payload, and how payloads with the schemas in it are decoded."""

    begin: str
    shape: ShapeT

    def holds(self, text: str) -> bool:
        """True if a text has this frame, as far as can be seen without reading its payload."""
        return text.startswith(self.begin) and text.endswith("}")

    @property
    def size(self) -> int:
        """Bytes before the payload."""
        return len(self.begin.encode())


@dataclass
class Frames(Generic[ShapeT]):
    """The frames of the keys or values of a topic. `image`: the field whose schema describes the columns."""

    image: str | None = None
    _last: Frame[ShapeT] | None = None
    _known: dict[str, Frame[ShapeT] | None] = field(default_factory=dict)

    def frame_of(
        self, text: str, shape: Callable[[Mapping[str, FieldSchema]], ShapeT | None]
    ) -> Frame[ShapeT] | None:
        """The frame of a text that begins as one; None where it is not certain, or has no shape."""
        if self._last is not None and self._last.holds(text):
            return self._last
        begin = "".join(text.partition(_PAYLOAD)[:2])
        if begin not in self._known:
            if len(self._known) >= _MOST_FRAMES:
                self._known.clear()
            schemas = schemas_before(begin, self.image)
            made = None if schemas is None else shape(schemas)
            self._known[begin] = None if made is None else Frame(begin, made)
        found = self._known[begin]
        if found is None or not found.holds(text):
            return None
        self._last = found
        return found


def schemas_before(begin: str, image: str | None) -> Mapping[str, FieldSchema] | None:
    """The schemas in the text before a payload; None if it is not certain that the payload begins behind it."""
    try:
        parts = read_object(begin + "null}")
        if tuple(name for name, _ in parts) != FRAME_PARTS or parts[1][1].kind is not Kind.NULL:
            return None
        return field_schemas(parts[0][1], image)
    except JsonError:
        return None


def unframed(fields: Fields, image: str | None) -> tuple[Fields | None, Mapping[str, FieldSchema]]:
    """The fields of a frame's payload, None for null, and their schemas.

    Raises: JsonError; SCHEMA_INCOMPATIBLE as `field_schemas`.
    """
    parts = dict(fields)
    if len(parts) < len(fields):
        raise JsonError("a part of its frame that comes twice")
    schemas = field_schemas(parts["schema"], image)
    payload = parts.get("payload", _MISSING)
    return (None if payload.kind is Kind.NULL else fields_in(payload)), schemas


def is_frame(fields: Fields) -> bool:
    """True if an object is a frame and nothing else."""
    return len(fields) == len(FRAME_PARTS) and {name for name, _ in fields} == set(FRAME_PARTS)

"""What Kafka Connect puts around a key or value in JSON: `{"schema": ..., "payload": ...}`."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.json.parsing.field_schemas import NO_SCHEMAS, FieldSchema, field_schemas
from schemas.json.parsing.scan import fields_in, read_object
from schemas.json.parsing.tokens import MAX_DEPTH, Fields, JsonError, Kind, Token

FRAMED = '{"schema"'
"""The first bytes of a key or value that comes with its schema."""

_MISSING = Token(Kind.BOOLEAN, "false")
"""In place of a payload that is not there: no object, and no null."""
_PARTS = ["schema", "payload"]
_PAYLOAD = b'"payload":'


class Frames:
    """Takes the records of one topic out of their frames, and reads the schemas of the fields in `half`, or of all.

    A frame is ten times as long as most rows, and the same in most records: one that came before is not read again.
    """

    def __init__(self, half: str | None = None) -> None:
        self._half = half
        self._begin = b""
        self._schemas = NO_SCHEMAS

    def unframed(self, data: bytes) -> tuple[Fields | None, Mapping[str, FieldSchema]]:
        """The payload's fields, None for null, and their schemas in the frame, if there is one.

        Raises: JsonError; SCHEMA_INCOMPATIBLE as `field_schemas`.
        """
        if not data.startswith(FRAMED.encode()):
            return read_object(data), NO_SCHEMAS
        if self._is_known(data):
            try:
                return read_object(data[len(self._begin) : -1]), self._schemas
            except JsonError:
                pass  # with its frame it may be wrong in another way
        fields = read_object(data)
        parts = dict(fields)
        if len(parts) < len(fields):
            raise JsonError("a part of its frame that comes twice")
        schemas = field_schemas(parts["schema"], self._half)
        payload = parts.get("payload", _MISSING)
        if payload.kind is Kind.NULL:
            return None, schemas
        self._remember(data)
        return fields_in(payload), schemas

    def _is_known(self, data: bytes) -> bool:
        if not self._begin or not (data.startswith(self._begin) and data.endswith(b"}")):
            return False
        return data.count(b"{") + data.count(b"[") < MAX_DEPTH  # how deep it lies counts

    def _remember(self, data: bytes) -> None:
        found = begin_of_payload(data, self._half)
        if found is not None:
            self._begin, self._schemas = found


def begin_of_payload(data: bytes, half: str | None) -> tuple[bytes, Mapping[str, FieldSchema]] | None:
    """The bytes before a record's payload, and the schemas in them; None if it is not certain that they end there."""
    begin = b"".join(data.partition(_PAYLOAD)[:2])
    try:
        parts = read_object(begin + b"null}")
        if [name for name, _ in parts] != _PARTS or parts[1][1].kind is not Kind.NULL:
            return None
        return begin, field_schemas(parts[0][1], half)
    except JsonError:
        return None

"""Records in the framing of Confluent's schema registry: a zero byte, a schema's id, and Avro by that schema.

The id is a 32-bit number, big-endian. What it names never changes, so whatever was learnt of an id holds for good.
(docs.confluent.io: Schema Registry, "Wire format".)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

MAGIC = 0
FRAME_BYTES = 5
"""The length, in bytes, of the frame in front of a record."""
MAX_SCHEMA_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The registry's ids for the schemas of an output's keys and values. Those of keys hold for the life of the output.

    `earlier` are those of values from before columns were added, each behind the number of columns that it has.
    """

    key: int
    value: int
    earlier: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema as the registry has it. `references` are the texts that it builds upon, each after its own."""

    id: int
    text: str
    kind: str = "AVRO"
    references: tuple[str, ...] = ()


class Schemas(Protocol):
    """A lookup of schemas by id."""

    def get(self, schema_id: int) -> WriterSchema | None:
        """None for an id without a schema. May raise what asking for it raises."""


@dataclass(frozen=True)
class KnownSchemas(Schemas):
    """The known schemas, as a value that goes to lanes. `refused` are ids that the registry does not know."""

    schemas: tuple[WriterSchema, ...] = ()
    refused: frozenset[int] = field(default_factory=frozenset)

    def __getstate__(self) -> dict[str, object]:
        return {"schemas": self.schemas, "refused": self.refused}

    @cached_property
    def _by_id(self) -> dict[int, WriterSchema]:
        return {schema.id: schema for schema in self.schemas}

    def get(self, schema_id: int) -> WriterSchema | None:
        """None for what is not among them."""
        return self._by_id.get(schema_id)

    def unanswered(self, ids: Iterable[int]) -> frozenset[int]:
        """The ids of these for which the registry has not been asked yet."""
        return frozenset(ids) - self._by_id.keys() - self.refused


def frame(schema_id: int) -> bytes:
    """The bytes in front of a record of this schema."""
    return bytes([MAGIC]) + schema_id.to_bytes(FRAME_BYTES - 1, "big")


def framed_id(data: bytes) -> int | None:
    """The id in front of a record, None where there is none."""
    if len(data) < FRAME_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:FRAME_BYTES], "big")

"""The schemas of a service: those of its state, and further ones of the registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import structlog

from schemas.avro.registered import KnownSchemas, Schemas, WriterSchema
from schemas.errors import BackfillError
from schemas.formats.protocol import Format, Framed, Half
from schemas.table import TableSchema
from state.small_files import SchemaFiles
from streaming.registry.client import Registry

_ASKED, _PAUSE_S = 3, 1.0
"""Requests before an id counts as unknown: of a registry's nodes only some may have a new one yet."""

log = structlog.get_logger(__name__)


class SchemaBook:
    """The schemas of one state. `learn` waits for the registry; nothing else does."""

    def __init__(
        self,
        registry: Registry,
        files: SchemaFiles,
        *,
        refuse: Callable[[WriterSchema], None] = lambda schema: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`refuse` raises for a schema that is not to be learnt."""
        self._registry, self._files, self._refuse, self._sleep = registry, files, refuse, sleep
        self.known = KnownSchemas(files.read())

    def learn(self, ids: Iterable[int]) -> KnownSchemas:
        """All known schemas, with these `ids` added; ids that the registry lacks are `refused` in the result.

        Raises: EnvironmentProblem, ConfigError, as `Registry.schema`, and as `refuse`; schemas learnt before the error
        are kept.
        """
        refused = set(ids) - {schema.id for schema in self.known.schemas}
        for attempt in range(_ASKED):
            for schema_id in sorted(refused):
                schema = self._registry.schema(schema_id)
                if schema is not None:
                    self._keep(schema)
                    refused.discard(schema_id)
            if not refused or attempt == _ASKED - 1:
                break
            self._sleep(_PAUSE_S)
        return replace(self.known, refused=frozenset(refused))

    def learn_newest(self, topic: str, framed: Framed) -> None:
        """Add the newest schemas of a topic, so that the first records need not wait for theirs.

        Errors are ignored: subjects may have other names, and an unreachable registry is no error yet.
        """
        with suppress(BackfillError):
            for subject in subjects(topic, framed).values():
                schema = self._registry.newest(subject)
                if schema is not None and self.known.get(schema.id) is None:
                    self._keep(schema)

    def _keep(self, schema: WriterSchema) -> None:
        self._refuse(schema)
        self._files.write(schema)
        schemas = sorted((*self.known.schemas, schema), key=lambda each: each.id)
        self.known = KnownSchemas(tuple(schemas))
        log.info("schema_learnt", id=schema.id)


def subjects(topic: str, framed: Framed) -> dict[Half, str]:
    """The default subjects of a topic's schemas, for the key and the value of records, if these are framed."""
    halves: dict[Half, bool] = {"key": framed.key, "value": framed.value}
    return {half: f"{topic}-{half}" for half, is_framed in halves.items() if is_framed}


def schema_faults(registry: Registry, topic: str, format_: Format, table: TableSchema) -> Iterator[str]:
    """Faults of the newest schemas of a topic, one line each; none for a format without schemas by id."""
    for half, subject in subjects(topic, format_.framed).items():
        try:
            schema = registry.newest(subject)
        except BackfillError as error:
            yield str(error)
            return
        if schema is None:
            yield f"the registry has no subject {subject}; schemas are looked up by id as records come"
        elif misfit := format_.misfit_of(half, schema, table):
            yield f"SCHEMA_INCOMPATIBLE: schema {schema.id}, the newest of {subject}: {misfit}"


class AskedSchemas(Schemas):
    """Schemas for commands that read a topic: each id is requested when it is met. Nothing is kept in the state."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._asked: dict[int, WriterSchema | None] = {}

    def get(self, schema_id: int) -> WriterSchema | None:
        """None for an id that the registry lacks. Raises: as `Registry.schema`."""
        if schema_id not in self._asked:
            self._asked[schema_id] = self._registry.schema(schema_id)
        return self._asked[schema_id]

"""Components of batches of which a test needs nothing: no schemas by id, no registry, no redelivered records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from schemas.avro.registered import KnownSchemas, SchemaIds
from schemas.errors import Code, ConfigError
from schemas.formats.protocol import Format
from schemas.job import JobDefinition
from schemas.records import RecordId
from streaming.core.redelivery import Logged
from streaming.registry.client import SchemaBook
from streaming.registry.outputs import Registering
from streaming.source.direct_read import LoggedRecords


class NoSchemas(SchemaBook):
    """For formats whose records name no schemas."""

    def __init__(self) -> None:
        """Without a registry."""

    def learn(self, ids: Iterable[int]) -> KnownSchemas:
        return KnownSchemas(refused=frozenset(ids))


class NoRegistry(Registering):
    """For outputs whose records name no schemas."""

    def __init__(self) -> None:
        """Without a registry."""

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        raise ConfigError(
            Code.JOB_INVALID, where=f"job {job.name}", found="schemas, and no registry for them"
        )

    def forget(self, job: JobDefinition) -> None:
        return


class NothingLogged(LoggedRecords):
    """For upstreams whose records are never redelivered."""

    def __init__(self) -> None:
        """Without a topic."""

    def read(
        self, ranges: Mapping[int, tuple[int, int]], format_: Format, skipped: Set[RecordId], epoch: int
    ) -> Iterator[Logged]:
        return iter(())

"""The client of the schema registry, on top of confluent-kafka's, and the schemas of one state that it was asked for.

confluent-kafka's client retries by itself, and its errors quote answers. So every call has an end, and every error
leaves through `_translated`, which keeps the address and the status, and nothing else.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from schemas.avro.registered import MAX_SCHEMA_ID, KnownSchemas, Schemas, WriterSchema
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.formats.protocol import Format, Framed, Half
from schemas.settings.registry import RegistryConfig
from schemas.settings.security import OAuth
from schemas.table import TableSchema
from state.small_files import SchemaFiles
from streaming.kafka.security import token_for

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

WAIT_S = 5.0
"""For one answer."""
_RETRIES, _PAUSE_MS = 2, 300
_SUBJECT_UNKNOWN, _VERSION_UNKNOWN, _SCHEMA_UNKNOWN, _INCOMPATIBLE = 40401, 40402, 40403, 409
_NOT_FOUND = 404
_MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
_MOST_REFERENCES = 100
_ASKED, _PAUSE_S = 3, 1.0
"""Requests before an id counts as unknown: of a registry's nodes only some may have a new one yet."""

log = structlog.get_logger(__name__)


class Registry:
    """Requests by id or subject. Made without a connection, in any process; not to be pickled to another one."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        # Imported on first use: it takes half a second.
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient(self._settings())

    def _settings(self) -> dict[str, Any]:
        """The client's settings, secrets included: never to be logged. Raises: ConfigError when a secret is gone."""
        config = self._config
        settings: dict[str, Any] = {
            "url": ",".join(config.urls),
            "timeout": WAIT_S,
            "max.retries": _RETRIES,
            "retries.wait.ms": _PAUSE_MS,
            "ssl.ca.location": config.ca_file or _system_authorities(),
            "ssl.certificate.location": config.certificate_file,
            "ssl.key.location": config.key_file,
        }
        if config.token is not None:
            settings["bearer.auth.credentials.source"] = "STATIC_TOKEN"
            settings["bearer.auth.token"] = config.token.read()
            settings["bearer.auth.logical.cluster"] = ""  # of Confluent's cloud; the client requires one
        if config.oauth is not None:
            # Its own client of token servers trusts the authorities of a package, and no others.
            settings["bearer.auth.credentials.source"] = "CUSTOM"
            settings["bearer.auth.custom.provider.function"] = _bearer
            settings["bearer.auth.custom.provider.config"] = {
                "oauth": config.oauth.declared("registry.oauth")
            }
        if config.password is not None:
            settings["basic.auth.user.info"] = f"{config.username}:{config.password.read()}"
        return {key: value for key, value in settings.items() if value is not None}

    def schema(self, schema_id: int) -> WriterSchema | None:
        """The schema with this id, None if there is none.

        Raises: EnvironmentProblem: REGISTRY_UNREACHABLE, REGISTRY_REFUSED; ConfigError when a secret is gone.
        """
        with self._translated(f"schema {schema_id}", _SCHEMA_UNKNOWN) as found:
            schema = self._client.get_schema(schema_id)
            found.append(self._written(schema_id, schema))
        return found[0] if found else None

    def newest(self, subject: str) -> WriterSchema | None:
        """The schema that was registered last under a subject, None if it has none. Raises: as `schema`."""
        with self._translated(f"subject {subject}", _SUBJECT_UNKNOWN) as found:
            newest = self._client.get_latest_version(subject)
            if newest.schema_id is not None and newest.schema is not None:
                found.append(self._written(newest.schema_id, newest.schema))
        return found[0] if found else None

    def versions(self, schema_id: int, subject: str) -> Iterator[WriterSchema]:
        """The versions of the subject that a schema belongs to, oldest first; `subject` where it belongs to several.

        None where the registry tells neither subjects by schemas nor versions of `subject`. Raises: as `schema`.
        """
        with self._translated(f"schema {schema_id}", _SCHEMA_UNKNOWN, may_lack=True) as found:
            found.extend(self._client.get_subjects_by_schema_id(schema_id))
        subject = subject if subject in found or not found else sorted(found)[0]
        with self._translated(f"subject {subject}", _SUBJECT_UNKNOWN, may_lack=True) as numbers:
            numbers.extend(self._client.get_versions(subject))
        for number in sorted(numbers):
            with self._translated(f"subject {subject}", _VERSION_UNKNOWN, may_lack=True) as one:
                version = self._client.get_version(subject, number)
                if version.schema_id is not None and version.schema is not None:
                    one.append(self._written(version.schema_id, version.schema))
            yield from one

    def is_compatible(self, subject: str, text: str) -> bool | None:
        """True if an Avro schema may be registered under a subject, None where that has none. Raises: as `schema`."""
        with self._translated(f"subject {subject}", _SUBJECT_UNKNOWN, _VERSION_UNKNOWN) as found:
            found.append(bool(self._client.test_compatibility(subject, _avro(text))))
        return found[0] if found else None

    def register(self, subject: str, text: str) -> int:
        """The id of an Avro schema under a subject; the same text has the same one again.

        Raises: ConfigError(OUTPUT_SCHEMA_INCOMPATIBLE) for one that the subject's earlier ones forbid; as `schema`.
        """
        with self._translated(f"subject {subject}", _INCOMPATIBLE) as found:
            found.append(_id(self._client.register_schema(subject, _avro(text))))
        if not found:
            raise incompatible(subject)
        return int(found[0])

    def id_of(self, subject: str, text: str) -> int | None:
        """The id of an Avro schema that is registered under a subject, None if it is not. Raises: as `schema`."""
        with self._translated(f"subject {subject}", _SUBJECT_UNKNOWN, _SCHEMA_UNKNOWN) as found:
            found.append(_id(self._client.lookup_schema(subject, _avro(text)).schema_id))
        return found[0] if found else None

    def is_reachable(self) -> bool:
        """True if the registry answers, with whatever status. A used client may answer from its cache."""
        try:
            self.schema(1)
        except EnvironmentProblem as problem:
            return problem.code is not Code.REGISTRY_UNREACHABLE
        return True

    def _written(self, schema_id: int, schema: Schema) -> WriterSchema:
        texts: dict[tuple[str, int], str] = {}
        self._add_references(schema, texts)
        return WriterSchema(
            schema_id, schema.schema_str or "", schema.schema_type or "AVRO", tuple(texts.values())
        )

    def _add_references(self, schema: Schema, texts: dict[tuple[str, int], str]) -> None:
        """Add the texts of references, each behind those that it refers to."""
        for reference in schema.references or ():
            place = str(reference.subject), int(reference.version or 0)
            if place in texts or len(texts) > _MOST_REFERENCES:
                continue
            referred = self._client.get_version(*place).schema
            if referred is not None:
                self._add_references(referred, texts)
                texts[place] = referred.schema_str or ""

    @contextmanager
    def _translated(self, what: str, *missing: int, may_lack: bool = False) -> Iterator[list[Any]]:
        """Collects an answer in the yielded list, which stays empty for these error codes.

        `may_lack`: it does so for a request that the registry does not know, too.
        """
        import httpx2
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            yield []
        except SchemaRegistryError as error:
            status, code = error.http_status_code, error.error_code
            if code in missing or (may_lack and status == _NOT_FOUND):
                return
            found = f"status {status} (code {code}) for {what}"
            raise self._problem(may_pass=status in _MAY_PASS, found=found) from None
        except httpx2.TransportError as error:
            found = f"no answer for {what} ({type(error).__name__})"
            raise self._problem(may_pass=True, found=found) from None
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            found = f"an answer for {what} that is none of a registry ({type(error).__name__})"
            raise self._problem(may_pass=False, found=found) from None

    def _problem(self, *, may_pass: bool, found: str) -> EnvironmentProblem:
        where = ", ".join(self._config.urls)
        if may_pass:
            return EnvironmentProblem(Code.REGISTRY_UNREACHABLE, where=where, found=found)
        return EnvironmentProblem(Code.REGISTRY_REFUSED, where=where, found=found)


def _bearer(provided: dict[str, OAuth]) -> dict[str, str]:
    """Called by the client before each request. Raises: as `token_for`."""
    token = token_for(provided["oauth"])
    return {"bearer.auth.token": token.text, "bearer.auth.logical.cluster": ""}


def incompatible(subject: str) -> ConfigError:
    """The error for a schema that the registry refuses."""
    found = "a schema of the job that the registry finds incompatible with the one that is there"
    return ConfigError(Code.OUTPUT_SCHEMA_INCOMPATIBLE, where=f"subject {subject}", found=found)


def _avro(text: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")


def _id(answered: object) -> int:
    if not (isinstance(answered, int) and 0 <= answered <= MAX_SCHEMA_ID):
        raise ValueError("an id that no record can name")
    return answered


def _system_authorities() -> str | None:
    """File or folder of the authorities that this machine trusts; the client's default are those of a package."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


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
        elif reason := format_.incompatibility_of_schema(half, schema, table):
            yield f"SCHEMA_INCOMPATIBLE: schema {schema.id}, the newest of {subject}: {reason}"


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

"""The schemas of outputs at the registry: registered when a job is created, and when it gets columns.

Their ids are kept with the job, in the plans of the journal, so later starts need no registry. Registering is
idempotent: the same text under the same subject has the same id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import structlog

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import SchemaIds
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.formats.protocol import Half
from schemas.job import JobDefinition
from schemas.settings.registry import RegistryConfig
from schemas.table import TableSchema
from state.journal import Entry
from state.values.job_state import JobState
from streaming.registry.client import Registry, incompatible, subjects

log = structlog.get_logger(__name__)

WAIT_S = 3.0
"""The wait of a batch for an answer, once for each job."""
PAUSE_S = 10.0
"""Time between two requests while the registry is unreachable."""


class OutputSchemas:
    """The output schemas of the jobs of one table. Every call waits for the registry; for any thread."""

    def __init__(self, config: RegistryConfig, table: TableSchema) -> None:
        self._config, self._table = config, table
        self._registry = Registry(config)

    def register(self, job: JobDefinition) -> SchemaIds:
        """Register the schemas of a job: both, or none if one is found incompatible before.

        Raises: ConfigError: OUTPUT_SCHEMA_INCOMPATIBLE; JOB_INVALID without a registry in the configuration, and as
        `Registry.schema`.
        """
        schemas, is_new = self._schemas(job), True
        for subject, text in schemas.values():
            is_compatible = self._registry.is_compatible(subject, text)
            if is_compatible is False:
                raise incompatible(subject)
            is_new = is_new and is_compatible is None
        ids = _ids({half: self._registry.register(*named) for half, named in schemas.items()})
        return ids if is_new else replace(ids, earlier=tuple(self._earlier(job)))

    def wider(self, job: JobState, before: TableSchema) -> JobState:
        """A job with the types of its table, whose schema is registered; as it is where they are those of `before`.

        Raises: as `register`.
        """
        if not self._is_wider(job, before):
            return job
        definition = job.definition
        return replace(job, definition=definition.with_ids(self._next_ids(definition, definition)))

    def refuse_wider(self, jobs: Iterable[JobState], before: TableSchema) -> None:
        """Raises: ConfigError(OUTPUT_SCHEMA_INCOMPATIBLE) for a job that `wider` can't register; as `register`."""
        for job in (each for each in jobs if self._is_wider(each, before)):
            for subject, text in self._schemas(job.definition).values():
                if self._registry.is_compatible(subject, text) is False:
                    raise incompatible(subject)

    def _is_wider(self, job: JobState, before: TableSchema) -> bool:
        """True for records with schemas of which one differs by the types of a table before."""
        definition = job.definition
        is_framed = definition.format.ids is not None and not job.ended
        return is_framed and definition.schemas(before) != definition.schemas(self._table)

    def grown(self, job: JobState) -> JobState:
        """A job with the columns that are new in its table, whose schema is registered; as it is where it gets none.

        Where the registry refuses the schema it keeps its columns for good. Raises: as `register` for all else.
        """
        grown, ids = job.grown(self._table), job.definition.format.ids
        if grown is job or ids is None:
            return grown
        try:
            return replace(
                grown, definition=grown.definition.with_ids(self._next_ids(job.definition, grown.definition))
            )
        except ConfigError as error:
            if error.code is not Code.OUTPUT_SCHEMA_INCOMPATIBLE:
                raise
            log.warning(
                "new_columns_refused", job=job.name, code=Code.OUTPUT_SCHEMA_REFUSED, found=str(error.where)
            )
            return replace(job, columns_refused=Code.OUTPUT_SCHEMA_REFUSED)

    def _next_ids(self, before: JobDefinition, after: JobDefinition) -> SchemaIds:
        """The ids with those that records have had until now among the earlier ones. Raises: as `register`."""
        ids = before.format.ids
        assert ids is not None
        earlier = (*ids.earlier, (len(before.columns), ids.value))
        return SchemaIds(ids.key, self.register(after).value, earlier)

    def registered(self, job: JobDefinition) -> JobDefinition:
        """The job with the ids of its schemas, for readers of its output: where they are unknown, the registry's.

        Raises: ConfigError: JOB_UNKNOWN for one whose schemas the registry lacks, and as `register`.
        """
        return job if not job.format.framed or job.format.ids is not None else self.found(job)

    def found(self, job: JobDefinition) -> JobDefinition:
        """The job with all ids that the registry has for it, the earlier ones too. Raises: as `registered`."""
        ids: dict[Half, int] = {}
        for half, (subject, text) in self._schemas(job).items():
            found = self._registry.id_of(subject, text)
            if found is None:
                raise ConfigError(
                    Code.JOB_UNKNOWN,
                    where=f"subject {subject}",
                    found=f"no schema of job {job.name} in the registry",
                    next_step="start the service, which registers them, or give a configuration with its state",
                )
            ids[half] = found
        return job.with_ids(replace(_ids(ids), earlier=tuple(self._earlier(job))))

    def _earlier(self, job: JobDefinition) -> Iterator[tuple[int, int]]:
        first = job.first_width or 1
        for width in range(first, len(job.columns)) if job.sends_new else ():
            subject, text = self._schemas(replace(job, columns=job.columns[:width]))["value"]
            if (found := self._registry.id_of(subject, text)) is not None:
                yield width, found

    def subject_states(self, job: JobDefinition) -> Iterator[tuple[str, str | None]]:
        """Each subject of a job with `new` or `compatible`, or None where its schema can't be registered.

        Raises: as `register`.
        """
        for subject, text in self._schemas(job).values():
            is_compatible = self._registry.is_compatible(subject, text)
            yield subject, {None: "new", True: "compatible", False: None}[is_compatible]

    def _schemas(self, job: JobDefinition) -> Mapping[Half, tuple[str, str]]:
        """Subject and text for key and value; empty for a job whose records name no schemas."""
        named = subjects(job.output, job.format.framed)
        if named and self._config.url is None:
            raise ConfigError(
                Code.JOB_INVALID,
                where=f"job {job.name}",
                found="encoding 'avro-registry', and no registry.url in the configuration",
                expected="a schema registry, where the schemas of the output are registered",
                next_step="name registry.url in the configuration of the service; nothing was created",
            )
        schemas = job.schemas(self._table)
        return {half: (subject, text_of(schemas[half])) for half, subject in named.items()}


def _ids(found: Mapping[Half, int]) -> SchemaIds:
    """The ids of key and value, 0 for one without a schema."""
    return SchemaIds(found.get("key", 0), found.get("value", 0))


def refusal_of_wider(
    config: RegistryConfig, entry: Entry | None
) -> Callable[[TableSchema, TableSchema], None]:
    """Raises for a table and its next version if the registry refuses a schema of an output in the journal's plan.

    As `OutputSchemas.refuse_wider`.
    """
    plan = None if entry is None else entry.plan
    jobs = () if plan is None else tuple(job.state for job in plan.jobs)
    return lambda before, after: OutputSchemas(config, after).refuse_wider(jobs, before)


@dataclass
class _Attempt:
    """An attempt to register the schemas of a job, in a thread that begins at once."""

    register: Callable[[], SchemaIds]
    ids: SchemaIds | None = None
    problem: Exception | None = None
    ended_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._run, name="register", daemon=True).start()

    def _run(self) -> None:
        try:
            self.ids = self.register()
        except Exception as problem:  # noqa: BLE001 (raised by `ids_of`)
            self.problem = problem
        self.ended_s = time.monotonic()
        self.done.set()

    @property
    def is_away(self) -> bool:
        """True if the registry was unreachable."""
        return isinstance(self.problem, BackfillError) and self.problem.code is Code.REGISTRY_UNREACHABLE


class Registering:
    """Registers schemas in threads of its own; the thread that runs batches waits at most once for each job."""

    def __init__(
        self,
        register: Callable[[JobDefinition], SchemaIds],
        *,
        wait_s: float = WAIT_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._register, self._wait_s, self._pause_s = register, wait_s, pause_s
        self._attempts: dict[str, _Attempt] = {}

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        """The ids of a job's schemas, registered at the first call.

        Raises: EnvironmentProblem(REGISTRY_UNREACHABLE) while there is no answer; errors of `register`.
        """
        name = job.to_json()
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = self._attempts[name] = _Attempt(lambda: self._register(job))
            attempt.done.wait(self._wait_s)
        elif attempt.is_away and time.monotonic() >= attempt.ended_s + self._pause_s:
            attempt = self._attempts[name] = _Attempt(lambda: self._register(job))
        if not attempt.done.is_set():
            found = f"no answer yet for the schemas of job {job.name}"
            raise EnvironmentProblem(Code.REGISTRY_UNREACHABLE, found=found)
        if attempt.problem is not None:
            raise attempt.problem
        assert attempt.ids is not None
        self.forget(job)
        return attempt.ids

    def forget(self, job: JobDefinition) -> None:
        """Forget what is known of a job's schemas, which are registered anew when it is asked for again."""
        self._attempts.pop(job.to_json(), None)

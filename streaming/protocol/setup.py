"""What the batches of a service are made from: its state, its topics, and who runs lanes and knows schemas."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.avro.registered import KnownSchemas, SchemaIds
from schemas.errors import Code, ConfigError
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from state.journal import Journal
from state.storage import Storage
from streaming.lane.task import LaneOutcome, LaneTask
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.lanes.redelivery import LogResets, NothingLogged, ReadsLogged
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.table_read import ReadsTable
from streaming.sink.dead_letters import ReadLetters, WriteEarlyLetters
from streaming.sink.protocol import SinkOf


class LaneRunner(Protocol):
    """Runs a task in all of its lanes and waits for them. `slots` of them run at once.

    `is_cold`: the first batch of many records will take seconds more than those after it.
    """

    @property
    def slots(self) -> int: ...

    @property
    def is_cold(self) -> bool: ...

    def carry_out(self, task: LaneTask) -> list[LaneOutcome]:
        """The outcome of every lane. Some may hold an error while others have sent their part.

        Raises: EnvironmentProblem when lanes did not come to their end; which of them have sent is unknown then,
        and some may still be at it.
        """


class LearnsSchemas(Protocol):
    """The source of schemas for records that name theirs by an id."""

    def learn(self, ids: frozenset[int]) -> KnownSchemas:
        """Every schema that is known then; ids without one are `refused`. Raises: EnvironmentProblem."""


class NoSchemas(LearnsSchemas):
    """For formats whose records name none."""

    def learn(self, ids: frozenset[int]) -> KnownSchemas:
        """Refuses every id."""
        return KnownSchemas(refused=ids)


class RegistersSchemas(Protocol):
    """Where the schemas of outputs get their ids, of formats whose records name theirs."""

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        """The ids of a job's schemas, the same at each call.

        Raises: EnvironmentProblem(REGISTRY_UNREACHABLE) while there is no answer, which may be there at a later call;
        ConfigError, EnvironmentProblem when they are refused.
        """

    def forget(self, job: JobDefinition) -> None:
        """Forget a refused job's schemas: an equal job that comes later is registered anew."""
        return


class NoRegistry(RegistersSchemas):
    """For outputs whose records name none."""

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        """Refused. Raises: ConfigError(JOB_INVALID)."""
        raise ConfigError(
            Code.JOB_INVALID, where=f"job {job.name}", found="schemas, and no registry for them"
        )


def monotonic_ms() -> int:
    """The clock that rate limits and lateness go by."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class BatchSetup:
    """Of one instance of the service, which has taken the state over by `journal`.

    `first_offsets` are those of an empty state. `upstream_begins` gives the first offset that each partition still
    holds, None: `first_offsets` do. `reads` reads the table from its database, if it starts from there.
    `rows_folder` is where lanes keep rows by key, as configured.
    `logged` reads records again whose positions fall, and `log_resets` says whether logs may begin anew.
    """

    storage: Storage
    table: TableSchema
    journal: Journal
    forward: Forward
    first_offsets: Sequence[int]
    lanes: LaneRunner
    lane_count: int
    sink_of: SinkOf
    read_letters: ReadLetters
    early_letters: WriteEarlyLetters
    bad_records: BadRecords
    rows_folder: str | None = None
    limits: Limits = Limits()  # noqa: RUF009 (a value)
    upstream_format: Format = DEFAULT
    upstream_begins: Callable[[], Sequence[int]] | None = None
    schemas: LearnsSchemas = NoSchemas()  # noqa: RUF009 (a value)
    registers: RegistersSchemas = NoRegistry()  # noqa: RUF009 (a value)
    reads: ReadsTable | None = None
    logged: ReadsLogged = NothingLogged()  # noqa: RUF009 (a value)
    log_resets: LogResets = field(default_factory=LogResets)
    now_ms: Callable[[], int] = monotonic_ms

    def begins(self) -> Sequence[int]:
        """The first offset that each upstream partition still holds."""
        return self.first_offsets if self.upstream_begins is None else self.upstream_begins()

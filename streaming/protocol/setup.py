"""The components that the batches of a service are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.formats.protocol import UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.settings.limits import Limits
from schemas.table import TableSchema
from state.journal import Journal
from state.storage import Storage
from streaming.core.jobs import MayAlter, StartPause
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.lanes.redelivery import LogResets
from streaming.protocol.lanes.runner import LaneRunner
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.table_read import ReadsTable
from streaming.registry.client import SchemaBook
from streaming.registry.outputs import Registering
from streaming.runtime.timing import monotonic_ms
from streaming.sink.dead_letters import ReadLetters, WriteEarlyLetters
from streaming.sink.protocol import SinkOf
from streaming.source.direct_read import LoggedRecords


@dataclass(frozen=True, kw_only=True)
class BatchSetup:
    """The components of one instance of the service, which has taken the state over by `journal`.

    `first_offsets` are those of an empty state. `upstream_begins` gives the first offset that each partition still
    holds, None: `first_offsets` do. `reads` reads the table from its database, if it starts from there. Lanes keep rows
    by key in `rows_folder`. `schemas` has the schemas of records that name them by id, `registers` gives ids to those
    of outputs. `logged` reads records again whose positions fall; `log_resets` decides whether logs may begin anew.
    `dropped` are jobs that the operator of a suspended service has dropped. `may_alter` judges changes of the table.
    """

    storage: Storage
    table: TableSchema
    journal: Journal
    forward: Forward
    first_offsets: Sequence[int]
    lanes: LaneRunner
    declared_lanes: int
    schemas: SchemaBook
    registers: Registering
    logged: LoggedRecords
    sink_of: SinkOf
    read_letters: ReadLetters
    early_letters: WriteEarlyLetters
    bad_records: BadRecords
    rows_folder: str | None = None
    limits: Limits = Limits()  # noqa: RUF009 (a value)
    upstream_format: UpstreamFormat = DEFAULT
    upstream_begins: Callable[[], Sequence[int]] | None = None
    reads: ReadsTable | None = None
    log_resets: LogResets = field(default_factory=LogResets)
    dropped: frozenset[str] = frozenset()
    may_alter: MayAlter = lambda plan, changes: None
    start_pause: StartPause = field(default_factory=StartPause)
    now_ms: Callable[[], int] = monotonic_ms

    def begins(self) -> Sequence[int]:
        """The first offset that each upstream partition still holds."""
        return self.first_offsets if self.upstream_begins is None else self.upstream_begins()

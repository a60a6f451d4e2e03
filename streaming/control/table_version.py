"""The replica as a table that other programs read: its versions at a barrier, and SQL for them.

The table at a barrier is the rows of the base without those that the log has changed since, and the newest ones of the
log. That holds every change behind the base's barrier, so any barrier from there on is within the newest versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deltalake.exceptions import DeltaError

from schemas.errors import Code, ConfigError, StateError
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, OP, VNODE
from state.replica import BASE_PATH, LOG_PATH, Replica
from state.small_files import TablePins
from state.storage import Storage, corrupt
from state.values.aligned import ReplicaVersion

_ATTEMPTS = 5
_PYTHON = '''from deltalake import DeltaTable, QueryBuilder

tables = QueryBuilder().register("base", DeltaTable({base!r}, version={base_version}))
rows = tables.register("log", DeltaTable({log!r}, version={log_version})).execute("""
{select}
""").read_all()'''


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The replica of a table at the barrier `epoch`, in these versions of base and log."""

    storage: Storage
    table: TableSchema
    epoch: int
    version: ReplicaVersion

    @property
    def spark(self) -> str:
        """Spark SQL, with Delta."""
        base, log = (self._uri(path) for path in (BASE_PATH, LOG_PATH))
        return self._select(
            f"delta.`{base}` VERSION AS OF {self.version.base}",
            f"delta.`{log}` VERSION AS OF {self.version.log}",
            quote="`",
        )

    @property
    def duckdb(self) -> str:
        """SQL of DuckDB, whose extension `delta` reads the tables."""
        base, log = (_text(self._uri(path)) for path in (BASE_PATH, LOG_PATH))
        return self._select(
            f"delta_scan({base}, version => {self.version.base})",
            f"delta_scan({log}, version => {self.version.log})",
        )

    @property
    def delta_rs(self) -> str:
        """Python, with the package `deltalake`."""
        return _PYTHON.format(
            base=self.storage.uri(BASE_PATH),
            log=self.storage.uri(LOG_PATH),
            base_version=self.version.base,
            log_version=self.version.log,
            select=self._select("base", "log"),
        )

    def _uri(self, path: str) -> str:
        uri = self.storage.uri(path)
        return uri if self.storage.is_store else Path(uri).as_uri()

    def _select(self, base: str, log: str, quote: str = '"') -> str:
        def quoted(*names: str) -> str:
            return ", ".join(f"{quote}{name}{quote}" for name in names)

        columns, key = quoted(*self.table.column_names), quoted(VNODE, *self.table.primary_key)
        own, newest = quoted(VNODE, EPOCH, OFFSET, OP), quoted("_bf_newest")
        epoch, offset, op, vnode = (quoted(name) for name in (EPOCH, OFFSET, OP, VNODE))
        return f"""SELECT {columns} FROM (
  SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {epoch} DESC, {offset} DESC) AS {newest} FROM (
    SELECT {columns}, {vnode}, 0 AS {epoch}, -1 AS {offset}, {Op.INSERT.value} AS {op}
    FROM {base}
    UNION ALL
    SELECT {columns}, {own}
    FROM {log}
    WHERE {epoch} > {self.version.compacted_epoch} AND {epoch} <= {self.epoch}
  ) AS every_change
) AS numbered
WHERE {newest} = 1 AND {op} <> {Op.DELETE.value}"""  # noqa: S608  (names of columns are letters, digits and _)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


class ReplicaVersions:
    """The versions of a state's replica, for any process that can read it; pins are written."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        """Raises: ConfigError(USAGE) for rows without a key, of which nothing is kept."""
        if not table.has_key:
            raise _usage(
                "a table without a key", "one with a replica: rows without a key are kept nowhere", "table"
            )
        self._storage, self._table, self.pins = storage, table, TablePins(storage)

    def at(self, epoch: int | None) -> TableVersion:
        """The table at a barrier, by default the newest one. Raises: ConfigError(USAGE) for one that is not kept."""
        pinned = self.pins.read()
        if epoch in pinned:
            return TableVersion(self._storage, self._table, epoch, pinned[epoch])
        replica = Replica(self._storage, self._table)
        for _ in range(_ATTEMPTS):  # a compaction between the two openings: the base is ahead of this log
            if replica.compacted_epoch <= replica.log_epoch:
                break
            replica.reload()
        oldest, newest = replica.compacted_epoch, replica.log_epoch
        wanted = newest if epoch is None else epoch
        if not oldest <= wanted <= newest or not wanted:
            kept = f"a barrier from {oldest} to {newest}"
            raise _usage(f"barrier {wanted}", f"{kept}, or a pinned one ({_listed(pinned)})", "--at")
        return TableVersion(self._storage, self._table, wanted, replica.pin())

    def pin(self, found: TableVersion) -> None:
        """Keep the versions of a table until they are unpinned. Raises: StateError if a file of them is gone."""
        self.pins.pin(found.epoch, found.version)
        try:
            self._check_files(found.version)
        except BaseException:
            self.pins.unpin(found.epoch)
            raise

    def _check_files(self, version: ReplicaVersion) -> None:
        """A round of cleaning that had begun before a pin may have taken what left its table an hour ago."""
        try:
            files = Replica(self._storage, self._table).files(version)
        except DeltaError as error:
            raise _gone(self._storage, LOG_PATH) from error
        names = [(BASE_PATH, each.path) for of_vnode in files.base.values() for each in of_vnode]
        for path, name in (*names, *((LOG_PATH, each.path) for each in files.log)):
            if not self._storage.exists(path, name):
                raise _gone(self._storage, path)

    def unpin(self, epoch: int) -> None:
        """Let the versions at a barrier go. Raises: ConfigError(USAGE) if they are not pinned."""
        if not self.pins.unpin(epoch):
            raise _usage(f"barrier {epoch}", f"a pinned one ({_listed(self.pins.read())})", "--unpin")


def _gone(storage: Storage, path: str) -> StateError:
    return corrupt(storage.uri(path), "an old version, which was cleaned away meanwhile")


def _listed(pinned: dict[int, ReplicaVersion]) -> str:
    return ", ".join(map(str, pinned)) or "there is none"


def _usage(found: str, expected: str, where: str) -> ConfigError:
    return ConfigError(Code.USAGE, where=where, found=found, expected=expected)

"""A replica that grows by random batches and hand-made compactions, and its table at each barrier."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa

from schemas.records import Op, Row
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, base_schema, log_schema
from state.maintenance.cleaning import clean_table
from state.replica import BASE_PATH, LOG_PATH, Replica, write_log_file
from state.small_files import TablePins
from state.storage import Storage
from tests.kit.tables import table, vnode_of

TABLE = table(vnode_count=4)


class ReplicaHistory:
    """A replica that grows by random batches, and the table at each of their barriers."""

    def __init__(self, storage: Storage, seed: int = 0) -> None:
        self.storage, self.random = storage, random.Random(seed)
        self.replica = Replica(storage, TABLE)
        self.rows: dict[int, Row] = {}
        self.at: dict[int, list[Row]] = {}
        self.offset = 0

    def batch(self, epoch: int, *, silent: bool = False) -> None:
        changes = [] if silent else [self._change() for _ in range(self.random.randint(1, 8))]
        logged = [
            {
                **dict(zip(TABLE.column_names, row, strict=True)),
                VNODE: vnode_of(TABLE, row[:1]),
                EPOCH: epoch,
                PARTITION: 0,
                OFFSET: offset,
                OP: op,
            }
            for op, offset, row in changes
        ]
        self.random.shuffle(logged)
        rows = pa.Table.from_pylist(logged, schema=log_schema(TABLE))
        self.replica.append([write_log_file(self.storage, rows, "log")], epoch)
        self.at[epoch] = sorted(self.rows.values())

    def _change(self) -> tuple[int, int, Row]:
        key, self.offset = self.random.randrange(12), self.offset + 1
        if key in self.rows and self.random.random() < 0.4:
            return Op.DELETE.value, self.offset, self.rows.pop(key)
        op = Op.UPDATE if key in self.rows else Op.INSERT
        self.rows[key] = (key, self.offset, f"at {self.offset}")
        return op.value, self.offset, self.rows[key]

    def compact(self, epoch: int) -> None:
        """The base becomes the table at a barrier, as if by a compaction of all vnodes."""
        schema = pa.schema([field for field in base_schema(TABLE) if field.name != VNODE])
        added = []
        for vnode in range(TABLE.vnode_count):
            rows = [row for row in self.at[epoch] if vnode_of(TABLE, row[:1]) == vnode]
            data = [dict(zip(TABLE.column_names, row, strict=True)) for row in rows]
            file = self.storage.write_parquet(
                BASE_PATH, pa.Table.from_pylist(data, schema=schema), stem="base"
            )
            added.append(replace(file, partition={VNODE: str(vnode)}))
        replica = self.replica
        removed = [each for files in replica.files(replica.pin()).base.values() for each in files]
        replica.commit_compaction(added, removed, epoch)
        replica.trim()

    def clean(self) -> None:
        """Delete all files but those of pinned versions."""
        pins = TablePins(self.storage).read().values()
        clean_table(self.storage, LOG_PATH, held=[each.log for each in pins])
        clean_table(self.storage, BASE_PATH, held=[each.base for each in pins])

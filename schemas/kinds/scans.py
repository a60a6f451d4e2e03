"""Kinds of scans that a job can name by `read`: what its snapshot is read from.

A kind is chosen by its name in a job's definition. This is the part of it that needs no files and no broker: the
number of parts of a job, and the columns of a position in a part. The reader of a kind is registered in
`streaming.scan.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from schemas.faults import Faults
from schemas.formats.protocol import Format, Images
from schemas.kinds.declare import KindConfig, declare_kind
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName


class ScanConfig(KindConfig):
    """One kind of scans, and its settings.

    It is used in every process, also by commands that never read, and decides what the state and the output hold: it
    follows from the job and the table alone, for the life of the job.
    """

    @property
    def reads_upstream(self) -> bool:
        """True if slices are ranges of the upstream's own records, which come to a lane as live ones do.

        A part is then an upstream partition, and a position the next offset to be read.
        """
        return False

    def misfit(self, upstream: Format) -> str | None:
        """The reason why an upstream in this format can't be read so, None if it can."""
        return None

    def misfit_of(self, table: TableSchema) -> str | None:
        """The reason why such a table can't be read so, None if it can."""
        return None

    def part_count(self, vnode_count: int, output_partitions: int) -> int:
        """The number of parts of a job, each read on its own, in an order of its own: no fewer than its partitions.

        Part p goes to the output partition p * output_partitions // part_count, to the lane p * lanes // part_count.
        """
        return vnode_count

    def position_columns(self, table: TableSchema) -> tuple[Column, ...]:
        """The columns of a position, in order. Positions are compared column by column, strings by UTF-8 bytes."""
        return table.key_columns


class ReplicaScan(ScanConfig):
    """Reads the replica: a part is a vnode, a position a primary key."""

    kind: Literal["replica"] = "replica"

    def misfit_of(self, table: TableSchema) -> str | None:
        """A table without a primary key does not fit: there is no replica of it."""
        return (
            None
            if table.has_key
            else "read: replica needs a table with a primary key; without one: read: topic"
        )


class TopicScan(ScanConfig):
    """Reads the upstream's records since the topic's beginning: a part is a partition, a position an offset."""

    kind: Literal["topic"] = "topic"

    @property
    def reads_upstream(self) -> bool:
        """Always."""
        return True

    def misfit(self, upstream: Format) -> str | None:
        """Formats fit whose records can be sent by themselves, and are never redelivered."""
        if upstream.images is Images.AFTER_ONLY or upstream.comes_again:
            return (
                "read: topic needs an upstream whose records say what was there before, format: change, or whose rows "
                "have no identity, format: append"
            )
        return None

    def part_count(self, vnode_count: int, output_partitions: int) -> int:
        """The number of partitions, which the output shares with the upstream."""
        return output_partitions

    def position_columns(self, table: TableSchema) -> tuple[Column, ...]:
        """One column: the first offset that was not read."""
        return (Column("offset", ColumnType(TypeName.BIGINT), nullable=False),)


DEFAULT_SCAN = ReplicaScan()
"""The scan of a job that names none."""
SCAN_KINDS: dict[str, type[ScanConfig]] = {"replica": ReplicaScan, "topic": TopicScan}
"""The kinds, by the name that a job's definition gives."""


def declare_scan(declared: object, faults: Faults) -> ScanConfig:
    """The scan that a definition names: its kind, or a mapping with `kind` and the further keys of that kind.

    Gives the default one for a fault.
    """
    if declared is None:
        return DEFAULT_SCAN
    keys = declared if isinstance(declared, Mapping) else {"kind": declared}
    return declare_kind(SCAN_KINDS, keys, faults, tag="kind", place="read.", named="read") or DEFAULT_SCAN


def scan_declaration(scan: ScanConfig) -> str | dict[str, Any]:
    """The shortest form that `declare_scan` reads back."""
    declaration = scan.model_dump()
    return scan.kind if declaration.keys() == {"kind"} else declaration

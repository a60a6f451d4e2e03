"""Kinds of scans, sinks and barriers: a declaration names one, with the further keys that this kind takes.

This is the part of a kind that needs no files and no broker. What carries a kind out is registered in
`streaming.scan.kinds`, `streaming.sink.kinds` and `streaming.source.barriers.kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError, PydanticKnownError

from schemas.faults import Faults, brief, nearest
from schemas.formats.protocol import Format, Images
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName


class KindConfig(BaseModel):
    """The settings of one kind: immutable, comparable, hashable and picklable.

    An implementation declares `kind: Literal[<its name>]` and the further keys that it takes, with defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: str


_AnyModel = TypeVar("_AnyModel", bound=BaseModel)


def declare_kind(
    kinds: Mapping[str, type[_AnyModel]],
    declaration: Mapping[Any, Any],
    faults: Faults,
    *,
    tag: str,
    default: str | None = None,
    beside: Collection[str] = (),
    place: str = "",
    named: str | None = None,
) -> _AnyModel | None:
    """The model of the kind that a declaration names by the key `tag`; keys in `beside` are not the kind's.

    None for an invalid declaration: an unknown kind (its own keys are not known then either), a key that is unknown
    to the chosen kind, or a value. `place` goes in front of each key in the faults, `named` instead of the tag there.
    """
    # Not a union of pydantic's: a kind may be added to `kinds` while a process runs, and be the only one.
    kind = declaration.get(tag, default)
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        likely = nearest(kind, list(kinds)) if isinstance(kind, str) else ""
        faults.add(f"{named or place + tag} {brief(kind)} is not one of: {', '.join(kinds)}{likely}")
    known = [*beside, *(model.model_fields if model else [tag])]
    unknown = [key for key in declaration if key not in known]
    for key in unknown:
        faults.add(f"unknown key {brief(f'{place}{key}' if place else key)}{nearest(str(key), known)}")
    if model is None or unknown:
        return None
    try:
        return model.model_validate({key: value for key, value in declaration.items() if key not in beside})
    except ValidationError as error:
        faults.add_invalid(error, model, place)
        return None


class ScanConfig(KindConfig):
    """One kind of scans, and its settings.

    It is used in every process, also by commands that never read, and decides what the state and the output hold: it
    follows from the job and the table alone, for the life of the job.
    """

    reads_upstream: ClassVar[bool] = False
    """True if slices are ranges of the upstream's own records, which come to a lane as live ones do.

    A part is then an upstream partition, and a position the next offset to be read.
    """

    def incompatibility_with_format(self, upstream: Format) -> str | None:
        """The reason why an upstream in this format can't be read so, None if it can."""
        return None

    def incompatibility_with_table(self, table: TableSchema) -> str | None:
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

    def incompatibility_with_table(self, table: TableSchema) -> str | None:
        """A table without a primary key does not fit: there is no replica of it."""
        return (
            None
            if table.has_key
            else "read: replica needs a table with a primary key; without one: read: topic"
        )


class TopicScan(ScanConfig):
    """Reads the upstream's records since the topic's beginning: a part is a partition, a position an offset."""

    reads_upstream: ClassVar[bool] = True
    kind: Literal["topic"] = "topic"

    def incompatibility_with_format(self, upstream: Format) -> str | None:
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


class SinkConfig(KindConfig):
    """The settings of one kind of sink.

    Jobs with equal settings share a sink, and a lane writes to it in one transaction.
    """


class ToKafka(SinkConfig):
    """Transactional records of a topic."""

    kind: Annotated[Literal["kafka"], Field(description="a topic, written in transactions")] = "kafka"


DEFAULT_SINK = ToKafka()
"""The sink of a job that names none."""
SINK_KINDS: dict[str, type[SinkConfig]] = {"kafka": ToKafka}
"""The kinds, by the name that a job gives."""


def declare_sink(declared: object, faults: Faults) -> SinkConfig:
    """The sink that a job names: the kind, or a mapping with `kind` and the kind's further keys."""
    if declared is None:
        return DEFAULT_SINK
    keys = declared if isinstance(declared, dict) else {"kind": declared}
    return declare_kind(SINK_KINDS, keys, faults, tag="kind", place="sink.") or DEFAULT_SINK


def sink_key() -> tuple[str, str]:
    """Default and meaning of the key `sink`, in Markdown."""
    kinds = "; ".join(
        f"`{kind}`, {model.model_fields['kind'].description}" for kind, model in SINK_KINDS.items()
    )
    return f"`{DEFAULT_SINK.kind}`", f"What the output is, by its kind: {kinds}."


class BarriersConfig(KindConfig):
    """The settings of one kind of barriers. `injects`: this service writes them."""

    injects: ClassVar[bool] = False


class Inject(BarriersConfig):
    """The service writes them as records of the upstream topic."""

    injects: ClassVar[bool] = True
    kind: Literal["inject"] = "inject"


class Embedded(BarriersConfig):
    """The upstream's owner writes them as records of the upstream topic."""

    kind: Literal["embedded"] = "embedded"


BARRIER_KINDS: dict[str, type[BarriersConfig]] = {"inject": Inject, "embedded": Embedded}
"""The kinds, by the name that a configuration gives."""


def declare_barriers(declared: object) -> BarriersConfig:
    """The barriers that a configuration names by their kind. Raises: pydantic's errors, one lists the kinds."""
    if not isinstance(declared, str):
        raise PydanticKnownError("string_type")
    if declared not in BARRIER_KINDS:
        known = " or ".join(map(repr, BARRIER_KINDS))
        raise PydanticCustomError("unknown_kind", "Input should be {known}", {"known": known})
    return BARRIER_KINDS[declared](kind=declared)

"""Kinds of sinks that a job can name: what its output is written to.

What carries a kind out is registered in `streaming.sink.kinds`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.faults import Faults
from schemas.kinds.declare import declare_kind


class SinkConfig(BaseModel):
    """The settings of one kind of sink: immutable, comparable, hashable and picklable.

    An implementation declares `kind: Literal[<its name>]` and the further keys that it takes. Jobs with equal settings
    share a sink, and a lane writes to it in one transaction.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: str


class ToKafka(SinkConfig):
    """Transactional records of a topic."""

    kind: Annotated[Literal["kafka"], Field(description="a topic, written in transactions")] = "kafka"


DEFAULT = ToKafka()
"""Of a job that names none."""
SINK_KINDS: dict[str, type[SinkConfig]] = {"kafka": ToKafka}
"""By the name that a job gives."""


def declare_sink(declared: object, faults: Faults) -> SinkConfig:
    """What a job says of its sink: the kind, or a mapping with `kind` and the kind's further keys."""
    if declared is None:
        return DEFAULT
    keys = declared if isinstance(declared, dict) else {"kind": declared}
    return declare_kind(SINK_KINDS, keys, faults, tag="kind", place="sink.") or DEFAULT


def sink_key() -> tuple[str, str]:
    """Of the key `sink`: its default and meaning, in Markdown."""
    kinds = "; ".join(
        f"`{kind}`, {model.model_fields['kind'].description}" for kind, model in SINK_KINDS.items()
    )
    return f"`{DEFAULT.kind}`", f"What the output is, by its kind: {kinds}."

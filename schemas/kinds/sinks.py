"""Kinds of sinks that a job can name, to which its output is written.

What carries a kind out is registered in `streaming.sink.kinds`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.faults import Faults
from schemas.kinds.declare import KindConfig, declare_kind


class SinkConfig(KindConfig):
    """The settings of one kind of sink.

    Jobs with equal settings share a sink, and a lane writes to it in one transaction.
    """


class ToKafka(SinkConfig):
    """Transactional records of a topic."""

    kind: Annotated[Literal["kafka"], Field(description="a topic, written in transactions")] = "kafka"


DEFAULT = ToKafka()
"""The sink of a job that names none."""
SINK_KINDS: dict[str, type[SinkConfig]] = {"kafka": ToKafka}
"""The kinds, by the name that a job gives."""


def declare_sink(declared: object, faults: Faults) -> SinkConfig:
    """The sink that a job names: the kind, or a mapping with `kind` and the kind's further keys."""
    if declared is None:
        return DEFAULT
    keys = declared if isinstance(declared, dict) else {"kind": declared}
    return declare_kind(SINK_KINDS, keys, faults, tag="kind", place="sink.") or DEFAULT


def sink_key() -> tuple[str, str]:
    """Default and meaning of the key `sink`, in Markdown."""
    kinds = "; ".join(
        f"`{kind}`, {model.model_fields['kind'].description}" for kind, model in SINK_KINDS.items()
    )
    return f"`{DEFAULT.kind}`", f"What the output is, by its kind: {kinds}."

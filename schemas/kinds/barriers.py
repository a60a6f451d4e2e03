"""Kinds of barriers that can be configured: who writes an upstream's barriers, and where they stand.

What carries a kind out is registered in `streaming.source.barriers.kinds`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class BarriersConfig(BaseModel):
    """The settings of one kind of barriers. `injects`: this service is what writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    injects: ClassVar[bool] = False
    kind: str


class Inject(BarriersConfig):
    """The service writes them as records of the upstream topic."""

    injects: ClassVar[bool] = True
    kind: Literal["inject"] = "inject"


class Embedded(BarriersConfig):
    """The upstream's owner writes them as records of the upstream topic."""

    kind: Literal["embedded"] = "embedded"


BARRIER_KINDS: dict[str, type[BarriersConfig]] = {"inject": Inject, "embedded": Embedded}
"""By the name that a configuration gives."""


def known_kind(kind: str) -> str:
    """The name of a kind that there is. Raises: PydanticCustomError, which names them all."""
    if kind not in BARRIER_KINDS:
        known = " or ".join(map(repr, BARRIER_KINDS))
        raise PydanticCustomError("unknown_kind", "Input should be {known}", {"known": known})
    return kind

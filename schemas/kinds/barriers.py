"""Kinds of barriers that can be configured: who writes an upstream's barriers, and where they stand.

What carries a kind out is registered in `streaming.source.barriers.kinds`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic_core import PydanticCustomError, PydanticKnownError

from schemas.kinds.declare import KindConfig


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

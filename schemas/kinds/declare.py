"""Kinds in a declaration: a mapping that names one, with the further keys that this kind takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.faults import Faults, brief, nearest


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

"""What has kinds in a declaration: a mapping that names one, with the further keys that this kind takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.faults import Faults, brief
from schemas.table import nearest

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
) -> _AnyModel | None:
    """The model of the kind that a declaration names by the key `tag`; keys in `beside` are not the kind's.

    None if something is at fault: a kind that is not known (its own keys are not known then either), a key that is
    unknown to the chosen kind, or a value. `place` goes in front of each key in the faults.
    """
    kind = declaration.get(tag, default)
    model = kinds.get(kind) if isinstance(kind, str) else None
    if model is None:
        faults.add(f"{place}{tag} {brief(kind)} is not one of: {', '.join(kinds)}")
    known = [*beside, *(model.model_fields if model else [tag])]
    unknown = [key for key in declaration if key not in known]
    for key in unknown:
        faults.add(f"unknown key {brief(f'{place}{key}' if place else key)}{nearest(str(key), known)}")
    if model is None or unknown:
        return None
    try:
        return model.model_validate({key: value for key, value in declaration.items() if key not in beside})
    except ValidationError as error:
        for item in error.errors(include_url=False):
            key, text = ".".join(map(str, item["loc"])), item["msg"]
            faults.add(f"{place}{key} is {brief(item['input'])}: {text[0].lower()}{text[1:]}")
        return None

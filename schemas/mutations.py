"""Mutations by their names, with their fields, as barriers and control requests have them.

The first ones are branches of the union in Avro; all others travel in its last branch, `Other`, and in JSON under their
own names. One that this version does not know is an `Other` as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NoReturn

from pydantic import TypeAdapter

from schemas.kinds.table_changes import changes_from_json, changes_text
from schemas.records import Add, Alter, Drop, Lanes, Mutation, Other, Pause, Resume, Stop, Throttle

BRANCHES: dict[str, type[Mutation]] = {
    kind.__name__: kind for kind in (Add, Drop, Pause, Resume, Throttle, Stop)
}
"""Mutations that have a branch of their own in Avro, by name."""
_LONG_MAX = 2**63 - 1
_KNOWN: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(kind) for name, kind in {**BRANCHES, Lanes.__name__: Lanes}.items()
}


def named(mutation: Mutation) -> tuple[str, dict[str, Any]]:
    """The name of a mutation and its fields, as JSON values."""
    if isinstance(mutation, Other):
        return mutation.name, json.loads(mutation.value)
    if isinstance(mutation, Alter):
        return Alter.__name__, {"changes": json.loads(mutation.changes)}
    return type(mutation).__name__, asdict(mutation)


def named_from(name: str, text: str) -> Mutation:
    """The mutation with a name and the JSON text of its fields. Raises: ValueError."""
    try:
        fields = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("too deep") from None
    if name == Alter.__name__ and (alter := _alter(fields)) is not None:
        return alter
    if name not in _KNOWN:
        return Other(name, text)
    mutation: Mutation = _KNOWN[name].validate_json(text, strict=True)
    if isinstance(mutation, Lanes) and abs(mutation.lanes) > _LONG_MAX:
        raise ValueError("Lanes that are no long")
    if fields.keys() != asdict(mutation).keys():
        raise ValueError(f"{name} with other fields than its own")
    return mutation


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant}, which is no JSON")


def _alter(fields: object) -> Alter | None:
    """None for changes of which one is not known here."""
    try:
        if not isinstance(fields, dict) or fields.keys() != {"changes"}:
            return None
        return Alter(changes_text(changes_from_json(fields["changes"])))
    except ValueError:
        return None

"""Names of columns for fields whose names no column can have."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from schemas.kinds.columns import IDENTIFIER, RESERVED_PREFIX

_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_MAX_CHARACTERS = 128


def column_names(fields: Iterable[str]) -> dict[str, str]:
    """A name for each field: its own, if it can be, else its letters; no two differ in case alone."""
    names, taken = dict[str, str](), set[str]()
    for field in fields:
        name = made = _column_name(field)
        number = 2
        while made.lower() in taken:
            made, number = f"{name[: _MAX_CHARACTERS - 8]}_{number}", number + 1
        taken.add(made.lower())
        names[field] = made
    return names


def _column_name(field: str) -> str:
    if IDENTIFIER.fullmatch(field) and not field.lower().startswith(RESERVED_PREFIX):
        return field
    letters = unicodedata.normalize("NFKD", field.replace("ß", "ss"))
    plain = "".join(each for each in letters if not unicodedata.combining(each))
    name = _OTHER.sub("_", plain).strip("_")[:_MAX_CHARACTERS]
    if not name:
        return "column"
    return (
        name
        if IDENTIFIER.fullmatch(name) and not name.lower().startswith("bf_")
        else f"c_{name}"[:_MAX_CHARACTERS]
    )

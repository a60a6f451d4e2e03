"""Passes over what no column asks for, in all records side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from schemas.avro.columns.cursor import Cursor
from schemas.avro.writers.meanings import Schema
from schemas.records import OddRecordError, refuse

_REAL_BYTES = {"float": 4, "double": 8}
_MOST_ITEMS = 100
"""The maximum items of a list or map: each is a step of its own, for all records."""
_MOST_DEPTH = 50
"""The maximum depth of nested values, for the same reason."""


def pass_over(cursor: Cursor, schema: Schema, named: dict[str, Schema], depth: int = 0) -> None:
    """Go on behind the next value of each, by a part of a projection's schema `writer`.

    `named` are the types that were defined before this part; its own are added.

    Raises: OddRecordError, also for a list or map of more than a hundred items or in several blocks.
    """
    refuse(depth > _MOST_DEPTH)
    inner = partial(pass_over, named=named, depth=depth + 1)
    match schema:
        case "null":
            return
        case "boolean":
            refuse((cursor.byte() > 1).any())
        case "int" | "long":
            cursor.number()
        case {"type": "enum", "name": name}:
            named[name] = "long"
            cursor.number()
        case "float" | "double":
            cursor.of_size(_REAL_BYTES[schema])
        case "string" | "bytes":
            cursor.sized()
        case {"type": "fixed", "size": size}:
            cursor.of_size(size)
        case {"type": "record", "name": name, "fields": fields}:
            named[name] = schema
            for field in fields:
                inner(cursor, field["type"])
        case {"type": "array", "items": items}:
            _pass_items(cursor, partial(inner, schema=items))
        case {"type": "map", "values": values}:
            _pass_items(cursor, partial(_pass_entry, pass_value=partial(inner, schema=values)))
        case list():
            _pass_union(cursor, schema, inner)
        case str() if schema in named:
            inner(cursor, named[schema])
        case _:
            raise OddRecordError
    cursor.check_within()


def _pass_union(cursor: Cursor, branches: list[Schema], pass_branch: Callable[[Cursor, Any], None]) -> None:
    branch = cursor.choice(len(branches))
    for index in np.flatnonzero(np.bincount(branch, minlength=len(branches))).tolist():
        rows = np.flatnonzero(branch == index)
        if len(rows) == len(branch):
            pass_branch(cursor, branches[index])
            return
        own = cursor.among(rows)
        pass_branch(own, branches[index])
        cursor.follow(rows, own)


def _pass_entry(cursor: Cursor, pass_value: Callable[[Cursor], None]) -> None:
    cursor.sized()
    pass_value(cursor)


def _pass_items(cursor: Cursor, pass_item: Callable[[Cursor], None]) -> None:
    counts = cursor.number()
    refuse(((counts < 0) | (counts > _MOST_ITEMS)).any())
    full = np.flatnonzero(counts)
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > number)
        own = cursor.among(rows)
        pass_item(own)
        cursor.follow(rows, own)
    ends = cursor.among(full)
    refuse(ends.number().any())
    cursor.follow(full, ends)

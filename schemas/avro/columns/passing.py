"""Passes over what no column asks for, in all records side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from schemas.avro.columns.cursor import Cursor, Places
from schemas.avro.writer_schemas import IS_EMPTY, Schema, has_no_bytes, unwrapped

_REAL_BYTES = {"float": 4, "double": 8}
_FEW_ITEMS, _STEPS_A_RECORD = 16, 16
"""Items of a list are a step of their own, for all records that have so many: worth it where these are many records."""
Item = int | Callable[[Cursor], None]
"""The bytes of every item, or what passes over the next one of each record."""
_MOST_DEPTH = 50
"""The maximum depth of nested values, for the same reason."""


def pass_over(cursor: Cursor, schema: Schema, depth: int = 0) -> None:
    """Go on behind the next value of each, by a schema as `writer_schemas.parsed` gives it.

    Marked are records with values nested deeper than fifty times, and those whose lists and maps are so much longer
    than others' that one record by itself is read faster.
    """
    if depth > _MOST_DEPTH:
        cursor.mark(np.ones(len(cursor.at), np.bool_))
    # Zeros are a value of any type: one that contains itself twice would have no end.
    if depth and cursor.marked.all():
        return
    inner = partial(pass_over, depth=depth + 1)
    match unwrapped(schema):
        case {"type": list() as branches}:
            _pass_union(cursor, branches, inner)
        case {"type": "boolean"}:
            cursor.mark(cursor.byte() > 1)
        case {"type": "int" | "long" | "enum"}:
            cursor.number()
        case {"type": "float" | "double" as real}:
            cursor.of_size(_REAL_BYTES[real])
        case {"type": "string" | "bytes"}:
            cursor.sized()
        case {"type": "fixed", "size": size}:
            cursor.of_size(size)
        case {"type": "record" | "error", "fields": fields, **more} if not more.get(IS_EMPTY):
            for field in fields:
                inner(cursor, field["type"])
        case {"type": "array", "items": items}:
            _pass_array(cursor, items, partial(inner, schema=items))
        case {"type": "map", "values": values}:
            _pass_items(cursor, partial(_pass_entry, pass_value=partial(inner, schema=values)))
    cursor.check_within()


def _pass_array(cursor: Cursor, items: Schema, pass_item: Callable[[Cursor], None]) -> None:
    if has_no_bytes(items):
        cursor.mark(cursor.number() != 0)  # few bytes may stand for any number of them
        return
    match unwrapped(items):
        case {"type": "fixed", "size": size}:
            _pass_items(cursor, size)
        case {"type": "float" | "double" as real}:
            _pass_items(cursor, _REAL_BYTES[real])
        case _:
            _pass_items(cursor, pass_item)


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


def _pass_items(cursor: Cursor, item: Item) -> None:
    """Passes over blocks: a count and its items each, or a negative one and their size; 0 is at the end."""
    rows, steps = np.arange(len(cursor.at)), 0
    while len(rows):
        block = cursor.among(rows)
        counts, ends = block.number(), np.zeros(len(rows), np.int64)
        block.check_within()
        if (is_sized := counts < 0).any():
            sized = np.flatnonzero(is_sized)
            own = block.among(sized)
            sizes = own.number()
            own.check_within()
            block.follow(sized, own)
            ends[sized] = own.at + sizes
            counts = np.abs(counts)
            block.mark(counts < 0)
        block.mark(counts > block.left)
        counts = np.where(block.marked, 0, counts)
        if isinstance(item, int):
            block.of_sizes(counts * item)
        else:
            steps = _pass_block(block, counts, item, steps)
        block.mark(is_sized & (block.at != ends))  # readers may go by either
        cursor.follow(rows, block)
        rows = rows[(counts != 0) & ~block.marked]


def _pass_block(block: Cursor, counts: Places, pass_item: Callable[[Cursor], None], steps: int) -> int:
    """The steps of a list after this block, if there were so many before it."""
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero((counts > number) & ~block.marked)
        if not len(rows):
            break
        steps += 1
        if steps > _FEW_ITEMS and len(rows) * _STEPS_A_RECORD < steps:
            block.mark(counts > number)
            break
        own = block.among(rows)
        pass_item(own)
        block.follow(rows, own)
    return steps

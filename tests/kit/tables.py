"""Tables of tests, their rows and changes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from schemas.position import Key
from schemas.records import Row
from schemas.table import TableSchema, declare
from tests.kit.upstream import Upstream
from tests.kit.vnodes import compute_vnode

COLUMNS = {"id": "bigint", "n": "int", "v": "string"}


def table(
    columns: dict[str, str] | None = None, key: Sequence[str] = ("id",), vnode_count: int = 2, **more: Any
) -> TableSchema:
    """A table `t`; unless columns are given its rows are (id, n, v)."""
    declared = {"name": "t", "columns": columns or COLUMNS, "primary_key": list(key), **more}
    return declare({**declared, "vnode_count": vnode_count})


def items(ids: Iterable[int], n: int = 0) -> list[Row]:
    """Rows of the default table."""
    return [(id_, n, f"item {id_}") for id_ in ids]


def vnode_of(table: TableSchema, key: Key) -> int:
    """The vnode of a primary key."""
    values = dict(zip(table.primary_key, key, strict=True))
    columns = table.select(table.distribution_key)
    return compute_vnode([values[column.name] for column in columns], columns, table.vnode_count)


def ids_of(schema: TableSchema, vnode: int) -> Iterator[int]:
    """The positive ids of a vnode in rising order, without end."""
    return (id_ for id_ in count(1) if vnode_of(schema, (id_,)) == vnode)


def churn(up: Upstream, rows: Sequence[Row], changes: int, chance: random.Random) -> None:
    """Legal changes of keys that some rows have: the rows are the values to choose from."""
    for _ in range(changes):
        row = chance.choice(rows)
        key = up.table.key_of(row)
        if key in up.rows and chance.random() < 0.4:
            up.delete(*key)
        else:
            up.put(row)

"""Keys by name: the letter of the vnode and a number, so that the vnode and the order of a key can be seen.

`a3` is the third positive id that hashes into vnode 0, `b1` the first of vnode 1. In a vnode a1 < a2 < a3.
"""

from __future__ import annotations

import re
from itertools import islice

from schemas.table import TableSchema, declare
from tests.kit.tables import ids_of

MOST_VNODES = 8
MOST_KEYS = 30
"""Of a vnode."""
_NAME = re.compile(r"([a-h])([1-9][0-9]?)")


KEYLESS = declare({"name": "t", "columns": {"v": "string"}}, has_key=False)
"""That of scenarios with `images=rows`."""


def table_of(vnodes: int) -> TableSchema:
    """The table of all others."""
    columns = {"id": "bigint", "v": "string"}
    return declare({"name": "t", "columns": columns, "primary_key": ["id"], "vnode_count": vnodes})


def by_partition(hashed: TableSchema) -> TableSchema:
    """A table with as many partitions of its upstream for vnodes."""
    declared = {
        key: value for key, value in hashed.to_dict().items() if key in ("name", "columns", "primary_key")
    }
    return declare({**declared, "distribution": "upstream"}).with_partitions(hashed.vnode_count)


class Keys:
    """Names of the ids of a table."""

    def __init__(self, table: TableSchema) -> None:
        self._ids: dict[str, int] = {}
        for vnode in range(table.vnode_count):
            ids = islice(ids_of(table, vnode), MOST_KEYS)
            self._ids |= {f"{self.vnode(vnode)}{number}": id_ for number, id_ in enumerate(ids, 1)}
        self._names = {id_: name for name, id_ in self._ids.items()}

    @staticmethod
    def vnode(number: int) -> str:
        """The letter of a vnode."""
        return "abcdefgh"[number]

    def id(self, name: str) -> int | None:
        """None if no key is called so."""
        return self._ids.get(name) if _NAME.fullmatch(name) else None

    def name(self, id_: int) -> str:
        """Of an id that has one."""
        return self._names[id_]

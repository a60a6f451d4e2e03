"""Ways to break a clean output, one fault at a time. Each is something that a wrong service could do.

A mutant changes `history.output` in place and says whether it could: a history may hold no record that
this kind of fault applies to. What it changes is never equivalent to the clean output.
"""

from __future__ import annotations

from schemas.position import Key
from schemas.records import Row
from tests.kit.histories import History, fold
from tests.kit.mutants import barriers, keys, progress, records
from tests.kit.mutants.spots import MUTANTS, change_of, key_of

__all__ = ["MUTANTS", "barriers", "folds_to_the_law", "keys", "progress", "records"]


def folds_to_the_law(history: History) -> bool:
    """True if the output folds to { x in V(b) : pk(x) <= pos(b) } at each of its barriers."""
    tables = dict(history.tables())
    for items in history.output:
        table: dict[Key, Row] = {}
        for item in items:
            if item.barrier is None:
                fold(table, key_of(item), change_of(item))
                continue
            law = {
                key: shown
                for key, row in tables[item.barrier.curr].items()
                if history.output[history.home(key)] is items
                and history.covers(item.barrier.curr, key)
                and (shown := history.show(row)) is not None
            }
            if repr(sorted(table.items(), key=repr)) != repr(sorted(law.items(), key=repr)):
                return False
    return True

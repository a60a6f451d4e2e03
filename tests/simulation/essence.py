"""What a crash leaves, as a new instance sees it: equal for two crashes that nothing can tell apart afterwards.

    outputs     what is committed or undecided, in order; transactions by what they hold, not by their numbers
    tables      rows and marks of the newest version, file by file; the replica also as the journal's plan pins it
    upstream    how much of it has arrived

Left out are the clock, the numbers of versions, transactions and producer epochs, names of files and owners, and what
was aborted: a new instance takes a new number, or looks at what the number stands for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from state.journal import PATH as JOURNAL_PATH
from state.replica import BASE_PATH, LOG_PATH
from tests.simulation.broker import Topics
from tests.simulation.storage import Files
from tests.simulation.world import Lasting

_PINNED = {"base": BASE_PATH, "log": LOG_PATH}


def essence(lasting: Lasting) -> bytes:
    """A digest of it."""
    topics, arrivals = lasting.topics, lasting.arrivals
    told = (list(_outputs(topics)), list(_tables(lasting.files)), arrivals.counts, arrivals.most)
    return blake2b(repr(told).encode(), digest_size=16).digest()


def _outputs(topics: Topics) -> Iterator[Any]:
    numbers: dict[int, int] = {}
    for place in sorted(topics.logs):
        log = topics.logs[place]
        aborted = {record.transaction for record in log if record.decision == "abort"}
        for record in log:
            if record.transaction not in aborted:
                number = numbers.setdefault(record.transaction, len(numbers))
                yield place, record._replace(transaction=number)
    for name, transaction in sorted(topics.current.items()):
        yield name, numbers.get(transaction.number), transaction.decision, list(transaction.places)
    yield topics.late


def _tables(files: Files) -> Iterator[Any]:
    for path, versions in sorted(files.tables.items()):
        rows = list(_rows(files, path, len(versions) - 1))
        marks = sorted(versions[-1].marks.items())
        if path == JOURNAL_PATH and rows:
            ((entry,),) = rows
            rows = list(_plan(files, entry["plan"]))
        yield path, rows, marks


def _rows(files: Files, path: str, version: int) -> Iterator[list[dict[str, Any]]]:
    for name in files.tables[path][version].files:
        yield _listed(files.contents[f"{path}/{name}"])


def _plan(files: Files, text: str | None) -> Iterator[Any]:
    if text is not None:
        plan = json.loads(text)
        pinned = plan.pop("replica")
        yield plan, pinned["folded"]
        for part, path in _PINNED.items():
            yield list(_rows(files, path, pinned[part]))


_LISTED: dict[int, tuple[pa.Table, list[dict[str, Any]]]] = {}
"""By identity: tables never change."""


def _listed(table: pa.Table) -> list[dict[str, Any]]:
    if id(table) not in _LISTED:
        _LISTED[id(table)] = (table, table.to_pylist())
    return _LISTED[id(table)][1]

"""Digests of what a crash leaves, as a new instance sees it: equal where nothing can tell two crashes apart.

    outputs     what is committed or undecided, in order; transactions by what they hold, not by their numbers
    tables      rows and marks of the newest version, file by file; the replica also as the journal's plan pins it
    upstream    how much of it has arrived, and how far its database is

Left out are the clock, the numbers of versions, transactions and producer epochs, names of files and owners, and what
was aborted: a new instance takes a new number, or looks at what the number stands for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from state.initial.chunks import CHUNKS_PATH, WAITING_PATH
from state.journal import PATH as JOURNAL_PATH
from state.replica import BASE_PATH, LOG_PATH
from tests.simulation.broker import Topics
from tests.simulation.storage import Files, Version
from tests.simulation.world import Durable

_PINNED = {"base": BASE_PATH, "log": LOG_PATH}


def state_digest(durable: Durable) -> bytes:
    """A digest of it."""
    topics, arrivals = durable.topics, durable.arrivals
    content = (
        list(_outputs(topics)),
        list(_tables(durable.files)),
        arrivals.counts,
        arrivals.most,
        arrivals.moment,
        durable.requests,
    )
    return blake2b(repr(content).encode(), digest_size=16).digest()


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


def _tables(files: Files) -> Iterator[str]:
    for path, versions in sorted(files.tables.items()):
        yield _version(files, path, len(versions) - 1)


_TEXTS: WeakKeyDictionary[Version, str] = WeakKeyDictionary()
"""Versions never change."""


def _version(files: Files, path: str, number: int) -> str:
    version = files.tables[path][number]
    if version not in _TEXTS:
        rows = [files.contents[f"{path}/{name}"].to_pylist() for name in version.files]
        content: list[Any] = rows
        if path == JOURNAL_PATH:
            content = [(entry["table"], _plan(files, entry["plan"])) for (entry,) in rows]
        own = sorted(version.marks.items()), version.info, str(version.schema)
        _TEXTS[version] = repr((path, content, *own))
    return _TEXTS[version]


def _plan(files: Files, text: str | None) -> Any:
    if text is None:
        return None
    plan = json.loads(text)
    pinned = plan.pop("replica")
    replica = [_version(files, path, pinned[part]) for part, path in _PINNED.items()]
    return plan, pinned["folded"], replica, _reading(files, plan.pop("reading", None))


def _reading(files: Files, reading: dict[str, Any] | None) -> Any:
    if reading is None:
        return None
    names = reading.pop("files")
    rows = [[files.contents[f"{CHUNKS_PATH}/{name}"].to_pylist() for name in each] for each in names]
    return reading, rows, _version(files, WAITING_PATH, reading.pop("waiting"))

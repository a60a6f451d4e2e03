"""Schemas that the records of a lane wait for."""

from __future__ import annotations

import pyarrow.compute as pc

from streaming.lane.changes import Changes
from streaming.source.decoded import AWAITED

MOST_IDS = 1_000
"""Reported by one lane at a time; the rest is reported once these are known."""


def awaited_ids(changes: Changes) -> frozenset[int]:
    """The schema ids in records of which the registry has not been asked yet, `MOST_IDS` at most."""
    ids = pc.unique(pc.list_flatten(changes.rows[AWAITED])).to_pylist()
    return frozenset(sorted(ids)[:MOST_IDS])

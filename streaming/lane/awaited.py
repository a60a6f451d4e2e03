"""Which schemas the records of a lane wait for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.registered import FRAME_BYTES, framed_id
from schemas.formats.protocol import Format
from streaming.lane.changes import Changes
from streaming.source.decoded import AWAITS, KEY, VALUE

MOST_IDS = 1_000
"""Reported by one lane at a time; the rest is reported once these are known."""


def awaited_ids(changes: Changes, format_: Format) -> frozenset[int]:
    """The schema ids in records of which the registry has not been asked yet, `MOST_IDS` at most.

    A record whose id the registry does not know waits for nothing: it is at fault, in every lane.
    """
    waiting = changes.ops == AWAITS
    if not waiting.any():
        return frozenset()
    rows = changes.rows.filter(pa.array(waiting))
    halves = [
        name for name, is_framed in ((KEY, format_.framed.key), (VALUE, format_.framed.value)) if is_framed
    ]
    prefixes = {
        prefix
        for name in halves
        for prefix in pc.unique(pc.binary_slice(rows[name], 0, FRAME_BYTES)).to_pylist()
        if prefix is not None
    }
    ids = {schema_id for schema_id in map(framed_id, prefixes) if schema_id is not None}
    return frozenset(sorted(format_.known.unanswered(ids))[:MOST_IDS])

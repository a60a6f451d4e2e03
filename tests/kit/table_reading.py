"""A reading of a table that never reaches a database: for what is asked of it before it goes on."""

from __future__ import annotations

from schemas.table import declare
from state.initial.start import Survey
from state.small_files import ReadPace
from state.storage import Storage
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot
from streaming.postgres.reader import ChunkReader
from streaming.service.initial.reading import DatabaseReading, ReadingOrder

TABLE = declare(
    {"name": "t", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"], "vnode_count": 4}
)
FIRST = TransactionSnapshot(10, 12, (11,))
RANGES = (KeyRange(None, (10,)), KeyRange((10,), (20,)))
TAIL = Chunk(KeyRange((20,), None), FIRST, 100, 0)
SURVEY = Survey(RANGES, TAIL, 20, 4_096, FIRST)
_SLOW = ReadPace(7)


def reading(storage: Storage, pace: ReadPace = _SLOW) -> DatabaseReading:
    def nobody() -> ChunkReader:
        raise AssertionError("no chunk is read here")

    order = ReadingOrder(
        storage=storage,
        table=TABLE,
        survey=SURVEY,
        whole=False,
        chunk_rows=10,
        readers=2,
        pace=pace,
        reader=nobody,
        ends=lambda: [0],
    )
    return DatabaseReading(order)

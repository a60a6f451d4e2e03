"""Tables of wide rows on a topic, and the memory of a process with all that it started."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import psutil
import pyarrow as pa

from schemas.avro.columnar import encode_inserts, encode_keys
from schemas.records import Op
from schemas.table import declare
from streaming.events.generator import GeneratedChanges
from streaming.events.sender import ChangeSender
from streaming.kafka.clients import KafkaSettings

WIDE = declare({"name": "wide", "columns": {"id": "bigint", "payload": "binary"}, "primary_key": ["id"]})
_CHUNK_BYTES = 16 << 20
_SAMPLE_S = 0.2
_NEWBORN_S = 0.5


def send_wide_rows(kafka: KafkaSettings, topic: str, rows: int, width: int, *, alike: bool) -> None:
    """INSERTs of so many rows with so many bytes each: the same letter again and again, or noise."""
    sender, noise = ChangeSender(kafka, topic), np.random.default_rng(1)
    count = max(1, _CHUNK_BYTES // width)
    for first in range(0, rows, count):
        ids = np.arange(first, min(first + count, rows))
        size = len(ids) * width
        data = b"x" * size if alike else noise.bytes(size)
        offsets = pa.py_buffer(np.arange(0, size + 1, width, dtype=np.int32))
        payload = pa.Array.from_buffers(pa.binary(), len(ids), [None, offsets, pa.py_buffer(data)])
        arrays = [pa.array(ids), payload]
        keys = encode_keys(WIDE.key_columns, arrays[:1])
        values = encode_inserts(WIDE.columns, arrays)
        sender.send(GeneratedChanges(keys, values, np.full(len(ids), Op.INSERT, np.int8)))
    sender.flush()


@dataclass
class Memory:
    """Of a process tree while it was watched, in MiB: resident sets added up, at most, and by kind at that moment."""

    peak_mib: float = 0.0
    by_name: dict[str, list[float]] = field(default_factory=dict)

    def look(self, root: psutil.Process) -> None:
        found: dict[str, list[float]] = {}
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                # A child of the JVM shares its memory until it has become another program.
                if process.pid == root.pid or time.time() - process.create_time() > _NEWBORN_S:
                    found.setdefault(process.name(), []).append(process.memory_info().rss / 2**20)
        total = sum(map(sum, found.values()))
        if total > self.peak_mib:
            self.peak_mib, self.by_name = total, found


@contextmanager
def watched(pid: int) -> Iterator[Memory]:
    """The memory of a process and all that it started, for the length of the block."""
    memory, ended = Memory(), threading.Event()

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            while not ended.wait(_SAMPLE_S):
                memory.look(root)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()

"""How long a start takes: a first one, one after a SIGKILL, and the building of a replica."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from schemas.epoch import unix_ms_from_epoch
from streaming.dev.bench.report.batch import Batch
from streaming.dev.bench.report.line import Line, Notify, median
from streaming.dev.bench.rig import BUILD_TIMEOUT_S, job, rig
from streaming.dev.generator import Shares
from streaming.dev.produce import ChangeSender

_CHUNK = 20_000
_UPDATES = Shares(updates=0.9, deletes=0.1)


def start(rows: int, restarts: int, folder: Path, notify: Notify) -> list[Line]:
    """The first start, and starts after a SIGKILL of everything; until the first barrier injected since is committed.

    A restart has the killed batch to recover, and the look at the upstream behind it, before that barrier.
    """
    took_ms: list[float] = []
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with bench.live(generator):
            began = time.time()
            for number in range(restarts + 1):
                notify(f"restart {number} of {restarts}" if number else "first start")
                with bench.service(state="start", jobs=[job("2s")]) as run:
                    done = run.await_batch(_injected_after(began), BUILD_TIMEOUT_S)
                    took_ms.append((done.at - began) * 1_000)
                    run.await_batch(_ended_after(done.at + random.uniform(0, 2)), 60)
                    began = run.kill()
        notify("verify")
        verdict = bench.verdict()
    first, *again = took_ms
    return [
        Line("start to the first committed barrier", first, "ms", "target", 9_000),
        Line("restart after SIGKILL, median", median(again), "ms", "target", 8_000),
        Line("restart after SIGKILL, most", max(again), "ms", "target", 20_000),
        verdict,
    ]


def _ended_after(instant: float) -> Callable[[Batch], bool]:
    return lambda batch: batch.at > instant


def _injected_after(instant: float) -> Callable[[Batch], bool]:
    """Whether a batch's last barrier was injected after an instant (Unix seconds)."""
    return lambda batch: unix_ms_from_epoch(batch.epoch) > instant * 1_000


def build(keys: int, changes: int, folder: Path, notify: Notify) -> list[Line]:
    """The replica from a topic of so many changes over so many keys: start-up, log and compaction."""
    with rig(folder) as bench:
        notify(f"writing {changes:,} changes")
        generator = bench.fill(keys)
        sender = ChangeSender(bench.kafka, bench.upstream)
        for first in range(keys, changes, _CHUNK):
            sender.send(generator.mixed(min(_CHUNK, changes - first), _UPDATES))
        sender.flush()
        notify("building")
        began = time.time()
        with bench.service(state="build", jobs=[]) as run:
            # The line of a batch before the first job comes after the compaction that it made due.
            done = run.await_changes(changes)
    what = f"initial build from the start of the command, {changes:,} changes over {keys:,} keys"
    return [Line(what, changes / (done.at - began), "changes/s", "target", 200_000)]

"""Durations of starts: a first one, one after a SIGKILL, and the building of a replica."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from schemas.epoch import unix_ms_from_epoch
from streaming.events.generator import ChangeMix
from streaming.events.sender import ChangeSender
from tests.bench.report.batch import Batch
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import BUILD_TIMEOUT_S, ServiceRun, job, rig

_CHUNK = 20_000
_CHANGES_A_KEY = 5
_UPDATES = ChangeMix(updates=0.9, deletes=0.1)


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
    """True if a batch's last barrier was injected after an instant (Unix seconds)."""
    return lambda batch: unix_ms_from_epoch(batch.epoch) > instant * 1_000


def build(changes: int, folder: Path, notify: Notify) -> list[Line]:
    """The replica from a topic of so many changes, a fifth as many keys: start-up, log and compaction."""
    keys = changes // _CHANGES_A_KEY
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
            used_s = run.cpu_s()
    what = f"initial build, {changes:,} changes over {keys:,} keys"
    took_s = done.at - began
    return [
        Line(f"{what}, from the start of the command", changes / took_s, "changes/s", "target", 200_000),
        *_beyond_the_start(what, run, changes),
        Line(f"{what}: CPU a change", used_s / changes * 1e6, "µs"),
        Line(f"{what}: peak memory of driver, JVM and workers", run.peak_mib, "MiB"),
    ]


def _beyond_the_start(what: str, run: ServiceRun, changes: int) -> list[Line]:
    """From the end of the first part of a large build on, by when every process was up: to the end of its last part."""
    if len(run.parts) <= 1:
        return []
    (began, first), *_, (ended, last) = run.parts
    return [Line(f"{what}, behind the first part", (last - first) / (ended - began), "changes/s")]

"""The row before: how long batches take with a filter that needs it, against none, in turns on one table.

The upstream is `upsert` in JSON, whose records have no row before: the service reads it from its store.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streaming.events.forms import FORMATS, EventForm
from tests.bench.compared.formats import await_complete, batch_ms
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import rig

_TURNS = 3
"""Batches of one job differ by a quarter from one minute to the next on a shared machine."""
_JOBS: dict[str, dict[str, Any]] = {"plain": {}, "filtered": {"filter": "amount >= 10"}}


def before(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """The median batch of a job whose filter needs rows before, against that of one without a filter."""
    found: dict[str, list[float]] = {name: [] for name in _JOBS}
    with rig(folder) as own:
        bench = replace(own, format=FORMATS[EventForm.UPSERT_JSON])
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with bench.service(state="before", jobs=[]) as run:
            notify("building the replica")
            run.await_changes(rows)
            for turn in range(_TURNS):
                for name, more in _JOBS.items():
                    output = f"{name}-{turn}"
                    notify(f"{output}: {seconds:g} s of live load")
                    bench.create(output, format="upsert", encoding="json", **more)
                    await_complete(run, output)
                    with bench.live(generator, rate):
                        found[name].append(batch_ms(run, seconds))
                    bench.drop(output)
    plain, filtered = map(median, found.values())
    what = f"batch at {rate:g} changes/s, {rows:,} rows, filtered by rows before"
    return [Line(what, filtered, "ms", "no filter, no rows before", plain)]

"""Outputs of each form side by side: how fast a table goes out, how many bytes that is, and how long batches take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.events.generator import ChangeGenerator
from streaming.kafka.consumer import RangeReader
from tests.bench.compared.formats import await_complete, batch_ms
from tests.bench.report.batch import reads_snapshot
from tests.bench.report.line import Line, Notify
from tests.bench.rig import Rig, ServiceRun, rig

_BASE = "change in Avro"
_FORMS: dict[str, dict[str, Any]] = {
    _BASE: {},
    "upsert in Avro by a registry": {"format": "upsert", "encoding": "avro-registry"},
    "debezium in Avro by a registry": {"format": "debezium", "encoding": "avro-registry"},
    "upsert in JSON": {"format": "upsert", "encoding": "json"},
    "debezium in JSON": {"format": "debezium", "encoding": "json"},
    "upsert in JSON with schemas": {"format": "upsert", "encoding": "json-schema"},
    "debezium in JSON with schemas": {"format": "debezium", "encoding": "json-schema"},
}


@dataclass(frozen=True, slots=True)
class _Found:
    rate: float
    row_bytes: float
    batch_ms: float


def outputs(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """Snapshots, bytes and batches of each form against those of `change`, by one service, one after the other."""
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with bench.service(state="outputs", jobs=[]) as run:
            notify("building the replica")
            run.await_changes(rows)
            found = {
                name: _measured(bench, run, generator, number, more, (seconds, rate), notify)
                for number, (name, more) in enumerate(_FORMS.items())
            }
    return [line for name in found for line in _lines(name, found, rows, rate)]


def _lines(name: str, found: dict[str, _Found], rows: int, rate: float) -> list[Line]:
    own, base = found[name], found[_BASE]
    is_base = name == _BASE

    def line(what: str, value: float, unit: str, compared: float) -> Line:
        return Line(f"{what}, {name}", value, unit, *(() if is_base else (_BASE, compared)))

    return [
        line(f"snapshot of {rows:,} rows", own.rate, "rows/s", base.rate),
        line("key and value of a row", own.row_bytes, "bytes", base.row_bytes),
        line(f"batch at {rate:g} changes/s", own.batch_ms, "ms", base.batch_ms),
    ]


def _measured(
    bench: Rig,
    run: ServiceRun,
    generator: ChangeGenerator,
    number: int,
    more: dict[str, Any],
    load: tuple[float, float],
    notify: Notify,
) -> _Found:
    output, warm_up, (seconds, rate) = f"output-{number}", f"warm-up-{number}", load
    notify(f"form {number + 1} of {len(_FORMS)}")
    # What a form runs for the first time is slow, in Java and in Python: none may gain by those before it.
    bench.create(warm_up, **more)
    await_complete(run, warm_up)
    bench.drop(warm_up)
    last = run.batches[-1].at
    bench.create(output, **more)
    done = await_complete(run, output)
    snapshot_rate = run.snapshot_rate(done, since=last)
    rows = sum(
        batch.snapshot_rows for batch in run.batches if last < batch.at <= done.at and reads_snapshot(batch)
    )
    row_bytes = _bytes_of(bench, output) / rows
    with bench.live(generator, rate):
        batch = batch_ms(run, seconds)
    bench.drop(output)
    return _Found(snapshot_rate, row_bytes, batch)


def _bytes_of(bench: Rig, output: str) -> int:
    """Of keys and values, as a reader gets them."""
    size = 0
    with RangeReader(bench.kafka) as reader:
        for partition, marks in enumerate(reader.watermarks(output)):
            for chunk in reader.read(output, {partition: (marks.earliest, marks.stable)}):
                size += sum(len(message.key() or b"") + len(message.value() or b"") for message in chunk)
    return size

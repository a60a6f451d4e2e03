"""Alert rules and dashboard: they name metrics that there are, and Prometheus's own engine understands them.

A healthy hour raises no alert, and each trouble raises its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from schemas.errors import Code
from state.values.progress import Completed, InProgress, Progress
from streaming.kafka.topics import Watermarks
from streaming.observe.metrics import Metrics
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from streaming.source.retention import Margin
from tests.kit.fed_page import DISK, QUIET, FedPage, attach
from tests.kit.monitoring import asked
from tests.kit.reports import SOURCE, barrier, job, report

ROOT = Path(__file__).parents[3]
RULES = (ROOT / "docker" / "monitoring" / "alerts.yaml").read_text()
ALERTS: dict[str, str] = {
    rule["alert"]: rule["expr"] for group in YAML(typ="safe").load(RULES)["groups"] for rule in group["rules"]
}
DASHBOARD = json.loads((ROOT / "docker" / "monitoring" / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
WATCHED = (ROOT / "docs" / "operations.md").read_text().split("## Watching")[1].split("\n## ")[0]
_MINUTES, _STEP_MS = 130, 60_000
_BEGIN_MS = 1_790_000_000_000


def named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:stream_)?backfill_\w+", text))


def test_every_metric_named_is_one() -> None:
    kept = set()
    for family in Metrics().registry.collect():
        kinds = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        kept |= {family.name + kind for kind in kinds}
    assert len(QUERIES) > 20
    assert set.union(*map(named, (*ALERTS.values(), *QUERIES))) <= kept


def test_everything_to_watch_has_an_alert() -> None:
    first = {name for row in re.findall(r"^\| (`[^|]+) \|", WATCHED, re.MULTILINE) for name in named(row)}
    assert len(first) > 10
    covered = {name.removesuffix("_bucket") for name in set.union(*map(named, ALERTS.values()))}
    assert first <= covered


def test_every_alert_says_what_to_do() -> None:
    for group in YAML(typ="safe").load(RULES)["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            assert all(rule["annotations"][key] for key in ("summary", "description"))


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def scrapes(change: Callable[[int, str], str] = lambda _, text: text) -> list[tuple[int, str]]:
    """Two hours of a service with a job under way, as its own metrics tell them, a minute apart."""
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    cache, metrics = StatusCache("up", "orders", "me", 4, vitals, SOURCE), Metrics()
    cache.disk = lambda _: DISK
    attach(vitals, lambda: QUIET)
    cache.newest = lambda: [(barrier(_BEGIN_MS), 0), (barrier(_BEGIN_MS), 0)]
    vitals.broker_answers([Watermarks(0, 7, 7), Watermarks(0, 9, 9)], [Margin(0, 7, 90_000.0)])
    metrics.interrupted(Code.BROKER_UNREACHABLE)
    progress: dict[str, dict[int, Progress]] = {"copy": {0: Completed((9,), 50), 1: InProgress((5,), 20)}}
    found = []
    for minute in range(_MINUTES):
        last = report([job("copy")], progress, rows={"copy": 70}, stored={0: 40, 1: 40})
        last = replace(last, retry_reasons=() if minute else (Code.BROKER_UNREACHABLE,))
        metrics.note(last, [0.8])
        cache.note(last)
        vitals.batch_done()
        # The age of a partition is that of the machine's clock; here it is as if asked a second after the barrier.
        text = shown(metrics.text(cache.status()).decode(), backfill_partition_age_seconds=1)
        found.append((_BEGIN_MS + minute * _STEP_MS, change(minute, text)))
    return found


def shown(text: str, **values: float) -> str:
    for name, value in values.items():
        text, count = re.subn(rf"^({name}(?:\{{[^}}]*\}})?) \S+$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert count, name
    return text


@pytest.mark.slow
def test_prometheus_reads_every_rule_and_answers_every_panel() -> None:
    series = scrapes()
    end_ms = series[-1][0]
    # As Grafana fills them in: all instances, and four times the time between two scrapes.
    panels = [query.replace("$instance", ".*").replace("$__rate_interval", "4m") for query in QUERIES]
    evaluated = asked(RULES, series, [*ALERTS.values(), *panels], end_ms)
    assert evaluated.faults == []
    assert evaluated.errors == {}
    assert {name for name, expr in ALERTS.items() if evaluated.series[expr]} == set()
    assert {query for query in panels if not evaluated.series[query]} == set()


def test_the_state_s_size_is_known_by_part_and_not_a_number_where_there_is_none() -> None:
    text = scrapes()[-1][1]
    assert 'backfill_state_bytes{part="rows"} 4.294967296e+09' in text
    assert 'backfill_state_bytes{part="initial"} NaN' in text
    assert 'backfill_maintenance_failures{work="merge_of_log_files"} 0.0' in text


def test_work_of_a_run_that_is_over_has_no_figures_left() -> None:
    page, metrics = FedPage(), Metrics()
    assert b"backfill_maintenance_failures{" in metrics.text(page.cache.status())
    page.maintenance = ()
    assert b"backfill_maintenance_failures{" not in metrics.text(page.cache.status())


def grows(name: str, by: float, first: float = 0) -> Callable[[int, str], str]:
    return lambda minute, text: shown(text, **{name: first + by * minute})


def is_at(**values: float) -> Callable[[int, str], str]:
    return lambda _, text: shown(text, **values)


def late(minute: int, text: str) -> str:
    """Every barrier takes a quarter of a minute."""
    below = r'^(backfill_barrier_latency_seconds_bucket\{le="(?:0|1|2|3|4|6|10)\.\d+"\}) \S+$'
    return re.sub(below, r"\1 0", text, flags=re.MULTILINE)


def fails_again_and_again(minute: int, text: str) -> str:
    """The cleaning does, and nothing else."""
    cleaning = r'^(backfill_maintenance_failures\{work="cleaning"\}) \S+$'
    return re.sub(cleaning, rf"\1 {minute}", text, flags=re.MULTILINE)


TROUBLES: Mapping[str, Callable[[int, str], str]] = {
    "BackfillAbsent": lambda *_: "",
    "BackfillSuspended": is_at(backfill_suspended=1),
    "BackfillNotReady": is_at(backfill_ready=0),
    "BackfillNoBatch": is_at(backfill_last_batch_age_seconds=75),
    "BackfillUpstreamHeld": is_at(backfill_upstream_held_seconds=61),
    "BackfillBarriersLate": late,
    "BackfillFallsBehind": grows("backfill_partition_age_seconds", 30),
    "BackfillInterrupted": grows("backfill_interruptions_total", 1),
    "BackfillLanesTriedAgain": grows("backfill_lanes_tried_again_total", 1),
    "BackfillRecordsParked": grows("backfill_parked_records_total", 1),
    "BackfillRecordsIgnored": grows("backfill_ignored_records_total", 1),
    "BackfillRetentionShort": is_at(backfill_retention_margin_seconds=1_800),
    "BackfillMaintenanceFails": fails_again_and_again,
    "BackfillDiskLow": is_at(backfill_disk_low=1),
    "BackfillColumnsAbsent": is_at(backfill_absent_columns=1),
    "BackfillNotCompacted": grows("backfill_compaction_age_seconds", 60, first=3_600),
}


@pytest.mark.parametrize("alert", ALERTS)
def test_a_trouble_raises_its_own_alert_and_no_other(alert: str) -> None:
    series = scrapes(TROUBLES[alert])
    evaluated = asked("groups: []", series, list(ALERTS.values()), series[-1][0])
    assert {name for name, expr in ALERTS.items() if evaluated.series[expr]} == {alert}


def test_a_query_that_is_wrong_is_seen() -> None:
    evaluated: Any = asked("groups: [{name: x, rules: [{alert: A, expr: 'sum('}]}]", [], ["nosuch("], 0)
    assert evaluated.faults
    assert evaluated.errors

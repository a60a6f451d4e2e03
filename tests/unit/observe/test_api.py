"""The API: what it shows, which requests may change something, and that no request at all makes it fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from schemas.errors import Code, EnvironmentProblem
from schemas.formats.row_names import FieldsSeen
from schemas.records import Add, Alter, Drop, Lanes, Pause, Resume, Throttle
from state.values.progress import Completed, InProgress, Progress
from streaming.kafka.topics import Watermarks
from streaming.observe.api import build
from streaming.observe.gateway import ControlApi
from streaming.observe.metrics import Metrics
from streaming.observe.middleware import MAX_BODY_BYTES, ApiAuth
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from streaming.source.retention import Margin
from tests.kit.api_requests import Requests
from tests.kit.reports import SOURCE, barrier, job, report

TOKEN = "a token of the test"
AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


def vitals(clock: Callable[[], float] = time.monotonic) -> Vitals:
    return Vitals("up", 1_000, late_s=30.0, injects=False, clock=clock)


def application(
    token: str | None = TOKEN, *, is_local: bool = True, clock: Callable[[], float] = time.monotonic
) -> tuple[FastAPI, StatusCache, Metrics, Requests]:
    cache, metrics, requests = (
        StatusCache("up", "orders", "me", 4, vitals(clock), SOURCE),
        Metrics(),
        Requests(),
    )
    cache.newest = lambda: [(barrier(1_800_000_000_000), 0), (None, 2)]
    door = ApiAuth(token, is_local=is_local)
    app = build(cache, metrics, cast("ControlApi", requests), door, ["testserver"])
    return app, cache, metrics, requests


@pytest.fixture
def served() -> Iterator[tuple[TestClient, Requests]]:
    app, cache, metrics, requests = application()
    progress: dict[str, dict[int, Progress]] = {"copy": {0: Completed((9,), 50), 1: InProgress((5,), 20)}}
    last = report([job("copy", rate_limit=500)], progress, rows={"copy": 70}, stored={0: 40, 1: 40, 2: 30})
    metrics.note(last, cache.note(last))
    cache.vitals.batch_done()
    with TestClient(app) as client:
        yield client, requests


def test_the_status_tells_every_job_and_every_partition(served: tuple[TestClient, Requests]) -> None:
    status = served[0].get("/api/v1/status").json()
    (copy,) = status["jobs"]
    assert (copy["phase"], copy["rows_read"], copy["rows_left"], copy["vnodes_done"]) == (
        "backfilling",
        70,
        50,
        1,
    )
    assert copy["share"] == pytest.approx(70 / 120)
    assert copy["rate_limit"] == 500
    assert [each["barriers_waiting"] for each in status["partitions"]] == [0, 2]
    assert status["partitions"][1]["barrier"] is None
    assert (status["condition"], status["replica_rows"], status["can_steer"]) == ("serving", 110, False)


def test_the_heat_map_has_every_vnode_with_its_lane(served: tuple[TestClient, Requests]) -> None:
    output = served[0].get("/api/v1/jobs/copy/output").json()
    assert output == {
        "offsets": 110,
        "readers": [{"group": "warehouse", "state": "STABLE", "behind": 7}],
        "unasked": 0,
    }
    assert served[0].get("/api/v1/jobs/no-such-job/output").status_code == 404
    vnodes = served[0].get("/api/v1/jobs/copy/vnodes").json()
    assert [each["state"] for each in vnodes] == ["completed", "in progress", "not started", "not started"]
    assert [each["lane"] for each in vnodes] == [0, 0, 1, 1]
    assert vnodes[1]["share"] == 0.5
    assert served[0].get("/api/v1/jobs/other/vnodes").status_code == 404


def test_metrics_are_prometheus_with_the_names_of_the_original(served: tuple[TestClient, Requests]) -> None:
    answer = served[0].get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (read,) = (
        sample.value
        for sample in families["stream_backfill_snapshot_read_row_count"].samples
        if sample.name.endswith("_total")
    )
    assert read == 70
    assert "stream_backfill_upstream_output_row_count" in families
    assert "backfill_barrier_latency_seconds" in families
    vnodes = {sample.labels["state"]: sample.value for sample in families["backfill_vnodes"].samples}
    assert vnodes == {"completed": 1, "in_progress": 1, "not_started": 2}


def test_readiness_is_that_barriers_come_out() -> None:
    now_s = [0.0]
    app, cache, *_ = application(clock=lambda: now_s[0])

    def said(client: TestClient) -> tuple[int, str]:
        answer = client.get("/readyz")
        return answer.status_code, answer.text.strip()

    with TestClient(app) as client:
        assert client.get("/healthz").status_code == 200
        assert said(client) == (503, "starting")
        cache.vitals.streams()
        cache.vitals.batch_done()
        assert said(client) == (200, "serving")
        now_s[0] = 31.0
        assert said(client) == (503, "waiting for barriers")
        assert client.get("/api/v1/status").json()["reason"]["code"] == "NO_BARRIERS"
        cache.vitals.interrupted(AWAY)
        assert said(client) == (503, "degraded")
        status = client.get("/api/v1/status").json()
        assert (status["reason"]["code"], status["batch_age_s"], status["late_s"]) == (
            "BROKER_UNREACHABLE",
            31.0,
            30.0,
        )
        cache.vitals.batch_done()
        assert said(client) == (200, "serving")
        cache.vitals.stops()
        assert said(client) == (503, "stopping")


def test_columns_that_rows_lack_show_in_the_status_and_in_metrics() -> None:
    app, cache, *_ = application()
    cache.vitals.fields = FieldsSeen(12_000, ("a",), ("b",), ("x", "y"), more=True)
    with TestClient(app) as client:
        assert client.get("/api/v1/status").json()["fields"] == {
            "rows": 12_000,
            "lost": ["a"],
            "never": ["b"],
            "undeclared": ["x", "y"],
            "more": True,
        }
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = {s.name: s.value for family in families for s in family.samples}
    assert samples["backfill_absent_columns"] == 2
    assert samples["backfill_undeclared_fields"] == 3


def test_an_open_transaction_shows_in_the_status_and_in_metrics() -> None:
    now_s = [0.0]
    app, cache, *_ = application(clock=lambda: now_s[0])
    cache.vitals.batch_done()
    cache.vitals.broker_answers([Watermarks(0, 7, 7), Watermarks(0, 5, 9)], [Margin(1, 3, 90.5)])
    now_s[0] = 40.0
    with TestClient(app) as client:
        status = client.get("/api/v1/status").json()
        assert status["condition"] == "upstream stuck"
        assert [(each["unstable"], each["held_s"]) for each in status["partitions"]] == [(0, None), (4, 40.0)]
        assert [each["margin_s"] for each in status["partitions"]] == [None, 90.5]
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
    assert samples["backfill_retention_margin_seconds", "1"] == 90.5
    assert ("backfill_retention_margin_seconds", "0") not in samples
    assert samples["backfill_condition", "upstream_stuck"] == 1
    assert sum(value for name, value in samples.items() if name[0] == "backfill_condition") == 1
    assert samples[("backfill_ready",)] == 0
    assert samples[("backfill_last_batch_age_seconds",)] == 40
    assert samples["backfill_upstream_unstable_records", "1"] == 4
    assert samples["backfill_upstream_held_seconds", "1"] == 40


@pytest.mark.parametrize("by_partition", [False, True])
def test_vnodes_that_are_partitions_are_counted_by_the_first_batch(by_partition: bool) -> None:
    cache = StatusCache("up", "orders", "me", 0, vitals(), SOURCE, by_partition=by_partition)
    last = report(at_ms=1_800_000_000_000)
    cache.note(last)
    assert cache.vnode_count == (last.vnode_count if by_partition else 0)


def test_clocks_that_are_set_make_no_rate_latency_or_age_absurd() -> None:
    wall_s, now_s = [1_800_000_000.0], [0.0]
    cache = StatusCache(
        "up", "orders", "me", 4, vitals(), SOURCE, clock=lambda: wall_s[0], steady=lambda: now_s[0]
    )
    newest = [barrier(1_800_000_000_000)]
    cache.newest = lambda: [(newest[0], 0)]
    for step_s in (0, 0, 3_600, -3_600, -7_200, 0, 7_200):
        now_s[0] += 1.0
        wall_s[0] += 1.0
        injected_ms = round(wall_s[0] * 1_000) - 250
        newest[0] = barrier(injected_ms)
        wall_s[0] += step_s  # between the injection and the batch
        cache.note(report(at_ms=injected_ms))
        status, point = cache.status(), cache.history()[-1]
        assert status.barrier_age_s is not None
        assert status.latency.p99_s is not None
        assert status.partitions[0].age_s is not None
        assert 0 <= status.barrier_age_s <= 8
        assert 0 <= status.latency.p99_s <= 8
        assert 0 <= status.partitions[0].age_s <= 8
        assert point.changes_per_s == pytest.approx(10)


def test_every_change_needs_the_token_and_becomes_a_mutation(served: tuple[TestClient, Requests]) -> None:
    client, requests = served
    new = {"name": "other", "output": "other-out", "filter": "amount > 3"}
    calls: list[tuple[str, str, object]] = [
        ("POST", "/api/v1/jobs", new),
        ("POST", "/api/v1/jobs/copy/pause", None),
        ("POST", "/api/v1/jobs/copy/resume", None),
        ("POST", "/api/v1/jobs/copy/throttle", {"rate_limit": 7}),
        ("POST", "/api/v1/jobs/copy/throttle", {"rate_limit": None}),
        ("DELETE", "/api/v1/jobs/copy", None),
        ("POST", "/api/v1/lanes", {"lanes": 3}),
        ("POST", "/api/v1/alter", {"changes": [{"add": {"c": "int"}}, {"ignore": "d"}]}),
    ]
    for method, path, body in calls:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": f"Basic {TOKEN}"}):
            assert client.request(method, path, json=body, headers=headers).status_code == 401
    assert requests.sent == []
    for method, path, body in calls:
        assert client.request(method, path, json=body, headers=WITH_TOKEN).status_code == 202
    assert isinstance(requests.sent[0], Add)
    assert requests.sent[1:] == [
        Pause("copy"),
        Resume("copy"),
        Throttle("copy", 7),
        Throttle("copy", None),
        Drop("copy"),
        Lanes(3),
        Alter('[{"add":{"c":"int"}},{"ignore":"d"}]'),
    ]


def test_a_job_is_planned_without_being_created(served: tuple[TestClient, Requests]) -> None:
    client, requests = served
    new = {"name": "other", "output": "other-out", "columns": ["id"], "format": "upsert"}
    assert client.post("/api/v1/jobs/plan", json=new).status_code == 401
    answer = client.post("/api/v1/jobs/plan", json=new, headers=WITH_TOKEN)
    assert answer.status_code == 200
    plan = answer.json()
    assert (plan["output_rows"], plan["columns"], plan["form"]) == (55, ["id"], "upsert json")
    taken = client.post("/api/v1/jobs/plan", json={**new, "name": "copy"}, headers=WITH_TOKEN)
    assert (taken.status_code, taken.json()["code"]) == (409, "JOB_EXISTS")
    assert requests.sent == []


def test_what_is_wrong_has_the_code_of_the_command_line(served: tuple[TestClient, Requests]) -> None:
    client, requests = served

    def said(path: str, body: object) -> tuple[int, str]:
        answer = client.post(path, json=body, headers=WITH_TOKEN)
        return answer.status_code, answer.json().get("code", "")

    assert said("/api/v1/jobs/none/pause", None) == (404, "JOB_UNKNOWN")
    assert said("/api/v1/jobs", {"name": "other", "output": "o", "filter": "now() > 3"}) == (
        422,
        "EXPRESSION_NOT_ALLOWED",
    )
    assert said("/api/v1/jobs", {"name": "Other", "output": "o"}) == (422, "JOB_NAME_INVALID")
    now = {"name": "other", "output": "o", "from": "now"}
    assert said("/api/v1/jobs", {**now, "format": "change"}) == (422, "JOB_INVALID")
    assert said("/api/v1/jobs/plan", {**now, "format": "upsert"})[0] == 200
    assert said("/api/v1/jobs/copy/throttle", {"rate_limit": -1})[0] == 422
    assert [said("/api/v1/lanes", {"lanes": number})[0] for number in (0, -1, 1.5, "2", None)] == [422] * 5
    assert said("/api/v1/alter", {"changes": []})[0] == 422
    wrong: list[object] = [
        {"drop": "c"},
        {},
        {"add": {}},
        {"add": {"c": "int", "d": "int"}},
        {"rename": {"c": 1}},
    ]
    wrong.append({"add": {"c": "int"}, "ignore": "d"})
    assert [said("/api/v1/alter", {"changes": [each]})[0] for each in wrong] == [422] * len(wrong)
    assert requests.sent == []


def test_without_a_token_in_the_configuration_nothing_can_be_changed() -> None:
    app, _, _, requests = application(token=None)
    with TestClient(app) as client:
        answer = client.post("/api/v1/jobs/copy/pause", headers={"Authorization": "Bearer "})
        assert (answer.status_code, answer.json()["next_step"]) == (
            403,
            "set http.token_file or http.token_env",
        )
        assert client.get("/api/v1/status").status_code == 200
    assert requests.sent == []


def test_elsewhere_than_on_this_machine_looking_needs_the_token_too() -> None:
    app, *_ = application(is_local=False)
    with TestClient(app) as client:
        for path in (
            "/api/v1/status",
            "/api/v1/history",
            "/api/v1/events",
            "/metrics",
            "/api/v1/jobs/copy/vnodes",
        ):
            assert client.get(path).status_code == 401
        assert client.get("/api/v1/status", headers=WITH_TOKEN).status_code == 200
        assert client.get("/healthz").status_code == 200


def test_another_host_and_a_large_body_are_refused(served: tuple[TestClient, Requests]) -> None:
    client, _ = served
    assert client.get("/api/v1/status", headers={"Host": "evil.example"}).status_code == 400
    large = b"x" * (MAX_BODY_BYTES + 1)
    assert client.post("/api/v1/jobs", content=large, headers=WITH_TOKEN).status_code == 413
    assert (
        client.post("/api/v1/jobs", content=iter([large[:9], large]), headers=WITH_TOKEN).status_code == 413
    )


def test_the_page_loads_nothing_from_elsewhere(served: tuple[TestClient, Requests]) -> None:
    client, _ = served
    scripts = ("charts", "page", "sentence", "hour", "facts", "jobs", "new-job", "table")
    kinds = {"/": "text/html", "/page.css": "text/css", **{f"/{name}.js": "javascript" for name in scripts}}
    for path, kind in kinds.items():
        answer = client.get(path)
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "https:" not in answer.text
        assert "http:" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert client.get("/page/../api.py").status_code == 404

"""A table that is read from its database: what status, metrics and API say of it, and how its pace is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from schemas.errors import BackfillError, Code
from schemas.settings.http import HttpConfig
from state.small_files import ReadPace, kept_pace
from state.storage import Storage
from streaming.control.service_api import read_condition, set_pace
from streaming.observe.middleware import ApiAuth
from streaming.observe.server import served
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from tests.kit.api_requests import idle_api
from tests.kit.reports import SOURCE, job, report
from tests.kit.secure import private
from tests.kit.table_reading import reading

_TOKEN = "a token of the test"
_WITH_TOKEN = {"Authorization": f"Bearer {_TOKEN}"}


@pytest.fixture
def cache(storage: Storage) -> StatusCache:
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    found = StatusCache("up", "orders", "me", 4, vitals, SOURCE, can_steer=True)
    found.note(report([job("copy")]))
    vitals.reads = reading(storage)
    vitals.reads.begin()
    return found


@pytest.fixture
def client(cache: StatusCache) -> Iterator[TestClient]:
    app = idle_api(cache, ApiAuth(_TOKEN, is_local=True), ["testserver"])
    with TestClient(app) as found:
        yield found


def test_status_and_metrics_say_how_far_it_is(client: TestClient, cache: StatusCache) -> None:
    shown = client.get("/api/v1/status").json()["reading"]
    assert (shown["rows"], shown["of"], shown["rate_limit"], shown["paused"]) == (0, 20, 7, False)

    def samples() -> dict[str, float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    assert (samples()["backfill_initial_rows_of"], samples()["backfill_initial_trouble"]) == (20, 0)
    assert cache.vitals.reads is not None
    cache.vitals.reads.close()
    assert client.get("/api/v1/status").json()["reading"] is None
    assert samples()["backfill_initial_rows_of"] == 0


def test_a_state_whose_table_is_there_has_none_to_read(
    client: TestClient, cache: StatusCache, storage: Storage
) -> None:
    """Batches never begin it, for their plans hold no reading any more."""
    cache.vitals.reads = reading(storage)
    assert client.get("/api/v1/status").json()["reading"] is None
    assert client.post("/api/v1/initial/pause", headers=_WITH_TOKEN).status_code == 409


def test_its_pace_needs_the_token_and_is_kept(client: TestClient, storage: Storage) -> None:
    calls: list[tuple[str, object, ReadPace]] = [
        ("throttle", {"rate_limit": 3}, ReadPace(3)),
        ("pause", None, ReadPace(3, paused=True)),
        ("throttle", {"rate_limit": None}, ReadPace(None, paused=True)),
        ("resume", None, ReadPace(None)),
    ]
    for action, body, pace in calls:
        before = kept_pace(storage)
        assert client.post(f"/api/v1/initial/{action}", json=body).status_code == 401
        assert kept_pace(storage) == before
        answer = client.post(f"/api/v1/initial/{action}", json=body, headers=_WITH_TOKEN)
        assert (answer.status_code, answer.json()["paused"]) == (200, pace.paused)
        assert kept_pace(storage) == pace
    refused = client.post("/api/v1/initial/throttle", json={"rate_limit": -1}, headers=_WITH_TOKEN)
    assert refused.status_code == 422


def test_a_table_that_is_there_has_no_pace(client: TestClient, cache: StatusCache) -> None:
    cache.vitals.reads = None
    refused = client.post("/api/v1/initial/pause", headers=_WITH_TOKEN)
    assert (refused.status_code, refused.json()["code"]) == (409, "INITIAL_NOT_READ")


def test_the_command_asks_the_service_itself(cache: StatusCache, storage: Storage, tmp_path: Path) -> None:
    app = idle_api(cache, ApiAuth(_TOKEN, is_local=True))
    token = {"token_file": str(private(tmp_path / "token", _TOKEN))}
    with served(app, HttpConfig.model_validate({"listen": "127.0.0.1:0", **token})) as address:
        listen = {"listen": address.removeprefix("http://")}
        config = HttpConfig.model_validate({**listen, **token})
        assert set_pace(config, "throttle", 5)["rate_limit"] == 5
        assert set_pace(config, "pause")["paused"] is True
        answer = read_condition(config)
        assert answer is not None
        assert answer.reading is not None
        assert answer.reading["paused"] is True
        assert kept_pace(storage) == ReadPace(5, paused=True)
        cache.vitals.reads = None
        refused = [(config, Code.INITIAL_NOT_READ), (HttpConfig.model_validate(listen), Code.USAGE)]
        for each, code in refused:
            with pytest.raises(BackfillError) as caught:
                set_pace(each, "resume")
            assert caught.value.code is code
    for each, code in [(config, Code.NOT_SERVED), (HttpConfig.model_validate({}), Code.USAGE)]:
        with pytest.raises(BackfillError) as caught:
            set_pace(each, "resume")
        assert caught.value.code is code

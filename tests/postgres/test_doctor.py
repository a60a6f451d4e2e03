"""`backfill doctor` looks at the table of PostgreSQL that a state starts from, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from streaming.broker.embedded import free_port
from streaming.cli.app import main
from streaming.postgres.session import Access
from tests.kit.connect.table import Database
from tests.kit.local_http import serving
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
MADE = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
SUBJECTS = ("slot", "columns", "rights", "key", "events")


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`asked(database, access=…, slot=…)`: the exit status, and the findings by subject."""

    def ask(database: Database, access: Access | None = None, **start: Any) -> tuple[int, dict[str, Any]]:
        dsn_file = str((access or database.access).dsn.file)
        table = {"name": "orders", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]}
        config = {
            "upstream": {
                "topic": "orders",
                "format": "debezium",
                "time": "microseconds",
                "decimal": "precise",
            },
            "state": str(tmp_path / "state"),
            "table": table,
            "initial": {
                "postgres": {"dsn_file": dsn_file, "table": "public.orders", "slot": database.name, **start}
            },
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        status = main(["doctor", str(tmp_path / "config.yaml"), "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        return status, {each["subject"].split(", ")[-1].split(" ")[0]: each for each in findings}

    return ask


def test_a_table_that_a_state_can_start_from_has_a_line_for_each_thing_that_it_needs(
    database_of: DatabaseOf, asked: Any
) -> None:
    database = database_of(MADE)
    _, found = asked(database)
    assert {found[name]["verdict"] for name in ("postgres", *SUBJECTS)} == {"ok"}
    assert database.name in found["postgres"]["found"]
    assert found["slot"]["found"].startswith("pgoutput, active, ")
    assert found["slot"]["found"].endswith(" MiB of the log are kept for it")
    assert found["events"]["found"] == f"REPLICA IDENTITY DEFAULT, published by {database.name}"


def test_each_thing_that_is_wrong_is_a_line_with_what_to_do(database_of: DatabaseOf, asked: Any) -> None:
    database = database_of(
        "CREATE TABLE orders (id bigint, note text, PRIMARY KEY (id, note))",
        "ALTER TABLE orders REPLICA IDENTITY NOTHING",
    )
    database.execute("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    database.pause()
    status, found = asked(database, database.as_role("reader"))
    assert status == 7
    codes = {
        name: found[name]["found"].split(" ")[0] for name in SUBJECTS if found[name]["verdict"] == "failed"
    }
    assert codes == {
        "slot": "POSTGRES_NOT_STREAMING",
        "rights": "POSTGRES_RIGHTS",
        "key": "POSTGRES_KEY_MISFIT",
        "events": "POSTGRES_EVENTS_MISFIT",
    }
    assert "REPLICA IDENTITY NOTHING" in found["events"]["found"]
    assert all(found[name]["next_step"] for name in codes)
    assert asked(database, slot="nobodys")[1]["slot"]["found"].startswith("POSTGRES_SLOT_MISSING")


def test_a_server_that_does_not_answer_is_one_line_without_a_secret(
    database_of: DatabaseOf, asked: Any
) -> None:
    database = database_of(MADE)
    away = database.as_role("postgres", port=str(free_port()), password="hush")
    status, found = asked(database, away)
    assert status == 7
    assert found["postgres"]["found"].startswith("POSTGRES_UNREACHABLE")
    assert "hush" not in json.dumps(found)
    assert "slot" not in found


def test_a_connector_is_held_to_the_slot_and_one_that_is_away_is_named(
    database_of: DatabaseOf, asked: Any
) -> None:
    database = database_of(MADE)
    away = f"http://127.0.0.1:{free_port()}/connectors/shop"
    _, found = asked(database, connector_url=away)
    assert found["connector"]["found"].startswith("CONNECTOR_UNREACHABLE")
    assert found["slot"]["verdict"] == "ok"
    with connect_says({"slot.name": "another"}) as url:
        _, found = asked(database, connector_url=url)
    assert found["connector"]["found"].startswith("CONNECTOR_MISFIT")
    assert found["connector"]["next_step"]


@contextmanager
def connect_says(settings: dict[str, str]) -> Iterator[str]:
    """The URL of a connector with these settings, over HTTP."""
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
    config = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", **settings}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(status if self.path.endswith("/status") else config).encode())

        def log_message(self, *_: object) -> None:
            return

    with serving(Handler) as address:
        yield f"{address}/connectors/shop"

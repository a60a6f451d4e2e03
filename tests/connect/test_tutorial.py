"""docs/tutorial-postgres.md, carried out on a real database with a real connector."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import partitions_of
from tests.kit.connect.platform import Platform
from tests.kit.pages import Command, Walk, steps
from tests.kit.real import await_condition

pytestmark = [pytest.mark.connect, pytest.mark.spark, pytest.mark.timeout(900)]
PAGE = Path(__file__).parents[2] / "docs" / "tutorial-postgres.md"
TOPIC = "shop.public.orders"
PSQL = """#!{python}
import sys
import psycopg

quiet, file, name, url = sys.argv[1:]
assert (quiet, file) == ("--quiet", "-f")
with psycopg.connect(url, autocommit=True) as session, open(name) as statements:
    session.execute(statements.read())
"""
"""What the page asks of psql, which the database's archive does not have."""


def test_a_table_becomes_a_topic_of_rows_that_follows_it(
    platform: Platform, bootstrap: str, tmp_path: Path
) -> None:
    psql = tmp_path / "programs" / "psql"
    psql.parent.mkdir()
    psql.write_text(PSQL.format(python=sys.executable), encoding="utf-8")
    psql.chmod(psql.stat().st_mode | stat.S_IXUSR)
    platform.postgres.create("shop")
    folder = tmp_path / "walk"
    folder.mkdir()
    texts = {
        "127.0.0.1:9092": bootstrap,
        "127.0.0.1:5432": f"127.0.0.1:{platform.postgres.port}",
        '"5432"': f'"{platform.postgres.port}"',
        "http://127.0.0.1:8083/connectors": platform.connect.url_of("").rstrip("/"),
    }
    with Walk(folder, texts, psql.parent) as walk:
        changed = False
        for step in steps(PAGE.read_text(encoding="utf-8")):
            if isinstance(step, Command) and step.line.startswith("backfill inspect"):
                await_condition(lambda: partitions_of(KafkaSettings(bootstrap), TOPIC) is not None, TOPIC)
                platform.postgres.await_read("shop", "debezium")
            if isinstance(step, Command) and changed and "--fold" in step.line:
                walk.until(step)
            else:
                walk.take(step)
            changed = changed or (isinstance(step, Command) and "changes.sql" in step.line)
    platform.postgres.end_reading("debezium")

"""The producer in docs/formats.md, as it stands there, and what the page says that `consume` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from streaming.cli.app import load as load_command
from tests.conftest import TopicFactory

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
[PRODUCE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[PRINTED] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COLUMNS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "placed": "timestamp"}


def test_consume_reads_what_the_page_produces(bootstrap: str, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(1, name="orders")
    code = PRODUCE.replace("127.0.0.1:9092", bootstrap).replace('"orders"', repr(name))
    assert code.count(bootstrap) == code.count(name) == 1
    exec(code, {})  # noqa: S102 (the page's own)
    config = {
        "kafka": {"bootstrap": bootstrap},
        "upstream": {"topic": name, "format": "upsert"},
        "state": str(tmp_path / "state"),
        "table": {"name": "orders", "columns": COLUMNS, "primary_key": ["id"]},
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    result = CliRunner().invoke(load_command("consume"), ["-c", str(file)])
    assert result.stdout.replace(name, "orders") == PRINTED

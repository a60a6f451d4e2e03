"""The producers in docs/formats.md, as they stand there, and what the page says that `consume` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from streaming.cli.app import load as load_command
from tests.conftest import TopicFactory
from tests.kit.registry import FakeRegistry

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
PRODUCE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COLUMNS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)"}


def is_as_printed(number: int, bootstrap: str, name: str, folder: Path, **config: Any) -> bool:
    """Whether `consume` prints what the page says of its example of this number."""
    code = PRODUCE[number].replace("127.0.0.1:9092", bootstrap).replace('"orders"', repr(name))
    code = code.replace("http://127.0.0.1:8081", config.get("registry", {}).get("url", ""))
    assert bootstrap in code
    assert name in code
    exec(code, {})  # noqa: S102 (the page's own)
    file = folder / "config.json"
    file.write_text(json.dumps({"kafka": {"bootstrap": bootstrap}, "state": str(folder / "state"), **config}))
    result = CliRunner().invoke(load_command("consume"), ["-c", str(file)])
    return bool(result.stdout.replace(name, "orders") == PRINTED[number])


def test_consume_reads_what_the_page_produces(bootstrap: str, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(1, name="orders")
    table = {"name": "orders", "columns": {**COLUMNS, "placed": "timestamp"}, "primary_key": ["id"]}
    upstream = {"topic": name, "format": "upsert"}
    assert is_as_printed(0, bootstrap, name, tmp_path, upstream=upstream, table=table)


def test_consume_reads_what_the_page_produces_with_a_registry(
    bootstrap: str, topic: TopicFactory, tmp_path: Path, registry: FakeRegistry
) -> None:
    name = topic(1, name="orders")
    config = {
        "upstream": {"topic": name, "format": "upsert", "encoding": "avro-registry"},
        "table": {"name": "orders", "columns": COLUMNS, "primary_key": ["id"]},
        "registry": {"url": registry.url},
    }
    assert is_as_printed(1, bootstrap, name, tmp_path, **config)


def test_consume_reads_rows_without_identity_as_the_page_says(
    bootstrap: str, topic: TopicFactory, tmp_path: Path
) -> None:
    name, columns = topic(1, name="orders"), {"region": "string", "amount": "decimal(18,2)"}
    upstream, table = {"topic": name, "format": "append"}, {"name": "orders", "columns": columns}
    assert is_as_printed(2, bootstrap, name, tmp_path, upstream=upstream, table=table)
    assert len(PRODUCE) == len(PRINTED) == 3

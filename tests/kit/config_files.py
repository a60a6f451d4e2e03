"""Configuration files that are written, read and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.settings.config import ServiceConfig, load

EXAMPLE = """
kafka:
  bootstrap: 127.0.0.1:9092      # left out: the embedded broker is started
upstream: orders
state: ./backfill-state
barriers: inject
barrier_interval: 1s
lanes: 4
table:
  name: orders
  columns: {id: bigint, region: string, amount: "decimal(18,2)", note: string}
  primary_key: [id]
  distribution_key: [id]
  vnode_count: 64
jobs:
  - name: orders-copy
    output: orders-copy
    columns: [id, amount]
    filter: "amount >= 10 AND region IN ('EU', 'US')"
    output_partitions: 4
    rate_limit: null
    latency_budget: 2s
"""
TABLE = {"name": "orders", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]}
LEAST: dict[str, Any] = {"upstream": "orders", "state": "state", "table": TABLE}


def write(folder: Path, declared: Any) -> Path:
    path = folder / "backfill.yaml"
    path.write_text(declared if isinstance(declared, str) else json.dumps(declared), encoding="utf-8")
    return path


def read(folder: Path, declared: Any) -> ServiceConfig:
    return load(write(folder, declared))


def refusal_of(folder: Path, declared: Any, code: Code = Code.CONFIG_INVALID) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(folder, declared)
    assert caught.value.code is code, caught.value
    assert str(caught.value.where).startswith(str(folder / "backfill.yaml"))
    assert caught.value.exit_status == 2
    assert str(caught.value).isprintable()
    return caught.value

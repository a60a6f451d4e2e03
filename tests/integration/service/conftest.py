"""A stage for each test: an upstream topic, a state folder, and the services that the test runs on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from schemas.table import declare
from streaming.kafka.clients import KafkaSettings
from tests.kit.real import SetUp, Stage
from tests.kit.real_upstream import RealUpstream

ORDERS = {
    "name": "orders",
    "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"},
    "primary_key": ["id"],
    "vnode_count": 16,
}


@pytest.fixture
def set_up(bootstrap: str, spark: SparkSession, tmp_path: Path) -> Iterator[SetUp]:
    """`set_up(*jobs, table=…, partitions=2, lanes=2, beside=False)`: topics get names of their own."""
    made: list[RealUpstream] = []

    def build(
        *jobs: dict[str, Any],
        table: dict[str, Any] = ORDERS,
        partitions: int = 2,
        lanes: int = 2,
        beside: bool = False,
        upstream_type: type[RealUpstream] = RealUpstream,
    ) -> Stage:
        unique = uuid.uuid4().hex[:8]
        declared = declare(table, has_key=None)
        is_beside = beside or (upstream_type.form and declared.has_key)
        barriers = f"up-{unique}.barriers" if is_beside else None
        upstream = upstream_type(declared, KafkaSettings(bootstrap), f"up-{unique}", partitions, barriers)
        made.append(upstream)
        folder = tmp_path / unique
        folder.mkdir()
        complete = [{"output": f"{job['name']}-{unique}", "output_partitions": 4, **job} for job in jobs]
        return Stage(spark, upstream, folder, complete, lanes)

    yield build
    for upstream in made:
        upstream.close()

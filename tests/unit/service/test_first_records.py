"""The first records of an upstream in terms of its configuration."""

from __future__ import annotations

from pathlib import Path

from schemas.settings.config import check
from streaming.inspect.samples import Sample
from streaming.service.checks.first_records import FirstRecords
from streaming.service.checks.records import unlikely_units
from tests.kit.registry import FakeRegistry


def test_no_registry_is_asked_for_schemas_of_records_that_have_none() -> None:
    with FakeRegistry().serving() as registry:
        declared = {
            "upstream": "up",
            "registry": {"url": registry.url},
            "state": "s",
            "table": {"name": "t", "columns": {"id": "bigint", "at": "timestamp"}, "primary_key": ["id"]},
        }
        config = check(declared, path=Path("config.yaml"))
        first = FirstRecords("up", None, None)
        first.samples = [Sample(b"\x02", bytes([0, 0, 2, number, 1, 2])) for number in range(100)]
        assert unlikely_units(first, config) == []
        assert registry.asked == []

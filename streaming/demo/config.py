"""Configuration of the demo: one folder, one configuration file as a user would write it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from schemas.job import JobDefinition
from schemas.settings.config import ServiceConfig, load

UPSTREAM_PARTITIONS = 4
LIVE_RATE = 500


class Upstream(StrEnum):
    """Formats that the demo's upstream may have."""

    DEBEZIUM = "debezium"
    UPSERT = "upsert"
    CHANGE = "change"


_CONFIGURATION = """\
kafka:
  bootstrap: {bootstrap}
upstream: {upstream}
state: ./state
barrier_interval: 1s
lanes: 4
table:
  name: orders
  columns: {{id: bigint, region: string, amount: "decimal(18,2)", note: string}}
  primary_key: [id]
jobs:
  - name: big-orders
    output: big-orders
    format: {output}
    columns: [id, region, amount]
    filter: "amount >= 100 AND region IN ('EU', 'US')"
    latency_budget: 1s
"""


_UPSTREAMS = {
    Upstream.DEBEZIUM: "{topic: shop.public.orders, format: debezium, decimal: precise}",
    Upstream.UPSERT: "{topic: orders, format: upsert, encoding: json}",
    Upstream.CHANGE: "orders",
}
OUTPUTS = {Upstream.DEBEZIUM: "upsert", Upstream.UPSERT: "upsert", Upstream.CHANGE: "change"}
"""The format of the job's output, by that of the upstream."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Size of the table, duration of the live load after completion, and folder of the demo."""

    folder: Path
    rows: int
    live_s: float
    upstream: Upstream = Upstream.DEBEZIUM

    @property
    def broker_data(self) -> Path:
        return self.folder / "kafka"

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    def configure(self, bootstrap: str) -> ServiceConfig:
        """Write the configuration for a broker, and read it as the service does."""
        text = _CONFIGURATION.format(
            bootstrap=bootstrap, upstream=_UPSTREAMS[self.upstream], output=OUTPUTS[self.upstream]
        )
        self.config_file.write_text(text, encoding="utf-8")
        return load(self.config_file)


def the_job(config: ServiceConfig) -> JobDefinition:
    (job,) = config.jobs
    return job

"""Requests of an API that is alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fastapi import FastAPI

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.records import Add, Mutation
from streaming.observe.api import build
from streaming.observe.gateway import ControlApi, JobEstimate, WayOn
from streaming.observe.metrics import Metrics
from streaming.observe.middleware import ApiAuth, unknown_job
from streaming.observe.models import OutputStatus, ReaderStatus
from streaming.observe.status_cache import StatusCache
from tests.kit.reports import TABLE


class Requests:
    """Takes what the API sends; knows one job."""

    table = TABLE

    def __init__(self) -> None:
        self.sent: list[Mutation] = []
        self.ways: list[WayOn] = []

    def send(self, mutation: Mutation) -> str:
        if getattr(mutation, "job", "copy") != "copy" and not isinstance(mutation, Add):
            raise ConfigError(
                Code.JOB_UNKNOWN, found="no such job", expected="one", next_step="see `backfill list`"
            )
        self.sent.append(mutation)
        return f"request {len(self.sent)}"

    def lead_on(self, way: WayOn) -> str:
        self.ways.append(way)
        return f"way {len(self.ways)}"

    def plan(self, new: JobDefinition) -> JobEstimate:
        if new.name == "copy":
            raise ConfigError(
                Code.JOB_EXISTS, found="a job of this name", expected="a new one", next_step="-"
            )
        return JobEstimate(
            rows=110,
            kept_share=0.5,
            output_rows=55,
            output_bytes=5_500,
            seconds=0.1,
            output_partitions=new.output_partitions,
            columns=[column.name for column in new.columns],
            form=new.form,
        )

    @staticmethod
    def output(job: str) -> OutputStatus:
        if job != "copy":
            raise unknown_job(job)
        reader = ReaderStatus(group="warehouse", state="STABLE", behind=7)
        return OutputStatus(offsets=110, readers=[reader], unasked=0)


def idle_api(cache: StatusCache, door: ApiAuth, hosts: Sequence[str] = ("127.0.0.1",)) -> FastAPI:
    """An API that is asked for no change, and neither what a job will cost nor about outputs."""
    return build(cache, Metrics(), cast("ControlApi", object()), door, list(hosts))

"""The service's configuration: one YAML or JSON file, checked as a whole before anything is touched.

Unknown keys are refused, every fault is named at once, and durations carry their unit. The models below are the
reference; their field descriptions are its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from schemas.errors import BackfillError, Code, ConfigError
from schemas.job import JobDefinition, parse_duration
from schemas.table import TableSchema, declare, nearest

Milliseconds = Annotated[int, BeforeValidator(parse_duration)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class KafkaConfig(_Model):
    """How to reach Kafka."""

    bootstrap: str | None = Field(
        None, description="host:port, comma-separated. Left out: the embedded broker is started."
    )


class SparkConfig(_Model):
    """Where Spark runs."""

    master: str | None = Field(
        None, description="Spark master; by default local with every core of this machine."
    )
    driver_memory: str = Field("1g", pattern=r"^\d+[mg]$", description="Heap of the driver's JVM, as in 2g.")


class _Raw(_Model):
    """The file as written; `table` and `jobs` are checked by their own modules."""

    kafka: KafkaConfig = Field(KafkaConfig.model_validate({}), description="How to reach Kafka.")
    upstream: str = Field(pattern=r"^[A-Za-z0-9._-]{1,249}$", description="Topic of the changelog.")
    state: str = Field(
        min_length=1,
        description="Folder or URI of everything durable; a relative folder is below this file's.",
    )
    barriers: Literal["inject", "embedded"] = Field(
        "inject", description="inject: this process embeds them; embedded: the upstream's owner does."
    )
    barrier_interval: Annotated[Milliseconds, Field(ge=100, le=3_600_000)] = Field(
        1_000, description="Time between two barriers, 100ms to 1h."
    )
    lanes: int = Field(
        4,
        ge=1,
        le=1_024,
        description="Parallelism; divides each job's output_partitions. May change at a restart.",
    )
    table: dict[str, Any] = Field(description="The upstream table, see below.")
    jobs: list[dict[str, Any]] = Field(
        [], description="Jobs to create; more can be added while the service runs."
    )
    spark: SparkConfig = Field(SparkConfig.model_validate({}), description="Where Spark runs.")


class ServiceConfig(_Model):
    """A checked configuration. `state` is absolute or a URI."""

    kafka: KafkaConfig
    upstream: str
    state: str
    barriers: Literal["inject", "embedded"]
    barrier_interval_ms: int
    lanes: int
    table: TableSchema
    jobs: tuple[JobDefinition, ...]
    spark: SparkConfig


def load(path: Path) -> ServiceConfig:
    """Read and check a configuration file.

    Raises: ConfigError(CONFIG_INVALID) with every fault in one message; SAME_TOPIC when a job's output is the upstream.
    """
    try:
        text = path.read_text(encoding="utf-8")
        declared = YAML(typ="safe", pure=True).load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, [f"a file that can't be read ({type(error).__name__})"]) from None
    except YAMLError as error:
        raise _invalid(path, [_first_line(error)]) from None
    if not isinstance(declared, dict):
        raise _invalid(path, ["no mapping of keys to values"])
    return check(declared, path=path)


def check(declared: Mapping[str, Any], *, path: Path) -> ServiceConfig:
    """Check a configuration that was read from `path`; a relative `state` is below its folder."""
    faults: list[str] = []
    raw = _raw(declared, faults)
    table = _table(declared.get("table"), faults)
    jobs = _jobs(declared.get("jobs"), table, faults)
    if raw is not None:
        faults += _contradictions(raw, jobs)
    if faults or raw is None or table is None:
        raise _invalid(path, faults)
    state = raw.state if "://" in raw.state else str((path.resolve().parent / raw.state).resolve())
    return ServiceConfig(
        kafka=raw.kafka,
        upstream=raw.upstream,
        state=state,
        barriers=raw.barriers,
        barrier_interval_ms=raw.barrier_interval,
        lanes=raw.lanes,
        table=table,
        jobs=tuple(jobs),
        spark=raw.spark,
    )


def _raw(declared: Mapping[str, Any], faults: list[str]) -> _Raw | None:
    try:
        return _Raw.model_validate(dict(declared))
    except ValidationError as error:
        faults += [_fault(item) for item in error.errors()]
        return None


def _fault(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        parents: dict[str, type[_Model]] = {"kafka": KafkaConfig, "spark": SparkConfig}
        siblings = parents.get(str(item["loc"][0]), _Raw)
        return f"unknown key {key!r}{nearest(str(item['loc'][-1]), list(siblings.model_fields))}"
    if item["type"] == "missing":
        return f"{key!r} is missing"
    return f"{key}: {item['msg'].removeprefix('Value error, ')}"


def _table(declared: Any, faults: list[str]) -> TableSchema | None:
    if declared is None:
        return None
    try:
        return declare(declared)
    except BackfillError as error:
        faults.append(f"table: {error.found}")
        return None


def _jobs(declared: Any, table: TableSchema | None, faults: list[str]) -> list[JobDefinition]:
    jobs = []
    for number, item in enumerate(declared if isinstance(declared, list) and table is not None else []):
        try:
            assert table is not None
            jobs.append(JobDefinition.declare(item if isinstance(item, dict) else {}, table))
        except BackfillError as error:
            faults.append(f"jobs.{number}: {error.found}")
    return jobs


def _contradictions(raw: _Raw, jobs: list[JobDefinition]) -> list[str]:
    faults = [
        f"job {job.name}: {job.output_partitions} output_partitions are not divisible by {raw.lanes} lanes"
        for job in jobs
        if job.output_partitions % raw.lanes
    ]
    for what in ("name", "output"):
        values = [getattr(job, what) for job in jobs]
        faults += [
            f"two jobs with {what} {value!r}" for value in sorted({v for v in values if values.count(v) > 1})
        ]
    return faults


def _first_line(error: YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or type(error).__name__)
    return f"{problem} in line {mark.line + 1}" if mark is not None else problem


def _invalid(path: Path, faults: list[str]) -> ConfigError:
    return ConfigError(
        Code.CONFIG_INVALID,
        where=str(path),
        found="; ".join(faults),
        expected="a configuration as the README describes it",
        next_step="mend the file and start again; nothing was read or written",
    )

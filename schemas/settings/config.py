"""The service's configuration: one YAML or JSON file, checked as a whole before anything is touched.

Unknown keys are refused, every fault is named at once, and durations carry their unit. The models below are
the reference; their field descriptions are its text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.barriers import BARRIER_KINDS, BarriersConfig, known_kind
from schemas.errors import Code, ConfigError
from schemas.faults import Faults, brief
from schemas.formats.protocol import Format
from schemas.formats.registry import UPSTREAM_FORMATS, declare_format
from schemas.job import JobDefinition, duration_text, is_topic_name, parse_duration
from schemas.settings.documents import read_mapping
from schemas.settings.http import SECRET_KEYS as HTTP_SECRETS
from schemas.settings.http import HttpConfig, check_http
from schemas.settings.kafka import SECRET_KEYS as KAFKA_SECRETS
from schemas.settings.kafka import KafkaConfig, check_kafka
from schemas.settings.limits import Limits, size_bytes
from schemas.settings.spark import SECRET_KEYS as SPARK_SECRETS
from schemas.settings.spark import SparkConfig, check_spark
from schemas.table import TableSchema, declare, nearest

MIN_BARRIER_INTERVAL_MS, MAX_BARRIER_INTERVAL_MS = 100, 3_600_000
MIN_BATCH_TIMEOUT_MS, MAX_BATCH_TIMEOUT_MS = 30_000, 24 * 3_600_000
MAX_DEFAULT_LANES = 4
_CONTROL_SUFFIX = ".control"
UPSTREAM_KEYS = {"topic": ("", "Topic of the changelog.")}
"""Keys of `upstream` beside those of its format: default and meaning, in Markdown."""


def _duration_within(least_ms: int, most_ms: int) -> Callable[[object], int]:
    def checked_ms(declared: object) -> int:
        duration_ms = parse_duration(declared)
        if not least_ms <= duration_ms <= most_ms:
            bounds = f"{duration_text(least_ms)}..{duration_text(most_ms)}"
            raise ValueError(f"{brief(declared)} is not in {bounds}")
        return duration_ms

    return checked_ms


def _long_transaction_ms(declared: object) -> int:
    timeout_ms = parse_duration(declared)
    if not 60_000 <= timeout_ms <= 86_400_000:
        raise ValueError(f"{brief(declared)} is not in 1m..24h")
    return timeout_ms


def _upstream(declared: object) -> dict[Any, Any]:
    """`orders` is short for `{topic: orders}`; the further keys are those of the format."""
    keys = declared if isinstance(declared, dict) else {"topic": declared}
    topic = keys.get("topic")
    if not isinstance(topic, str):
        raise PydanticCustomError("topic", "Input should be a topic, or its name and format: {{topic: …}}")
    if not is_topic_name(topic + _CONTROL_SUFFIX) or not is_topic_name(topic):
        raise ValueError("no topic name (letters, digits, '.', '_', '-', 241 at most)")
    return keys


def _state(declared: str) -> str:
    if not declared.isprintable():
        raise ValueError("no path or URI")
    return declared


def _empty_section(declared: object) -> object:
    """A section whose lines are all comments is null in YAML; it means the defaults."""
    return {} if declared is None else declared


def _empty_list(declared: object) -> object:
    return [] if declared is None else declared


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


_Bytes = Annotated[int, BeforeValidator(size_bytes)]


class LimitsConfig(_Model):
    """What is taken at most, see `schemas.settings.limits.Limits`."""

    record_bytes: _Bytes = Field(
        Limits().record_bytes,
        ge=Limits().record_bytes,
        le=MAX_VALUE_BYTES,
        description="Key and value of an upstream record, up to `64m`; outputs are made to take as much.",
    )
    interval_records: int = Field(
        Limits().interval_records,
        ge=1,
        le=1 << 40,
        description="Upstream records between two barriers from which on they are handled in parts: sorted by Spark, "
        "on disk if need be, or (with no job open) remembered part by part.",
    )
    lane_bytes: _Bytes = Field(
        Limits().lane_bytes,
        ge=1 << 20,
        le=1 << 30,
        description="Decoded changes of an interval that one lane holds at most, and needs five times as much memory "
        "for; more of them go in parts.",
    )
    long_transaction: Annotated[int, BeforeValidator(_long_transaction_ms)] = Field(
        Limits().long_transaction_ms,
        description="How long the transaction of an interval in parts may take, `1m` to `24h`; what the broker's "
        "`transaction.max.timeout.ms` does not allow is taken for `1m`.",
    )


class ConfigFile(_Model):
    """The file as written; `table` and `jobs` are checked by their own modules."""

    kafka: Annotated[KafkaConfig, BeforeValidator(_empty_section)] = Field(
        KafkaConfig.model_validate({}), description="How to reach Kafka."
    )
    upstream: Annotated[dict[Any, Any], BeforeValidator(_upstream)] = Field(
        description="Topic of the changelog, or a mapping with the keys below."
    )
    state: Annotated[str, AfterValidator(_state)] = Field(
        min_length=1,
        description="Folder or URI of everything durable; a relative folder is below this file's.",
    )
    sync_state: bool = Field(
        True,
        description="Whether a folder as `state` is synced to the disk before anything relies on what was written; "
        "without it a power failure may leave a state that is older than its outputs.",
    )
    barriers: Annotated[str, AfterValidator(known_kind)] = Field(
        "inject",
        description="`inject`: this process embeds them; `embedded`: the upstream's owner does (`backfill barriers`).",
    )
    barrier_interval: Annotated[
        int, BeforeValidator(_duration_within(MIN_BARRIER_INTERVAL_MS, MAX_BARRIER_INTERVAL_MS))
    ] = Field(1_000, description="Time between two barriers, `100ms` to `1h`.")
    batch_timeout: Annotated[
        int, BeforeValidator(_duration_within(MIN_BATCH_TIMEOUT_MS, MAX_BATCH_TIMEOUT_MS))
    ] = Field(
        900_000,
        description="A Spark job that shows no progress for so long (no task that ends, no record that is read) is "
        "ended and tried again, `30s` to `24h`. How long a batch takes as a whole is not limited.",
    )
    lanes: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="Parallelism; divides each job's `output_partitions`. May change at a restart. "
        f"By default the cores of this machine, {MAX_DEFAULT_LANES} at most.",
    )
    table: dict[str, Any] = Field(description="The upstream table, see below.")
    jobs: Annotated[list[dict[str, Any]], BeforeValidator(_empty_list)] = Field(
        [], description="Jobs to create; more can be added while the service runs."
    )
    on_bad_record: Literal["stop", "park"] = Field(
        "stop",
        description="What becomes of a record that breaks its format: `stop` before it, or `park` it in "
        "`<output>.dead-letters` of every job, see [bad input](bad-input.md).",
    )
    limits: Annotated[LimitsConfig, BeforeValidator(_empty_section)] = Field(
        LimitsConfig.model_validate({}), description="What is taken at most."
    )
    http: Annotated[HttpConfig, BeforeValidator(_empty_section)] = Field(
        HttpConfig.model_validate({}), description="Status page, API and metrics."
    )
    spark: Annotated[SparkConfig, BeforeValidator(_empty_section)] = Field(
        SparkConfig.model_validate({}), description="Where Spark runs."
    )


class ServiceConfig(_Model):
    """A checked configuration. `upstream` is the topic, `state` is absolute or a URI."""

    kafka: KafkaConfig
    upstream: str
    upstream_format: Format
    state: str
    sync_state: bool
    barriers: BarriersConfig
    barrier_interval_ms: int
    batch_timeout_ms: int
    lanes: int
    table: TableSchema
    jobs: tuple[JobDefinition, ...]
    on_bad_record: Literal["stop", "park"]
    limits: Limits
    http: HttpConfig
    spark: SparkConfig


def load(path: Path) -> ServiceConfig:
    """Read and check a configuration file, YAML or JSON.

    Raises: ConfigError with every fault in one message; what depends on a faulty part is checked once that is
    corrected. Its code is CONFIG_INVALID, or that of the faults if they are of one kind: TABLE_INVALID,
    JOB_INVALID, JOB_NAME_INVALID, EXPRESSION_NOT_ALLOWED, EXPRESSION_INVALID, SAME_TOPIC, SECRET_FILE_MODE.
    """
    declared = read_mapping(path, Code.CONFIG_INVALID, expected="a configuration in YAML or JSON")
    return check(declared, path=path)


def check(declared: Mapping[str, Any], *, path: Path) -> ServiceConfig:
    """Check a configuration that was read from `path`; a relative `state` is below its folder.

    Raises: ConfigError, as `load`.
    """
    faults = Faults(Code.CONFIG_INVALID)
    raw = _validated(ConfigFile, declared, faults)
    table = _table(declared.get("table"), faults)
    jobs = _jobs(declared.get("jobs"), table, faults)
    _find_doubles(jobs, faults)
    upstream_format = None
    kafka, http, spark = (
        KafkaConfig.model_validate({}),
        HttpConfig.model_validate({}),
        SparkConfig.model_validate({}),
    )
    if raw is not None:
        http = check_http(raw.http, folder=path.resolve().parent, faults=faults)
        _find_same_topics(raw.upstream["topic"], jobs, faults)
        upstream_format = declare_format(
            UPSTREAM_FORMATS, raw.upstream, faults, beside=UPSTREAM_KEYS, place="upstream."
        )
        kafka = check_kafka(raw.kafka, folder=path.resolve().parent, faults=faults)
        spark = check_spark(raw.spark, folder=path.resolve().parent, faults=faults)
    lanes = _lanes(raw, table, jobs, faults)
    if faults or raw is None or table is None or upstream_format is None:
        raise faults.error(where=str(path))
    return ServiceConfig(
        kafka=kafka,
        upstream=raw.upstream["topic"],
        upstream_format=upstream_format,
        state=raw.state if "://" in raw.state else str((path.resolve().parent / raw.state).resolve()),
        sync_state=raw.sync_state,
        barriers=BARRIER_KINDS[raw.barriers](kind=raw.barriers),
        barrier_interval_ms=raw.barrier_interval,
        batch_timeout_ms=raw.batch_timeout,
        lanes=lanes,
        table=table,
        jobs=tuple(jobs),
        on_bad_record=raw.on_bad_record,
        limits=_limits(raw.limits),
        http=http,
        spark=spark,
    )


def _limits(raw: LimitsConfig) -> Limits:
    declared = raw.model_dump()
    return Limits(long_transaction_ms=declared.pop("long_transaction"), **declared)


def load_kafka(path: Path | None, bootstrap: str | None) -> KafkaConfig:
    """A section `kafka` that stands alone in a file, or under this key; `bootstrap` wins over the file's.

    Raises: ConfigError, as `load`.
    """
    declared: dict[Any, Any] = {}
    if path is not None:
        declared = read_mapping(path, Code.CONFIG_INVALID, expected="the section kafka of a configuration")
        declared = declared.get("kafka", declared)
    return _checked_kafka({"kafka": declared}, path, bootstrap)


def reach(kafka: KafkaConfig, bootstrap: str | None) -> KafkaConfig:
    """A checked section with another address, checked again. Raises: ConfigError(CONFIG_INVALID)."""
    if bootstrap is None or bootstrap == kafka.bootstrap:
        return kafka
    return _checked_kafka({"kafka": kafka.model_dump()}, None, bootstrap)


class _KafkaAlone(_Model):
    kafka: Annotated[KafkaConfig, BeforeValidator(_empty_section)]


def _checked_kafka(declared: dict[str, Any], path: Path | None, bootstrap: str | None) -> KafkaConfig:
    faults = Faults(Code.CONFIG_INVALID)
    if bootstrap is not None and isinstance(declared["kafka"], dict):
        declared = {"kafka": {**declared["kafka"], "bootstrap": bootstrap}}
    raw = _validated(_KafkaAlone, declared, faults)
    if raw is not None:
        kafka = check_kafka(raw.kafka, folder=path.resolve().parent if path else Path(), faults=faults)
        if not faults:
            return kafka
    where = str(path) if path else "options"
    raise faults.error(where=where, next_step="correct the file or the option; see --kafka")


_AnyModel = TypeVar("_AnyModel", bound=_Model)


def _validated(model: type[_AnyModel], declared: Mapping[str, Any], faults: Faults) -> _AnyModel | None:
    try:
        return model.model_validate(dict(declared))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            faults.add(_fault(item))
        return None


SECTIONS: Mapping[str, type[BaseModel]] = {
    "kafka": KafkaConfig,
    "limits": LimitsConfig,
    "http": HttpConfig,
    "spark": SparkConfig,
}


def _fault(item: ErrorDetails) -> str:
    *parents, last = item["loc"]
    key = ".".join(str(part) for part in item["loc"])
    match item["type"]:
        case "extra_forbidden":
            section = SECTIONS[str(parents[0])] if parents else ConfigFile
            return f"unknown key {brief(key)}{nearest(str(last), list(section.model_fields))}"
        case "missing":
            return f"{key!r} is missing"
        case "invalid_key":
            return f"key {brief(last)} is no text"
        case "value_error":
            return f"{key}: {item['msg'].removeprefix('Value error, ')}"
        case _ if last in KAFKA_SECRETS | HTTP_SECRETS | SPARK_SECRETS:
            return f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}"
        case _:
            return f"{key} is {brief(item['input'])}: {item['msg'][0].lower()}{item['msg'][1:]}"


def _table(declared: object, faults: Faults) -> TableSchema | None:
    if not isinstance(declared, dict):
        return None  # missing or of another form: the model says so
    try:
        return declare(declared)
    except ConfigError as error:
        faults.merge("table", error)
        return None


def _jobs(declared: object, table: TableSchema | None, faults: Faults) -> list[JobDefinition]:
    jobs: list[JobDefinition] = []
    if table is None or not isinstance(declared, list):
        return jobs
    for number, item in enumerate(declared):
        if not isinstance(item, dict):
            continue
        try:
            jobs.append(JobDefinition.declare(item, table))
        except ConfigError as error:
            faults.merge(f"jobs.{number}", error)
    return jobs


def _find_doubles(jobs: Sequence[JobDefinition], faults: Faults) -> None:
    for what in ("name", "output"):
        for value, count in Counter(getattr(job, what) for job in jobs).items():
            if count > 1:
                faults.add(f"{count} jobs with {what} {value!r}")


def _find_same_topics(upstream: str, jobs: Sequence[JobDefinition], faults: Faults) -> None:
    for job in jobs:
        if job.output in (upstream, upstream + _CONTROL_SUFFIX):
            found = f"job {job.name}: output {job.output!r} is the upstream or its control topic"
            faults.add(found, Code.SAME_TOPIC)
    letters = {job.dead_letters: job.name for job in jobs}
    for topic, other in {upstream: None, **{job.output: job.name for job in jobs}}.items():
        if topic in letters:
            what = "upstream" if other is None else f"output of job {other}"
            faults.add(f"{what} {topic!r} is for the dead letters of job {letters[topic]}", Code.SAME_TOPIC)


def _lanes(
    raw: ConfigFile | None, table: TableSchema | None, jobs: Sequence[JobDefinition], faults: Faults
) -> int:
    if raw is None or table is None:
        return 1
    if raw.lanes is None:
        return _default_lanes(raw, table, jobs)
    if raw.lanes > table.vnode_count:
        faults.add(f"{raw.lanes} lanes for a vnode_count of {table.vnode_count}")
    for job in jobs:
        if job.output_partitions % raw.lanes:
            faults.add(
                f"job {job.name}: {raw.lanes} lanes don't divide {job.output_partitions} output_partitions"
            )
    return raw.lanes


def _default_lanes(raw: ConfigFile, table: TableSchema, jobs: Sequence[JobDefinition]) -> int:
    """More lanes than cores would wait for each other; which cores a cluster has is not known here."""
    most = MAX_DEFAULT_LANES
    if raw.spark.master is None:
        most = min(most, len(os.sched_getaffinity(0)))
    most = min(most, table.vnode_count)
    return max(n for n in range(1, most + 1) if all(job.output_partitions % n == 0 for job in jobs))

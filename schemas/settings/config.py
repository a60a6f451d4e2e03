"""The service's configuration: one YAML or JSON file, checked as a whole before anything is touched.

Unknown keys are refused, every fault is named at once, and durations carry their unit. The file's own keys are in
`schemas.settings.file`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from schemas.errors import Code, ConfigError
from schemas.faults import Faults, brief
from schemas.formats.protocol import Format, Images
from schemas.formats.registry import UPSTREAM_FORMATS, declare_format
from schemas.job import JobDefinition
from schemas.kinds.barriers import BARRIER_KINDS, BarriersConfig
from schemas.kinds.initial import NO_INITIAL, DeltaStart, check_initial
from schemas.kinds.lanes import lanes_misfit
from schemas.kinds.postgres import SECRET_KEYS as INITIAL_SECRETS
from schemas.kinds.postgres import PostgresStart
from schemas.settings.documents import read_mapping
from schemas.settings.file import (
    MAX_DEFAULT_LANES,
    SECTIONS,
    UPSTREAM_KEYS,
    ConfigFile,
    Model,
    empty_section,
)
from schemas.settings.http import SECRET_KEYS as HTTP_SECRETS
from schemas.settings.http import HttpConfig, check_http
from schemas.settings.kafka import SECRET_KEYS as KAFKA_SECRETS
from schemas.settings.kafka import KafkaConfig, check_kafka
from schemas.settings.limits import Limits
from schemas.settings.registry import SECRET_KEYS as REGISTRY_SECRETS
from schemas.settings.registry import RegistryConfig, check_registry
from schemas.settings.spark import SECRET_KEYS as SPARK_SECRETS
from schemas.settings.spark import SparkConfig, check_spark
from schemas.table import TableSchema, declare, nearest
from schemas.topics import BARRIERS_SUFFIX, UpstreamTopics


class ServiceConfig(Model):
    """A checked configuration. `state` is absolute or a URI."""

    kafka: KafkaConfig
    topics: UpstreamTopics
    upstream_format: Format
    state: str
    rows_folder: str | None = None
    sync_state: bool
    barriers: BarriersConfig
    barrier_interval_ms: int
    barriers_keep_ms: int | None
    batch_timeout_ms: int
    lanes: int
    table: TableSchema
    jobs: tuple[JobDefinition, ...]
    on_bad_record: Literal["stop", "park"]
    limits: Limits
    http: HttpConfig
    spark: SparkConfig
    registry: RegistryConfig
    initial: DeltaStart | None = None
    initial_postgres: PostgresStart | None = None

    @property
    def upstream(self) -> str:
        """The topic of the data."""
        return self.topics.data


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
    table = _table(declared.get("table"), raw, faults)
    jobs = _jobs(declared.get("jobs"), table, faults)
    _find_doubles(jobs, faults)
    upstream_format = topics = None
    initial, folder = NO_INITIAL, path.resolve().parent
    kafka, http = KafkaConfig.model_validate({}), HttpConfig.model_validate({})
    spark, registry = SparkConfig.model_validate({}), RegistryConfig.model_validate({})
    if raw is not None:
        http = check_http(raw.http, folder=folder, faults=faults)
        upstream_format = declare_format(
            UPSTREAM_FORMATS, raw.upstream, faults, beside=UPSTREAM_KEYS, place="upstream."
        )
        _find_misfits(upstream_format, table, jobs, faults)
        initial = check_initial(raw.initial, table, upstream_format, folder=folder, faults=faults)
        topics = _topics(raw, upstream_format)
        _find_same_topics(topics, jobs, faults)
        kafka = check_kafka(raw.kafka, folder=folder, faults=faults)
        spark = check_spark(raw.spark, folder=folder, faults=faults)
        registry = check_registry(raw.registry, folder=folder, faults=faults)
        _find_no_registry(upstream_format, jobs, registry, faults)
    lanes = _lanes(raw, table, jobs, faults)
    if faults or raw is None or table is None or upstream_format is None or topics is None:
        raise faults.error(where=str(path))
    return ServiceConfig(
        kafka=kafka,
        topics=topics,
        upstream_format=upstream_format,
        state=raw.state if "://" in raw.state else str((folder / raw.state).resolve()),
        rows_folder=raw.rows_folder and str((folder / raw.rows_folder).resolve()),
        sync_state=raw.sync_state,
        barriers=BARRIER_KINDS[raw.barriers](kind=raw.barriers),
        barrier_interval_ms=raw.barrier_interval,
        barriers_keep_ms=raw.barriers_keep,
        batch_timeout_ms=raw.batch_timeout,
        lanes=lanes,
        table=table,
        jobs=tuple(jobs),
        on_bad_record=raw.on_bad_record,
        limits=raw.limits.limits,
        http=http,
        spark=spark,
        registry=registry,
        initial=initial.delta,
        initial_postgres=initial.postgres,
    )


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


def load_registry(given: str) -> RegistryConfig:
    """A registry by its URL, or by a file with a section `registry` that stands alone there or under this key.

    Raises: ConfigError, as `load`.
    """
    declared: dict[Any, Any] = {"url": given}
    folder, faults = Path(), Faults(Code.CONFIG_INVALID)
    if not given.startswith(("http:", "https:")):
        expected = "the section registry of a configuration"
        declared = read_mapping(Path(given), Code.CONFIG_INVALID, expected=expected)
        declared, folder = declared.get("registry", declared), Path(given).resolve().parent
    raw = _validated(_RegistryAlone, {"registry": declared}, faults)
    if raw is not None:
        registry = check_registry(raw.registry, folder=folder, faults=faults)
        if registry.url is None:
            faults.add("'registry.url' is missing")
        if not faults:
            return registry
    raise faults.error(where="--registry", next_step="correct the address or the file; see --registry")


class _RegistryAlone(Model):
    registry: Annotated[RegistryConfig, BeforeValidator(empty_section)]


class _KafkaAlone(Model):
    kafka: Annotated[KafkaConfig, BeforeValidator(empty_section)]


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


_AnyModel = TypeVar("_AnyModel", bound=Model)


def _validated(model: type[_AnyModel], declared: Mapping[str, Any], faults: Faults) -> _AnyModel | None:
    try:
        return model.model_validate(dict(declared))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            faults.add(_fault(item))
        return None


def _fault(item: ErrorDetails) -> str:
    *parents, last = item["loc"]
    key = ".".join(str(part) for part in item["loc"])
    match item["type"]:
        case "extra_forbidden":
            section = SECTIONS.get(".".join(map(str, parents)), ConfigFile)
            return f"unknown key {brief(key)}{nearest(str(last), list(section.model_fields))}"
        case "missing":
            return f"{key!r} is missing"
        case "invalid_key":
            return f"key {brief(last)} is no text"
        case "value_error":
            return f"{key}: {item['msg'].removeprefix('Value error, ')}"
        case _ if last in KAFKA_SECRETS | HTTP_SECRETS | SPARK_SECRETS | REGISTRY_SECRETS | INITIAL_SECRETS:
            return f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}"
        case _:
            return f"{key} is {brief(item['input'])}: {item['msg'][0].lower()}{item['msg'][1:]}"


def _table(declared: object, raw: ConfigFile | None, faults: Faults) -> TableSchema | None:
    if not isinstance(declared, dict):
        return None  # missing or of another form: the model says so
    kind = UPSTREAM_FORMATS.get(str(raw.upstream.get("format"))) if raw else None
    try:
        return declare(declared, has_key=kind is None or kind().images is not Images.ROWS)
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


def _find_misfits(
    upstream_format: Format | None, table: TableSchema | None, jobs: Sequence[JobDefinition], faults: Faults
) -> None:
    if upstream_format is None:
        return
    if table is not None and (misfit := upstream_format.misfit_as_upstream(table)):
        faults.add(f"upstream.{misfit}")
    for job in jobs:
        if misfit := job.scan.misfit(upstream_format):
            faults.add(f"job {job.name}: {misfit}")


def _find_no_registry(
    upstream_format: Format | None, jobs: Sequence[JobDefinition], registry: RegistryConfig, faults: Faults
) -> None:
    if registry.url is not None:
        return
    if upstream_format is not None and upstream_format.framed:
        faults.add("'registry.url' is missing, where the schemas of upstream.encoding are")
    for job in jobs:
        if job.format.framed:
            faults.add(f"'registry.url' is missing, where the schemas of job {job.name} are registered")


def _find_doubles(jobs: Sequence[JobDefinition], faults: Faults) -> None:
    for what in ("name", "output"):
        for value, count in Counter(getattr(job, what) for job in jobs).items():
            if count > 1:
                faults.add(f"{count} jobs with {what} {value!r}")


def _topics(raw: ConfigFile, upstream_format: Format | None) -> UpstreamTopics:
    topic = raw.upstream["topic"]
    barriers = raw.barrier_topic
    if upstream_format is not None and upstream_format.barriers_are_beside:
        barriers = barriers or topic + BARRIERS_SUFFIX
        if barriers == topic and upstream_format.may_hold_barriers:
            barriers = None  # the topic that they are records of
    return UpstreamTopics.of(topic, barriers=barriers, control=raw.control_topic)


def _find_same_topics(topics: UpstreamTopics, jobs: Sequence[JobDefinition], faults: Faults) -> None:
    named = [name for name in (topics.data, topics.barriers, topics.control) if name is not None]
    for topic in sorted({name for name in named if named.count(name) > 1}):
        faults.add(f"{topic!r} is two of upstream, barrier_topic and control_topic", Code.SAME_TOPIC)
    for job in jobs:
        if job.output in topics.all:
            what = "is the upstream or a topic beside it"
            faults.add(f"job {job.name}: output {job.output!r} {what}", Code.SAME_TOPIC)
        _find_taken(job, topics, jobs, faults)


def _find_taken(
    job: JobDefinition, topics: UpstreamTopics, jobs: Sequence[JobDefinition], faults: Faults
) -> None:
    """What a job's topics beside its output are taken for."""
    taken = dict.fromkeys(topics.all, "upstream")
    for other in jobs:
        taken[other.output] = f"output of job {other.name}"
        if other is not job and other.barrier_topic is not None:
            taken[other.barrier_topic] = f"barrier topic of job {other.name}"
    for what, topic in {"dead letters": job.dead_letters, "barriers": job.barrier_topic}.items():
        if topic in taken:
            faults.add(f"{taken[topic]} {topic!r} is for the {what} of job {job.name}", Code.SAME_TOPIC)


def _lanes(
    raw: ConfigFile | None, table: TableSchema | None, jobs: Sequence[JobDefinition], faults: Faults
) -> int:
    if raw is None or table is None:
        return 1
    if raw.lanes is None:
        counted_later = table.by_partition or any(job.scan.reads_upstream for job in jobs)
        return 0 if counted_later else default_lanes(raw.spark, table, jobs)
    if table.has_key and not table.by_partition and raw.lanes > table.vnode_count:
        faults.add(f"{raw.lanes} lanes for a vnode_count of {table.vnode_count}")
    for job in jobs:
        if misfit := lanes_misfit(job, raw.lanes):
            faults.add(f"job {job.name}: {misfit}")
    return raw.lanes


def default_lanes(spark: SparkConfig, table: TableSchema, jobs: Sequence[JobDefinition]) -> int:
    """More lanes than cores would wait for each other; which cores a cluster has is not known here."""
    most = MAX_DEFAULT_LANES
    if spark.master is None:
        most = min(most, len(os.sched_getaffinity(0)))
    most = min(most, table.vnode_count)
    return max(n for n in range(1, most + 1) if all(lanes_misfit(job, n) is None for job in jobs))

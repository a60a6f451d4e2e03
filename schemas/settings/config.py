"""The service's configuration: one YAML or JSON file, checked as a whole before anything is touched.

Unknown keys are refused, every fault is named at once, and durations carry their unit. `ServiceConfig` is the file's
reference, too: `schemas.settings.reference` writes the page from the descriptions of its fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from schemas.errors import Code, ConfigError
from schemas.faults import Faults, brief, nearest, noted
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import UPSTREAM_FORMATS, declare_format
from schemas.job import JobDefinition
from schemas.kinds.configs import BarriersConfig, declare_barriers
from schemas.kinds.initial import DeltaStart, InitialConfig, PostgresStart, check_initial
from schemas.kinds.lanes import MOST_LANES
from schemas.settings.consistency import (
    MAX_DEFAULT_LANES,
    checked_read_limit,
    find_doubles,
    find_incompatible,
    find_no_pace,
    find_no_registry,
    lanes_for,
)
from schemas.settings.documents import read_mapping
from schemas.settings.http import HttpConfig, check_http
from schemas.settings.kafka import KafkaConfig, check_kafka
from schemas.settings.limits import Limits, LimitsConfig, duration_within, parse_duration, written
from schemas.settings.registry import RegistryConfig, check_registry
from schemas.settings.spark import SparkConfig, check_spark
from schemas.table import TableSchema, declare
from schemas.topics import CONTROL_SUFFIX, UPSTREAM_KEYS, UpstreamSection, UpstreamTopics, is_topic_name

MIN_BARRIER_INTERVAL_MS = 100
DAY_MS = 86_400_000
_DAYS = re.compile(r"([0-9]{1,5})d")


@dataclass(frozen=True, slots=True)
class _Reading:
    """The context of a validation. Relative files are below `folder`.

    Validators of several keys add to `faults`: a validator can raise one error only.
    """

    folder: Path
    faults: Faults


def _checked_by(check: Callable[..., Any]) -> AfterValidator:
    """The validator of a section by a check that returns it with its files below `folder`, and adds to `faults`."""
    return AfterValidator(
        lambda section, info: check(section, folder=info.context.folder, faults=info.context.faults)
    )


# A section whose lines are all comments is null in YAML; it means the defaults.
_Complete = Callable[[Mapping[Any, Any], Path], Mapping[Any, Any]]
_EMPTY = BeforeValidator(lambda declared: {} if declared is None else declared)


def _upstream(declared: object, info: ValidationInfo[_Reading]) -> UpstreamSection:
    """`orders` is short for `{topic: orders}`; the further keys are those of the format."""
    keys = declared if isinstance(declared, dict) else {"topic": declared}
    topic = keys.get("topic")
    if not isinstance(topic, str):
        slip = next(filter(None, (nearest(str(key), ["topic"]) for key in keys)), "")
        raise PydanticCustomError(
            "topic", f"Input should be a topic, or its name and format: {{topic: …}}{slip}"
        )
    if not is_topic_name(topic + CONTROL_SUFFIX) or not is_topic_name(topic):
        raise ValueError("no topic name (letters, digits, '.', '_', '-', 241 at most)")
    faults = info.context.faults
    format_ = declare_format(UPSTREAM_FORMATS, keys, faults, beside=UPSTREAM_KEYS, place="upstream.")
    if format_ is None:
        raise noted()
    return UpstreamSection(topic, format_, checked_read_limit(keys.get("read_limit")))


def _topic(declared: str) -> str:
    if not is_topic_name(declared):
        raise ValueError("no topic name (letters, digits, '.', '_', '-', 249 at most)")
    return declared


def _state(declared: str, info: ValidationInfo[_Reading]) -> str:
    if not declared.isprintable():
        raise ValueError("no path or URI")
    return declared if "://" in declared else str((info.context.folder / declared).resolve())


def _rows_folder(declared: str, info: ValidationInfo[_Reading]) -> str:
    if not declared or not declared.isprintable() or "://" in declared:
        raise ValueError("no path of a folder")
    return str((info.context.folder / declared).resolve())


def _barriers_keep_ms(declared: object) -> int | None:
    if declared == "forever":
        return None
    days = _DAYS.fullmatch(declared) if isinstance(declared, str) else None
    try:
        return int(days[1]) * DAY_MS if days else parse_duration(declared)
    except ValueError:
        raise ValueError(f"{brief(declared)} is neither forever nor a time as in 30d or 12h") from None


def _lanes(declared: int | None, handler: ValidatorFunctionWrapHandler) -> int | None:
    # None until `check` has all that the default follows from.
    return None if declared is None else handler(declared)


def _table(declared: object, info: ValidationInfo[_Reading]) -> TableSchema:
    if not isinstance(declared, dict):
        raise PydanticKnownError("dict_type")
    upstream: UpstreamSection | None = info.data.get("source")
    has_key = None if upstream is None else upstream.format.images is not Images.ROWS
    faults = info.context.faults
    try:
        table = declare(declared, has_key=has_key)
    except ConfigError as error:
        faults.merge("table", error)
        raise noted() from None
    if upstream is not None and (reason := upstream.format.incompatibility_as_upstream(table)):
        faults.add(f"upstream.{reason}")
    return table


def _initial(declared: InitialConfig | None, info: ValidationInfo[_Reading]) -> InitialConfig | None:
    upstream, reading = info.data.get("source"), info.context
    format_ = None if upstream is None else upstream.format
    return check_initial(
        declared, info.data.get("table"), format_, folder=reading.folder, faults=reading.faults
    )


def _jobs(declared: object, info: ValidationInfo[_Reading]) -> tuple[JobDefinition, ...]:
    """The valid jobs; the faults of the others are added, and these are checked all the same."""
    if not isinstance(declared, list | None):
        raise PydanticKnownError("list_type")
    faults, table, jobs = info.context.faults, info.data.get("table"), list[JobDefinition]()
    for number, item in enumerate(declared or []):
        if not isinstance(item, dict):
            faults.add(f"jobs.{number} is {brief(item)}: input should be a valid dictionary")
        elif table is not None:
            try:
                jobs.append(JobDefinition.declare(item, table))
            except ConfigError as error:
                faults.merge(f"jobs.{number}", error)
    upstream: UpstreamSection | None = info.data.get("source")
    if upstream is not None:
        topics = upstream.topics(info.data.get("barrier_topic"), info.data.get("control_topic"))
        find_incompatible(jobs, upstream.format, topics, faults)
    find_doubles(jobs, faults)
    return tuple(jobs)


def _registry(registry: RegistryConfig, info: ValidationInfo[_Reading]) -> RegistryConfig:
    upstream: UpstreamSection | None = info.data.get("source")
    if registry.url is None:
        format_ = None if upstream is None else upstream.format
        find_no_registry(format_, info.data.get("jobs", ()), info.context.faults)
    return registry


class ServiceConfig(BaseModel):
    """A checked configuration: its keys, their types, defaults and meaning. `state` is absolute or a URI.

    `lanes` is 0 where they are as many as the upstream's partitions, until those are counted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)

    kafka: Annotated[KafkaConfig, _EMPTY, _checked_by(check_kafka)] = written(
        {}, description="How to reach Kafka."
    )
    source: Annotated[UpstreamSection, PlainValidator(_upstream)] = Field(
        alias="upstream", description="Topic of the changelog, or a mapping with the keys below."
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
    rows_folder: Annotated[str, AfterValidator(_rows_folder)] | None = Field(
        None,
        description="Folder for the rows by key that lanes keep (see [Rows by key](operations.md#rows-by-key)), on "
        "each machine with lanes, about the size of the table; a relative one is below this file's. Its disk, not "
        "memory. By default the machine's folder for temporary files (`TMPDIR`).",
    )
    barriers: Annotated[BarriersConfig, BeforeValidator(declare_barriers)] = written(
        "inject",
        description="`inject`: this process writes them; `embedded`: the upstream's owner does (`backfill barriers`).",
    )
    barrier_topic: Annotated[str, AfterValidator(_topic)] | None = Field(
        None,
        description="A topic for the barriers beside the data, to which nothing is written then. It is this service's "
        "own, and made if it is not there. Left out: in the data for `format: change`, else `<topic>.barriers`. "
        "`append` has them in the data if it names the topic itself.",
    )
    control_topic: Annotated[str, AfterValidator(_topic)] | None = Field(
        None,
        description=f"The topic for control requests; `<topic>{CONTROL_SUFFIX}` by default. Each service on one "
        "upstream needs its own.",
    )
    barrier_interval_ms: Annotated[int, duration_within(MIN_BARRIER_INTERVAL_MS, 3_600_000)] = written(
        "1s",
        alias="barrier_interval",
        description="Longest time between two barriers, `100ms` to `1h`. A control request brings one at once, and so "
        "does a backfill that could read on.",
    )
    barriers_keep_ms: Annotated[int | None, BeforeValidator(_barriers_keep_ms)] = written(
        "30d",
        alias="barriers_keep",
        description="How long barriers are kept in topics of their own, as in `30d` or `12h`; `forever`. Older ones "
        "are deleted behind finished batches, see [barrier topics](operations.md#barrier-topics).",
    )
    batch_timeout_ms: Annotated[int, duration_within(30_000, DAY_MS)] = written(
        "15m",
        alias="batch_timeout",
        description="A Spark job that shows no progress for so long (no task that ends, no record that is read) is "
        "ended and tried again, `30s` to `24h`. How long a batch takes as a whole is not limited.",
    )
    lanes: Annotated[int, WrapValidator(_lanes)] = written(
        None,
        ge=1,
        le=MOST_LANES,
        description="Parallelism; divides each job's `output_partitions`, or, with `read: topic`, is no more than them."
        " `backfill lanes` goes before it. "
        f"By default the cores of this machine, {MAX_DEFAULT_LANES} at most. With `distribution: upstream` the number "
        "of the upstream's partitions, the default then, or, once all jobs are complete, one that divides it.",
    )
    table: Annotated[TableSchema, PlainValidator(_table)] = Field(
        description="The upstream table, see below."
    )
    start: Annotated[InitialConfig | None, AfterValidator(_initial)] = written(
        None,
        alias="initial",
        description="Where the table starts, see below. Left out: with the topic's first record.",
    )
    jobs: Annotated[tuple[JobDefinition, ...], PlainValidator(_jobs)] = written(
        [], description="Jobs to create; more can be added while the service runs."
    )
    on_bad_record: Literal["stop", "park"] = Field(
        "stop",
        description="What becomes of a record that breaks its format: `stop` before it, or `park` it in "
        "`<output>.dead-letters` of every job, without one in `<topic>.dead-letters`, see "
        "[invalid records](errors.md#invalid-records).",
    )
    on_table_fault: Literal["suspend", "stop"] = Field(
        "suspend",
        description="What a fault of the table does (a record, its schema, lost data, an output): `suspend` the table, "
        "while the process stays up and takes requests on how to go on, or `stop` the process with the error's exit "
        "status; see [a suspended table](errors.md#a-suspended-table).",
    )
    most: Annotated[LimitsConfig, _EMPTY] = written({}, alias="limits", description="What is taken at most.")
    http: Annotated[HttpConfig, _EMPTY, _checked_by(check_http)] = written(
        {}, description="Status page, API and metrics."
    )
    spark: Annotated[SparkConfig, _EMPTY, _checked_by(check_spark)] = written(
        {}, description="Where Spark runs."
    )
    registry: Annotated[RegistryConfig, _EMPTY, _checked_by(check_registry), AfterValidator(_registry)] = (
        written({}, description="How to reach the schema registry.")
    )

    @property
    def upstream(self) -> str:
        """The topic of the data."""
        return self.source.topic

    @property
    def upstream_format(self) -> UpstreamFormat:
        return self.source.format

    @property
    def topics(self) -> UpstreamTopics:
        """The topics on the upstream's side."""
        return self.source.topics(self.barrier_topic, self.control_topic)

    @property
    def limits(self) -> Limits:
        return self.most.limits

    @property
    def initial(self) -> DeltaStart | None:
        """The Delta table that the state starts from."""
        return None if self.start is None else self.start.delta

    @property
    def initial_postgres(self) -> PostgresStart | None:
        """The table of PostgreSQL that the state starts from."""
        return None if self.start is None else self.start.postgres


def load(path: Path, completed: _Complete = lambda given, _: given) -> ServiceConfig:
    """Read and check a configuration file, YAML or JSON. `completed` gives the declaration with what it leaves out.

    Raises: ConfigError with every fault in one message; what depends on a faulty part is checked once that is
    corrected. Its code is CONFIG_INVALID, or that of the faults if they are of one kind: TABLE_INVALID,
    JOB_INVALID, JOB_NAME_INVALID, EXPRESSION_NOT_ALLOWED, EXPRESSION_INVALID, SAME_TOPIC, SECRET_FILE_MODE.
    """
    declared = read_mapping(path, Code.CONFIG_INVALID, expected="a configuration in YAML or JSON")
    return check(completed(declared, path), path=path)


def check(declared: Mapping[str, Any], *, path: Path) -> ServiceConfig:
    """Check a configuration that was read from `path`; a relative `state` is below its folder.

    Raises: ConfigError, as `load`.
    """
    faults = Faults(Code.CONFIG_INVALID)
    try:
        config = ServiceConfig.model_validate(dict(declared), context=_Reading(path.resolve().parent, faults))
    except ValidationError as error:
        faults.add_invalid(error, ServiceConfig)
    else:
        find_no_pace(config.source, config.topics, faults, injects=config.barriers.injects)
        lanes = lanes_for(config.lanes, config.spark, config.table, config.jobs, faults)
        config = config.model_copy(update={"lanes": lanes})
        if not faults:
            return config
    raise faults.error(where=str(path))

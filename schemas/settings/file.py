"""The configuration file as it is written: its keys, their types, defaults and meaning.

The models are the reference of the file; `schemas.settings.reference` writes the page from their descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.faults import brief
from schemas.job import duration_text, parse_duration
from schemas.kinds.barriers import known_kind
from schemas.kinds.initial import DeltaStart, InitialConfig
from schemas.kinds.postgres import PostgresStart
from schemas.settings.http import HttpConfig
from schemas.settings.kafka import KafkaConfig
from schemas.settings.limits import Limits, size_bytes
from schemas.settings.registry import RegistryConfig
from schemas.settings.security import OAuthConfig
from schemas.settings.spark import SparkConfig
from schemas.topics import CONTROL_SUFFIX, is_topic_name

MIN_BARRIER_INTERVAL_MS, MAX_BARRIER_INTERVAL_MS = 100, 3_600_000
MIN_BATCH_TIMEOUT_MS, MAX_BATCH_TIMEOUT_MS = 30_000, 24 * 3_600_000
MAX_DEFAULT_LANES = 4
FOREVER, DAY_MS = "forever", 86_400_000
_DAYS = re.compile(r"([0-9]{1,5})d")
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


def _barriers_keep_ms(declared: object) -> int | None:
    if declared == FOREVER:
        return None
    days = _DAYS.fullmatch(declared) if isinstance(declared, str) else None
    try:
        return int(days[1]) * DAY_MS if days else parse_duration(declared)
    except ValueError:
        raise ValueError(f"{brief(declared)} is neither forever nor a time as in 30d or 12h") from None


def _upstream(declared: object) -> dict[Any, Any]:
    """`orders` is short for `{topic: orders}`; the further keys are those of the format."""
    keys = declared if isinstance(declared, dict) else {"topic": declared}
    topic = keys.get("topic")
    if not isinstance(topic, str):
        raise PydanticCustomError("topic", "Input should be a topic, or its name and format: {{topic: …}}")
    if not is_topic_name(topic + CONTROL_SUFFIX) or not is_topic_name(topic):
        raise ValueError("no topic name (letters, digits, '.', '_', '-', 241 at most)")
    return keys


def _topic(declared: str) -> str:
    if not is_topic_name(declared):
        raise ValueError("no topic name (letters, digits, '.', '_', '-', 249 at most)")
    return declared


def _state(declared: str) -> str:
    if not declared.isprintable():
        raise ValueError("no path or URI")
    return declared


def _path(declared: str) -> str:
    if not declared or not declared.isprintable() or "://" in declared:
        raise ValueError("no path of a folder")
    return declared


def empty_section(declared: object) -> object:
    """A section whose lines are all comments is null in YAML; it means the defaults."""
    return {} if declared is None else declared


def _empty_list(declared: object) -> object:
    return [] if declared is None else declared


class Model(BaseModel):
    """Unknown keys are faults, and values have the declared type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


_Bytes = Annotated[int, BeforeValidator(size_bytes)]


class LimitsConfig(Model):
    """What is taken at most, see `schemas.settings.limits.Limits`."""

    record_bytes: _Bytes = Field(
        Limits().record_bytes,
        ge=Limits().record_bytes,
        le=MAX_VALUE_BYTES,
        description="Key and value of an upstream record, up to `64m`; "
        "[outputs are made to take](outputs.md#long-records) what their form makes of it.",
    )
    short_records: int = Field(
        Limits().short_records,
        ge=0,
        le=100_000,
        description="Upstream records of a batch up to which lanes read and decode them themselves, in place of a "
        "query of Spark, whose fixed cost is that of some thousand records. `0`: Spark reads all of them.",
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

    @property
    def limits(self) -> Limits:
        """As the service takes them."""
        declared = self.model_dump()
        return Limits(long_transaction_ms=declared.pop("long_transaction"), **declared)


class ConfigFile(Model):
    """The file as written; `table` and `jobs` are checked by their own modules."""

    kafka: Annotated[KafkaConfig, BeforeValidator(empty_section)] = Field(
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
    rows_folder: Annotated[str, AfterValidator(_path)] | None = Field(
        None,
        description="Folder for the rows by key that lanes keep (see [Rows by key](operations.md#rows-by-key)), on "
        "each machine with lanes, about the size of the table; a relative one is below this file's. Its disk, not "
        "memory. By default the machine's folder for temporary files (`TMPDIR`).",
    )
    barriers: Annotated[str, AfterValidator(known_kind)] = Field(
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
    barrier_interval: Annotated[
        int, BeforeValidator(_duration_within(MIN_BARRIER_INTERVAL_MS, MAX_BARRIER_INTERVAL_MS))
    ] = Field(
        1_000,
        description="Longest time between two barriers, `100ms` to `1h`. A control request brings one at once, and so "
        "does a backfill that could read on.",
    )
    barriers_keep: Annotated[int | None, BeforeValidator(_barriers_keep_ms)] = Field(
        30 * DAY_MS,
        description="How long barriers are kept in topics of their own, as in `30d` or `12h`; `forever`. Older ones "
        "are deleted behind finished batches, see [barrier topics](operations.md#barrier-topics).",
    )
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
        description="Parallelism; divides each job's `output_partitions`, or, with `read: topic`, is no more than them."
        " May change at a restart. "
        f"By default the cores of this machine, {MAX_DEFAULT_LANES} at most. With `distribution: upstream` the number "
        "of the upstream's partitions, the default then, or, once all jobs are complete, one that divides it.",
    )
    table: dict[str, Any] = Field(description="The upstream table, see below.")
    initial: InitialConfig | None = Field(
        None, description="Where the table starts, see below. Left out: with the topic's first record."
    )
    jobs: Annotated[list[dict[str, Any]], BeforeValidator(_empty_list)] = Field(
        [], description="Jobs to create; more can be added while the service runs."
    )
    on_bad_record: Literal["stop", "park"] = Field(
        "stop",
        description="What becomes of a record that breaks its format: `stop` before it, or `park` it in "
        "`<output>.dead-letters` of every job, without one in `<topic>.dead-letters`, see "
        "[invalid records](errors.md#invalid-records).",
    )
    limits: Annotated[LimitsConfig, BeforeValidator(empty_section)] = Field(
        LimitsConfig.model_validate({}), description="What is taken at most."
    )
    http: Annotated[HttpConfig, BeforeValidator(empty_section)] = Field(
        HttpConfig.model_validate({}), description="Status page, API and metrics."
    )
    spark: Annotated[SparkConfig, BeforeValidator(empty_section)] = Field(
        SparkConfig.model_validate({}), description="Where Spark runs."
    )
    registry: Annotated[RegistryConfig, BeforeValidator(empty_section)] = Field(
        RegistryConfig.model_validate({}), description="How to reach the schema registry."
    )


SECTIONS: Mapping[str, type[BaseModel]] = {
    "initial.delta": DeltaStart,
    "initial.postgres": PostgresStart,
    "kafka": KafkaConfig,
    "kafka.oauth": OAuthConfig,
    "limits": LimitsConfig,
    "http": HttpConfig,
    "spark": SparkConfig,
    "registry": RegistryConfig,
    "registry.oauth": OAuthConfig,
}

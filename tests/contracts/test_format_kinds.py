"""Formats as a configuration chooses them, for the upstream and for each job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.settings.config import ServiceConfig, check
from tests.kit.tables import table

COPY = {"name": "copy", "output": "out"}
TABLE = table({"id": "bigint", "part": "int", "v": "string"}, key=("id", "part"))
CONFIG = {"state": "s", "table": TABLE.to_dict()}


def declared(upstream: object, **job: object) -> tuple[Format, JobDefinition]:
    config = check({**CONFIG, "upstream": upstream, "jobs": [{**COPY, **job}]}, path=Path("c.yaml"))
    return config.upstream_format, config.jobs[0]


def test_without_a_format_or_with_the_default_written_out_it_is_change() -> None:
    short, at_length = (
        declared("up"),
        declared({"topic": "up", "format": "change", "encoding": "avro"}, format="change"),
    )
    assert short == at_length
    assert short[0] == short[1].format == DEFAULT
    assert short[1].to_json() == at_length[1].to_json()
    assert "format" not in short[1].to_json()


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"format": "maxwell"}, "format 'maxwell' is not one of: change"),
        ({"format": None}, "format None is not one of: change"),
        ({"format": ["change"]}, "format ['change'] is not one of: change"),
        ({"encoding": "json"}, "encoding is 'json': input should be 'avro'"),
        ({"encodng": "avro"}, "did you mean 'encoding'?"),
        ({"tombstones": False}, "tombstones'"),
        ({"before": "full"}, "before'"),
        ({"time": "connect"}, "time'"),
    ],
)
def test_a_kind_or_a_key_that_is_not_there_is_refused_for_upstream_and_job(
    keys: dict[str, Any], fault: str
) -> None:
    for upstream, job in (({"topic": "up", **keys}, {}), ("up", keys)):
        with pytest.raises(ConfigError) as caught:
            declared(upstream, **job)
        assert fault in caught.value.found


@pytest.mark.parametrize("upstream", [{}, {"topic": None}, {"topic": "a b"}, {"format": "change"}, ["up"]])
def test_an_upstream_without_a_topics_name_is_refused(upstream: object) -> None:
    with pytest.raises(ConfigError, match="upstream"):
        declared(upstream)


def test_barriers_of_a_format_that_can_not_hold_them_are_beside_the_data() -> None:
    upstream = {"topic": "up", "format": "upsert"}
    assert declared(upstream)[0] == UpsertFormat()
    config = check({**CONFIG, "upstream": upstream}, path=Path("c.yaml"))
    assert config.topics.barriers == "up.barriers"


@pytest.mark.parametrize("key", ["json", "text"])
def test_a_key_that_is_one_value_is_refused_for_two_columns(key: str) -> None:
    upstream = {"topic": "up", "format": "upsert"}
    check({**CONFIG, "upstream": upstream}, path=Path("c.yaml"))
    with pytest.raises(
        ConfigError, match=f"upstream.key is '{key}', which is for a primary key of one column"
    ):
        check({**CONFIG, "upstream": {**upstream, "key": key}}, path=Path("c.yaml"))


COMPACTED = {"topic_config": {"cleanup.policy": "compact"}}
REGISTRY = {"registry": {"url": "http://127.0.0.1:8081"}}


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        (COMPACTED, "barriers in the output have no key"),
        ({"format": "change", "encoding": "avro-registry"}, "encoding is 'avro-registry'"),
        ({"format": "upsert", "encoding": "avro"}, "encoding is 'avro'"),
        ({"format": "upsert", "tombstones": False}, "unknown key 'tombstones'"),
        ({"format": "upsert", "encoding": "avro-registry"}, "no 'registry.url'"),
        ({"format": "debezium", "barrier_topic": "out"}, "barrier_topic 'out' is another topic of the job"),
    ],
)
def test_what_does_not_go_together_in_an_output_is_refused(job: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared("up", **job)
    assert fault in caught.value.found


@pytest.mark.parametrize("name", ["schema", "payload"])
def test_a_key_column_that_reads_as_a_frame_is_refused_where_there_are_frames(name: str) -> None:
    framed = table({name: "bigint", "v": "string"}, key=(name,))
    for encoding in ("json", "json-schema"):
        with pytest.raises(ConfigError, match=f"a key column is named {name}, as a part of a record"):
            JobDefinition.declare({**COPY, "format": "debezium", "encoding": encoding}, framed)
    JobDefinition.declare({**COPY, "format": "debezium", "encoding": "avro-registry"}, framed)
    JobDefinition.declare({**COPY, "format": "upsert"}, framed)


def test_what_goes_together_in_an_output_is_taken() -> None:
    for job in (
        {"format": "upsert", **COMPACTED},
        {"format": "debezium", "tombstones": False, **COMPACTED},
        {"format": "debezium", "encoding": "avro-registry", **COMPACTED},
        {"format": "change", "barrier_topic": "b", **COMPACTED},
    ):
        config = check(
            {**CONFIG, **REGISTRY, "upstream": "up", "jobs": [{**COPY, **job}]}, path=Path("c.yaml")
        )
        [found] = config.jobs
        assert found.barrier_topic is not None
        assert JobDefinition.from_json(found.to_json(), TABLE) == found


KEYLESS = {"state": "s", "table": {"name": "t", "columns": {"id": "bigint", "v": "string"}}}
APPEND = {"topic": "up", "format": "append"}
EVENTS = {"name": "events", "output": "out", "read": "topic", "format": "append"}


def keyless(job: dict[str, Any], **over: object) -> ServiceConfig:
    return check({**KEYLESS, "upstream": APPEND, **over, "jobs": [{**EVENTS, **job}]}, path=Path("c.yaml"))


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        ({"read": None}, "read: replica needs a table with a primary key; without one: read: topic"),
        (
            {"format": "change"},
            "format 'change' needs a table with a primary key; without one there is `append`",
        ),
        ({"format": "upsert"}, "format 'upsert' needs a table with a primary key"),
        ({"format": "debezium"}, "format 'debezium' needs a table with a primary key"),
        (COMPACTED, "rows without identity are no versions of one another"),
        ({"tombstones": True}, "unknown key 'tombstones'"),
        ({"encoding": "avro-registry"}, "no 'registry.url'"),
    ],
)
def test_an_append_upstream_has_jobs_of_one_kind(job: dict[str, Any], fault: str) -> None:
    assert keyless({}).jobs[0].output_partitions == 0
    with pytest.raises(ConfigError) as caught:
        keyless(job)
    assert fault in caught.value.found
    assert caught.value.next_step


def test_a_table_without_a_key_is_for_append_alone_and_append_for_such_a_table() -> None:
    with pytest.raises(ConfigError, match="no 'primary_key'"):
        check({**KEYLESS, "upstream": "up"}, path=Path("c.yaml"))
    with pytest.raises(
        ConfigError, match="'primary_key' is given, and rows of format append have no identity"
    ):
        check({**CONFIG, "upstream": APPEND}, path=Path("c.yaml"))
    with pytest.raises(ConfigError, match="format 'append' is for a table without a primary key"):
        declared("up", format="append", read="topic")


def test_barriers_of_append_are_beside_the_data_or_where_their_topic_is_the_data() -> None:
    config = keyless({})
    assert (config.topics.barriers, config.jobs[0].barrier_topic) == ("up.barriers", "out.barriers")
    config = keyless({"barrier_topic": "out"}, barrier_topic="up")
    assert (config.topics.barriers, config.jobs[0].barrier_topic) == (None, None)
    assert config.topics.all == {"up", "up.control", "up.dead-letters"}
    for barriers in (None, "out", "other"):
        [job] = keyless({"barrier_topic": barriers}).jobs
        assert JobDefinition.from_json(job.to_json(), config.table) == job


def test_as_many_lanes_as_partitions_may_have_rows_without_identity() -> None:
    assert keyless({"output_partitions": 100}, lanes=100).lanes == 100

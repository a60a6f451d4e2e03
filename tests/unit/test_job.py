from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.projection import plain
from schemas.table import declare

TABLE = declare(
    {
        "name": "orders",
        "columns": {"note": "string", "id": "bigint", "region": "string", "amount": "decimal(18,2)"},
        "primary_key": ["region", "id"],
        "vnode_count": 16,
    }
)
COPY = {"name": "orders-copy", "output": "orders.copy"}


def faults_of(declared: Any, code: Code = Code.JOB_INVALID) -> str:
    with pytest.raises(ConfigError) as caught:
        JobDefinition.declare(declared, TABLE, where="jobs.0")
    assert caught.value.code is code
    assert caught.value.where == "jobs.0"
    assert str(caught.value).isprintable()
    return caught.value.found


def names(columns: Any) -> list[str]:
    return [column.name for column in columns]


def test_what_is_left_out_has_its_default() -> None:
    job = JobDefinition.declare(COPY, TABLE)
    assert job == JobDefinition(
        "orders-copy", "orders.copy", plain(TABLE.column_names), None, 4, None, None, 16
    )


def test_null_is_the_same_as_left_out() -> None:
    nulls = dict.fromkeys(["columns", "filter", "output_partitions", "rate_limit", "latency_budget"])
    assert JobDefinition.declare(COPY | nulls, TABLE) == JobDefinition.declare(COPY, TABLE)


def test_every_key_is_read() -> None:
    job = JobDefinition.declare(
        COPY
        | {
            "columns": ["amount", "note"],
            "filter": "amount>=10 and region in('EU')",
            "output_partitions": 8,
            "rate_limit": 0,
            "latency_budget": "2s",
            "replication_factor": 3,
            "topic_config": {"min.insync.replicas": 2, "retention.ms": "604800000", "preallocate": True},
            "allow_retention": True,
            "headers": ["trace-id", "a b"],
            "paused": True,
        },
        TABLE,
    )
    assert job.headers == ("a b", "trace-id")
    assert (job.replication_factor, job.allow_retention, job.paused) == (3, True, True)
    assert sorted(dict(job.topic_config)) == ["min.insync.replicas", "preallocate", "retention.ms"]
    assert JobDefinition.from_json(job.to_json(), TABLE) == job
    assert (job.columns, job.filter) == (plain(["amount", "note"]), "amount >= 10 AND region IN ('EU')")
    assert (job.output_partitions, job.rate_limit, job.latency_budget_ms) == (8, 0, 2_000)


def test_barriers_may_stand_in_a_topic_of_their_own_and_then_the_output_may_be_compacted() -> None:
    plain = JobDefinition.declare(COPY, TABLE)
    assert (plain.barrier_topic, plain.with_barriers) == (None, plain.output)
    compacted = {"barrier_topic": "b", "topic_config": {"cleanup.policy": "compact"}}
    job = JobDefinition.declare(COPY | compacted, TABLE)
    assert (job.with_barriers, job.topics) == ("b", (plain.output, "b", plain.dead_letters))
    assert JobDefinition.from_json(job.to_json(), TABLE) == job


@pytest.mark.parametrize("topic", ["a b", 7, COPY["output"], f"{COPY['output']}.dead-letters"])
def test_a_barrier_topic_that_is_no_topic_or_another_of_the_job_is_refused(topic: object) -> None:
    with pytest.raises(ConfigError, match="barrier_topic"):
        JobDefinition.declare(COPY | {"barrier_topic": topic}, TABLE)


def test_default_partitions_do_not_exceed_the_vnodes() -> None:
    two = declare({"name": "t", "columns": {"id": "int"}, "primary_key": ["id"], "vnode_count": 2})
    assert JobDefinition.declare(COPY, two).output_partitions == 2


@pytest.mark.parametrize("name", ["a", "0", "orders-copy-2", "a" * 63, "a-"])
def test_a_name_is_lower_case_letters_digits_and_hyphens(name: str) -> None:
    assert JobDefinition.declare(COPY | {"name": name}, TABLE).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        "../x",
        "/etc/passwd",
        "A",
        "a b",
        "a" * 64,
        "a\x00",
        "a\n",
        "\u0430bc",  # Cyrillic a
        None,
        7,
        ["a"],
    ],
)
def test_another_name_is_refused_by_its_own_code(name: Any) -> None:
    assert "name" in faults_of(COPY | {"name": name}, Code.JOB_NAME_INVALID)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("output", "", "no topic name"),
        ("output", ".", "no topic name"),
        ("output", "..", "no topic name"),
        ("output", "a" * 250, "no topic name"),
        ("output", "a b", "no topic name"),
        ("output", "a\n", "no topic name"),
        ("output", "\u00e4", "no topic name"),
        ("output", None, "no topic name"),
        ("columns", [], "not a list of column names"),
        ("columns", "id", "not a list of column names"),
        ("columns", [1], "not a list of column names"),
        ("columns", ["id", "amuont"], "did you mean 'amount'?"),
        ("columns", ["id", "id"], "'id' twice"),
        ("filter", 7, "no text"),
        ("output_partitions", 0, "1..16"),
        ("output_partitions", 17, "1..16"),
        ("output_partitions", "4", "1..16"),
        ("output_partitions", True, "1..16"),
        ("output_partitions", 4.0, "1..16"),
        ("rate_limit", -1, "0 or more"),
        ("rate_limit", 1 << 63, "0 or more"),
        ("rate_limit", "100", "0 or more"),
        ("rate_limit", False, "0 or more"),
        ("latency_budget", 2, "with a unit"),
        ("latency_budget", "2", "with a unit"),
        ("latency_budget", "0s", "1ms..1h"),
        ("latency_budget", "2h", "1ms..1h"),
        ("headers", "trace-id", "not a list of names"),
        ("headers", [""], "not a list of names"),
        ("headers", ["\ud800"], "not a list of names"),
        ("headers", ["epoch"], "the service's own"),
        ("headers", ["a", "barrier"], "the service's own"),
        ("headers", ["a", "a"], "'a' twice"),
        ("headers", [f"h{number}" for number in range(17)], "more than 16"),
        ("output_partition", 4, "did you mean 'output_partitions'?"),
        (7, 4, "unknown key 7"),
    ],
)
def test_a_fault_is_named_with_what_was_found(key: Any, value: Any, fault: str) -> None:
    assert fault in faults_of(COPY | {key: value})


@pytest.mark.parametrize(
    ("condition", "code", "place"),
    [
        ("id = rand()", Code.EXPRESSION_NOT_ALLOWED, "filter:6"),
        ("id = ", Code.EXPRESSION_INVALID, "filter:6"),
        ("", Code.EXPRESSION_INVALID, "filter:1"),
    ],
)
def test_a_job_with_nothing_but_a_wrong_filter_has_the_filters_code(
    condition: str, code: Code, place: str
) -> None:
    assert place in faults_of(COPY | {"filter": condition}, code)


def test_all_faults_are_named_at_once() -> None:
    found = faults_of(
        {
            "name": "A",
            "output": "a b",
            "columns": ["x"],
            "filter": "rand() = 1",
            "output_partitions": 0,
            "rate_limit": -1,
            "latency_budget": "2",
            "colour": "red",
        }
    )
    for word in (
        "colour",
        "name",
        *("output", "columns", "filter:1", "output_partitions", "rate_limit", "latency"),
    ):
        assert word in found


def test_a_fault_of_any_size_stays_a_short_line() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    assert len(faults_of(COPY | {"columns": deep, "output": "x" * 100_000, "rate_limit": 10**5_000})) < 1_000


definitions = st.builds(
    lambda **keys: JobDefinition.declare(COPY | keys, TABLE),
    columns=st.none() | st.lists(st.sampled_from(TABLE.column_names), min_size=1, unique=True),
    filter=st.sampled_from([None, "id=1", "note = 'it''s \u00e9\n'", "not (id<1 or id>2)"]),
    output_partitions=st.integers(1, 16),
    rate_limit=st.none() | st.integers(0, 2**63 - 1),
    latency_budget=st.sampled_from([None, "1500ms", "2s", "1m", "1h"]),
    headers=st.none() | st.lists(st.text(min_size=1), max_size=3, unique=True),
)


@given(definitions)
def test_json_and_pickle_give_the_same_definition_back(job: JobDefinition) -> None:
    assert JobDefinition.from_json(job.to_json(), TABLE) == job
    assert JobDefinition.from_json(job.to_json(), TABLE).to_json() == job.to_json()
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301  our own bytes


def test_the_json_of_a_definition_is_stable() -> None:
    """A golden text: it is stored in topics and journals, so it may gain keys but not change."""
    job = JobDefinition.declare(
        COPY | {"columns": ["id"], "filter": "id>1", "latency_budget": "2000ms"}, TABLE
    )
    assert job.to_json() == (
        '{"columns": ["id"], "filter": "id > 1", "latency_budget": "2s", "name": "orders-copy", '
        '"output": "orders.copy", "output_partitions": 4, "rate_limit": null}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "null",
        '"a"',
        "[" * 100_000,
        '{"name":"a","name":"b","output":"c"}',
        '{"a":' + "9" * 5_000 + "}",
    ],
    ids=lambda text: text[:12],
)
def test_text_that_is_no_definition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobDefinition.from_json(text, TABLE)
    assert caught.value.code is Code.JOB_INVALID


def test_differences_are_named_as_was_and_is() -> None:
    was = JobDefinition.declare(COPY | {"filter": "id > 1"}, TABLE)
    same = JobDefinition.declare(
        COPY | {"filter": "  ID_ > 1".replace("ID_", "id"), "rate_limit": None}, TABLE
    )
    now = JobDefinition.declare(COPY | {"columns": ["id"], "latency_budget": "2s"}, TABLE)
    assert was.differences(same) == []
    assert was.differences(now) == [
        'columns was ["note", "id", "region", "amount"], is ["id"]',
        'filter was "id > 1", is null',
        'latency_budget was null, is "2s"',
    ]


def test_what_may_be_a_secret_is_not_named_where_it_differs() -> None:
    hashing = COPY | {"columns": ["id", {"n": "hash(note)"}]}
    was, now = (
        JobDefinition.declare(hashing | {"hash_key_file": f"/{name}"}, TABLE) for name in ("key", "planted")
    )
    assert was.differences(now) == ["hash_key_file is another one"]


@pytest.mark.parametrize("partitions", [1, 3, 4, 16])
def test_every_partition_gets_a_contiguous_share_of_the_vnodes(partitions: int) -> None:
    job = JobDefinition.declare(COPY | {"output_partitions": partitions}, TABLE)
    of = [job.partition_of(vnode) for vnode in range(TABLE.vnode_count)]
    assert of == sorted(of)
    shares = Counter(of)
    assert set(shares) == set(range(partitions))
    assert max(shares.values()) - min(shares.values()) <= 1


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_a_partition_lies_in_one_lane_when_lanes_divide_the_partitions(lanes: int) -> None:
    job = JobDefinition.declare(COPY | {"output_partitions": 8}, TABLE)
    lane_of = {(job.partition_of(v), v * lanes // TABLE.vnode_count) for v in range(TABLE.vnode_count)}
    assert len(lane_of) == 8


def test_what_is_read_begins_with_the_output_and_adds_key_and_filter_columns() -> None:
    job = JobDefinition.declare(COPY | {"columns": ["amount", "id"], "filter": "note = 'x' OR id = 1"}, TABLE)
    assert names(job.columns_of(TABLE)) == ["amount", "id"]
    assert job.read_columns(TABLE) == ("amount", "id", "region", "note")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("replication_factor", 0, "is not in 1..32767"),
        ("replication_factor", "3", "is not in 1..32767"),
        ("topic_config", "retention.ms=5", "is no mapping"),
        ("topic_config", {"Retention": 5}, "is no setting"),
        ("topic_config", {"segment.ms": [5]}, "is no text, number or boolean"),
        ("topic_config", {"segment.ms": "\udfff"}, "is no text, number or boolean"),
        ("topic_config", {"cleanup.policy": "compact,delete"}, "holds compact"),
        ("topic_config", {"retention.ms": 1000}, "allow_retention: true allows it"),
        ("topic_config", {"retention.bytes": 1}, "allow_retention: true allows it"),
        ("allow_retention", "yes", "neither true nor false"),
        ("paused", "yes", "paused 'yes' is neither true nor false"),
        ("from", "yesterday", "from 'yesterday' is not beginning or now"),
        ("from", "now", "from: now with format change, whose updates and deletes say what a row was"),
        ("until", "tomorrow", "until 'tomorrow' is not complete"),
    ],
)
def test_what_is_said_of_the_topic_is_checked(key: str, value: object, expected: str) -> None:
    assert expected in faults_of(COPY | {key: value})


def test_an_output_begins_now_where_its_records_say_nothing_of_rows_before() -> None:
    upserts = COPY | {"format": "upsert", "from": "now"}
    job = JobDefinition.declare(upserts, TABLE)
    assert (job.from_now, job.until_complete) == (True, False)
    assert JobDefinition.from_json(job.to_json(), TABLE) == job
    assert job.differences(JobDefinition.declare(COPY | {"format": "upsert"}, TABLE)) == [
        'from was "now", is null'
    ]
    assert "from: now with format debezium" in faults_of(upserts | {"format": "debezium"})
    assert "which together send nothing" in faults_of(upserts | {"until": "complete"})


def test_an_output_may_end_once_it_is_complete_in_every_form() -> None:
    job = JobDefinition.declare(COPY | {"from": "beginning", "until": "complete"}, TABLE)
    assert (job.from_now, job.until_complete) == (False, True)
    assert JobDefinition.from_json(job.to_json(), TABLE) == job


def test_a_key_that_may_change_makes_no_other_job_and_another_number_of_copies_does() -> None:
    job = JobDefinition.declare(COPY, TABLE)
    assert not job.differences(JobDefinition.declare(COPY | {"allow_retention": True, "paused": True}, TABLE))
    more = JobDefinition.declare(COPY | {"replication_factor": 3}, TABLE)
    assert job.differences(more) == ["replication_factor was null, is 3"]

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.formats.debezium import DebeziumFormat
from schemas.kinds.projection import plain
from schemas.settings.config import load
from schemas.settings.documents import MAX_FILE_BYTES
from tests.kit.config_files import EXAMPLE, LEAST, TABLE, read, refusal_of, write


def test_the_documented_example_is_read_as_it_says(tmp_path: Path) -> None:
    config = read(tmp_path, EXAMPLE)
    assert config.kafka.bootstrap == "127.0.0.1:9092"
    assert (config.upstream, config.barriers.kind, config.barrier_interval_ms) == ("orders", "inject", 1_000)
    assert (config.lanes, config.table.name, config.table.vnode_count) == (4, "orders", 64)
    (job,) = config.jobs
    assert (job.name, job.columns, job.latency_budget_ms) == ("orders-copy", plain(["id", "amount"]), 2_000)
    assert job.filter == "amount >= 10 AND region IN ('EU', 'US')"


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST)
    assert config.kafka.bootstrap is None
    assert (config.barriers.kind, config.barrier_interval_ms) == ("inject", 1_000)
    assert config.jobs == ()
    assert config.spark.master is None


@pytest.mark.parametrize(
    ("cores", "vnode_count", "output_partitions", "lanes"),
    [(2, 64, 4, 2), (3, 64, 4, 2), (3, 64, 6, 3), (16, 64, 4, 4), (8, 64, 3, 3), (8, 2, 2, 2), (1, 64, 4, 1)],
)
def test_by_default_there_are_as_many_lanes_as_cores_that_suit_every_job(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    vnode_count: int,
    output_partitions: int,
    lanes: int,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    table = TABLE | {"vnode_count": vnode_count}
    jobs = [job(output_partitions=output_partitions)]
    assert read(tmp_path, LEAST | {"table": table, "jobs": jobs}).lanes == lanes


@pytest.mark.parametrize(
    ("declared", "kept_ms"),
    [({}, 30 * 86_400_000), ("2d", 2 * 86_400_000), ("12h", 43_200_000), ("0s", 0), ("forever", None)],
)
def test_barriers_are_kept_for_days_or_for_ever(tmp_path: Path, declared: Any, kept_ms: int | None) -> None:
    said = {"barriers_keep": declared} if declared else {}
    assert read(tmp_path, LEAST | said).barriers_keep_ms == kept_ms


def test_a_job_that_reads_the_topic_takes_any_number_of_lanes(tmp_path: Path) -> None:
    jobs = [job(read="topic", output_partitions=4)]
    for lanes in (1, 2, 3, 4):
        assert read(tmp_path, LEAST | {"lanes": lanes, "jobs": jobs}).lanes == lanes
    assert "5 lanes for 4 partitions" in refusal_of(tmp_path, LEAST | {"lanes": 5, "jobs": jobs}).found


def test_a_cluster_is_taken_to_have_cores_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert read(tmp_path, LEAST | {"spark": {"master": "spark://host:7077"}}).lanes == 4


def test_a_section_with_all_its_lines_commented_out_means_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST | {"kafka": None, "jobs": None, "spark": None}) == read(tmp_path, LEAST)


def test_fields_to_ignore_are_a_list(tmp_path: Path) -> None:
    upstream = {"topic": "t", "format": "debezium", "on_new_column": "wait", "ignored_columns": ["a", "__op"]}
    assert read(tmp_path, LEAST | {"upstream": upstream}).upstream_format == DebeziumFormat(
        on_new_column="wait", ignored_columns=("a", "__op")
    )


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    as_yaml = """
upstream: orders
state: state
table:
  name: orders
  columns:
    id: bigint
    note: string
  primary_key: [id]
"""
    assert read(tmp_path, as_yaml) == read(tmp_path, json.dumps(LEAST, indent=4))


@pytest.mark.parametrize(
    ("state", "resolved"),
    [
        ("state", "{folder}/state"),
        ("./a/../b", "{folder}/b"),
        ("/somewhere/else", "/somewhere/else"),
        ("s3://bucket/path", "s3://bucket/path"),
        ("file:///srv/state", "file:///srv/state"),
    ],
)
def test_a_relative_state_is_below_the_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, resolved: str
) -> None:
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", LEAST | {"state": state})
    monkeypatch.chdir(tmp_path)
    config = load(Path("conf/backfill.yaml"))
    assert config.state == resolved.format(folder=(tmp_path / "conf").resolve())


def test_the_folder_of_rows_is_a_path_below_the_files_folder(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST).rows_folder is None
    assert read(tmp_path, {**LEAST, "rows_folder": "rows"}).rows_folder == str(tmp_path / "rows")
    assert read(tmp_path, {**LEAST, "rows_folder": "/var/rows"}).rows_folder == "/var/rows"
    for refused in ("", "s3://bucket/rows", "a\nb"):
        assert (
            "rows_folder: no path of a folder"
            in refusal_of(tmp_path, {**LEAST, "rows_folder": refused}).found
        )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"lane": 4}, "unknown key 'lane' (did you mean 'lanes'?)"),
        ({"barier_interval": "1s"}, "did you mean 'barrier_interval'?"),
        ({"kafka": {"bootstrp": "a:1"}}, "unknown key 'kafka.bootstrp' (did you mean 'bootstrap'?)"),
        ({"spark": {"memory": "1g"}}, "unknown key 'spark.memory'"),
        ({"kafka": {"bootstrap": "localhost"}}, "kafka.bootstrap is 'localhost'"),
        ({"kafka": {"bootstrap": "a:9092,"}}, "kafka.bootstrap"),
        ({"kafka": {"bootstrap": "a:9092\nb"}}, "kafka.bootstrap"),
        ({"kafka": "a:9092"}, "kafka is 'a:9092'"),
        ({"upstream": "a b"}, "upstream: no topic name"),
        ({"upstream": "a" * 245}, "upstream: no topic name"),  # no room for .control
        ({"upstream": 7}, "upstream is 7"),
        ({"upstream": None}, "upstream is None"),
        ({"upstream": {"topik": "a"}}, "name and format: {topic: …} (did you mean 'topic'?)"),
        ({"state": ""}, "state is ''"),
        ({"state": "a\x00b"}, "state: no path"),
        ({"barriers": "injected"}, "barriers is 'injected': input should be 'inject' or 'embedded'"),
        ({"barrier_interval": 1}, "barrier_interval: 1 is not a whole number with a unit"),
        ({"barrier_interval": "10"}, "barrier_interval: '10' is not a whole number with a unit"),
        ({"barrier_interval": "50ms"}, "'50ms' is not in 100ms..1h"),
        ({"barrier_interval": "0s"}, "'0s' is not in 100ms..1h"),
        ({"barrier_interval": "2h"}, "'2h' is not in 100ms..1h"),
        ({"barrier_interval": "-1s"}, "with a unit"),
        ({"barriers_keep": 30}, "barriers_keep: 30 is neither forever nor a time as in 30d or 12h"),
        ({"barriers_keep": "never"}, "is neither forever nor a time as in 30d or 12h"),
        ({"lanes": 0}, "lanes is 0"),
        ({"lanes": -4}, "lanes is -4"),
        ({"lanes": "4"}, "lanes is '4'"),
        ({"lanes": 4.0}, "lanes is 4.0"),
        ({"lanes": True}, "lanes is True"),
        ({"lanes": 65}, "65 lanes for a vnode_count of 64"),
        ({"spark": {"driver_memory": "2"}}, "spark.driver_memory is '2'"),
        (
            {"spark": {"settings": {"spark.speculation": True}}},
            "spark.settings: 'spark.speculation' is not for",
        ),
        ({"spark": {"settings": {"spark.task.maxFailures": 4}}}, "'spark.task.maxFailures' is not for"),
        ({"spark": {"settings": {"spark.driver.memory": "2g"}}}, "'spark.driver.memory' is not for"),
        ({"spark": {"settings": {"spark.executor.extraJavaOptions": "-X"}}}, "JavaOptions' is not for"),
        ({"spark": {"settings": ["spark.executor.cores"]}}, "spark.settings is"),
        ({"table": []}, "table is []"),
        ({"jobs": {}}, "jobs is {}"),
        ({"jobs": ["a"]}, "jobs.0 is 'a'"),
        (
            {"upstream": {"topic": "t", "format": "upsert", "ignored_columns": "a"}},
            "upstream.ignored_columns is 'a': input should be a valid list",
        ),
    ],
)
def test_a_fault_is_named_with_its_key_and_what_was_found(
    tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    assert fault in refusal_of(tmp_path, LEAST | change).found


@pytest.mark.parametrize("key", ["upstream", "state", "table"])
def test_what_has_no_default_must_be_there(tmp_path: Path, key: str) -> None:
    declared = {k: v for k, v in LEAST.items() if k != key}
    assert f"no '{key}'" in refusal_of(tmp_path, declared).found


def job(**changes: Any) -> dict[str, Any]:
    return {"name": "copy", "output": "orders-copy"} | changes


@pytest.mark.parametrize(
    ("jobs", "fault", "code"),
    [
        ([job(output="orders")], "is the upstream", Code.SAME_TOPIC),
        ([job(output="orders.control")], "a topic beside it", Code.SAME_TOPIC),
        (
            [job(), job(name="b", output="orders-copy.dead-letters")],
            "output of job b 'orders-copy.dead-letters' is for the dead letters of job copy",
            Code.SAME_TOPIC,
        ),
        ([job(output="o" * 237)], "236 at most", Code.JOB_INVALID),
        ([job(), job(output="b")], "2 jobs with name 'copy'", Code.CONFIG_INVALID),
        ([job(), job(name="b")], "2 jobs with output 'orders-copy'", Code.CONFIG_INVALID),
        ([job(), job(name="../x", output="b")], "jobs.1: name '../x'", Code.JOB_NAME_INVALID),
        ([job(filter="rand() < 1")], "jobs.0: filter:1: a call of 'rand'", Code.EXPRESSION_NOT_ALLOWED),
        ([job(latency="1s")], "jobs.0: unknown key 'latency'", Code.JOB_INVALID),
    ],
)
def test_jobs_are_checked_alone_and_against_the_rest(
    tmp_path: Path, jobs: list[Any], fault: str, code: Code
) -> None:
    assert fault in refusal_of(tmp_path, LEAST | {"jobs": jobs}, code).found


def test_declared_lanes_have_to_suit_every_job(tmp_path: Path) -> None:
    refused = refusal_of(tmp_path, LEAST | {"lanes": 4, "jobs": [job(output_partitions=6)]})
    assert "4 lanes don't divide 6 output_partitions" in refused.found


def test_a_fault_in_the_table_keeps_its_code(tmp_path: Path) -> None:
    refused = refusal_of(tmp_path, LEAST | {"table": TABLE | {"primary_key": ["noet"]}}, Code.TABLE_INVALID)
    assert "did you mean 'note'?" in refused.found


def test_all_faults_of_a_file_are_named_at_once(tmp_path: Path) -> None:
    found = refusal_of(
        tmp_path,
        {
            "upsteam": "orders",
            "barrier_interval": 1,
            "lanes": 0,
            "kafka": {"bootstrap": "x"},
            "table": TABLE | {"vnode_count": 1},
        },
    ).found
    for fault in (
        "'upsteam'",
        "no 'upstream'",
        "'state'",
        "barrier_interval",
        "lanes",
        "bootstrap",
        "vnode_count",
    ):
        assert fault in found
    found = refusal_of(
        tmp_path, LEAST | {"lanes": 3, "jobs": [job(output="orders"), job(rate_limit=-1), job(name="A")]}
    ).found
    for fault in ("is the upstream", "3 lanes don't divide", "jobs.1: rate_limit", "jobs.2: name"):
        assert fault in found


@pytest.mark.parametrize(
    ("text", "line", "fault"),
    [
        ("upstream: a\nlanes: 4\nlanes: 5\n", 3, "duplicate key"),
        ("upstream: a\n\tlanes: 4\n", 2, "character"),
        ("upstream: [a\n", 2, "expected"),
        ("upstream: a\n---\nupstream: b\n", 2, "but found another document"),
        ("upstream: *nowhere\n", 1, "undefined alias"),
        ("upstream: !!python/object/apply:os.system ['true']\n", 1, "could not determine a constructor"),
    ],
)
def test_text_that_is_no_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, fault: str
) -> None:
    refused = refusal_of(tmp_path, text)
    assert refused.where == f"{tmp_path / 'backfill.yaml'}:{line}"
    assert fault in refused.found
    assert not refused.found.startswith("found ")  # the error itself says "found"


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "orders\n", "7\n", "null\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    assert "no mapping" in refusal_of(tmp_path, text).found


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "a: &a [*a]\nupstream: *a\n",
        "\n".join(["a0: &a0 x", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 20))]),
        "a: \x00\n",
        "#" * (MAX_FILE_BYTES + 1),
        "7: a\n[1]: b\n",
        "? {a: b}\n: c\n",
        "lanes: " + "9" * 5_000,
        "state: 2026-99-99",
    ],
    ids=[
        "deep",
        "recursive",
        "laughs",
        "nul",
        "large",
        "number as key",
        "mapping as key",
        "digits",
        "no day",
    ],
)
@pytest.mark.timeout(60)
def test_a_hostile_file_is_refused_in_one_short_line(tmp_path: Path, text: str) -> None:
    assert len(refusal_of(tmp_path, text).found) < 2_000


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FileNotFoundError"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="IsADirectoryError"):
        load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"upstream: \xff\xfe\n")
    with pytest.raises(ConfigError, match="UnicodeDecodeError"):
        load(tmp_path / "bytes.yaml")


def test_a_message_never_quotes_the_value_of_an_unknown_or_doubled_key(tmp_path: Path) -> None:
    assert "hunter2" not in str(refusal_of(tmp_path, LEAST | {"password": "hunter2"}))
    assert "hunter2" not in str(refusal_of(tmp_path, "password: hunter2\npassword: hunter2\n"))


def test_yaml_words_are_not_taken_for_something_else(tmp_path: Path) -> None:
    """YAML 1.1 would read these as a boolean and as a number of base 60."""
    config = read(tmp_path, "upstream: no\nstate: 1:30\ntable: " + json.dumps(TABLE))
    assert (config.upstream, Path(config.state).name) == ("no", "1:30")


def test_every_key_says_what_it_is_for() -> None:
    from schemas.settings.config import ServiceConfig
    from schemas.settings.kafka import KafkaConfig
    from schemas.settings.spark import SparkConfig

    for model in (ServiceConfig, KafkaConfig, SparkConfig):
        assert all(field.description for field in model.model_fields.values())

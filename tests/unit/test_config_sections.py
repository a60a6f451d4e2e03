"""The sections `spark` and `limits` of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code
from schemas.kinds.initial import DeltaStart
from tests.kit.config_files import LEAST, TABLE, read, refusal_of


def test_spark_has_its_secrets_by_file_or_variable_and_never_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of the cluster\n")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("STORE_PASSWORD", "of the stores")
    security = {
        "spark.authenticate": True,
        "spark.network.crypto.enabled": True,
        "spark.ssl.rpc.enabled": True,
        "spark.io.encryption.keySizeBits": 256,
    }
    section = {
        "master": "spark://master:7077",
        "settings": security,
        "authenticate_secret_file": "secret",
        "ssl_password_env": "STORE_PASSWORD",
    }
    spark = read(tmp_path, LEAST | {"spark": section}).spark
    secret, password = spark.secrets()
    assert secret is not None
    assert password is not None
    assert (secret.read(), password.read(), spark.settings) == ("of the cluster", "of the stores", security)


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"settings": {"spark.authenticate.secret": "planted"}}, "spark.authenticate.secret' is a secret"),
        ({"settings": {"spark.ssl.rpc.keyStorePassword": "planted"}}, "keyStorePassword' is a secret"),
        (
            {"master": "spark://m:7077", "settings": {"spark.authenticate": True}},
            "neither 'spark.authenticate_",
        ),
        ({"authenticate_secret_file": "planted"}, "a file that can't be read"),
        ({"authenticate_secret_env": "PLANTED_1", "authenticate_secret_file": "planted"}, "both spark."),
        ({"ssl_password_env": "PLANTED=1"}, "spark.ssl_password_env"),
    ],
)
def test_secrets_of_spark_that_cannot_be_used_are_named_and_never_shown(
    tmp_path: Path, section: dict[str, Any], complaint: str
) -> None:
    refused = refusal_of(tmp_path, LEAST | {"spark": section})
    assert complaint in str(refused)
    assert "planted" not in str(refused).lower()


def test_settings_of_a_cluster_are_passed_on_to_spark(tmp_path: Path) -> None:
    settings = {"spark.executor.memory": "2g", "spark.cores.max": 8, "spark.kubernetes.namespace": "orders"}
    assert read(tmp_path, LEAST | {"spark": {"settings": settings}}).spark.settings == settings


def test_executors_may_get_their_packages_from_the_service(tmp_path: Path) -> None:
    (tmp_path / "packages.tar.gz").touch()
    section = {"master": "spark://m:7077", "python": "python3.11", "packages_file": "packages.tar.gz"}
    spark = read(tmp_path, LEAST | {"spark": section}).spark
    assert (spark.python, spark.packages_file) == ("python3.11", str(tmp_path / "packages.tar.gz"))


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"python": "python3.11"}, "spark.python without a spark.master"),
        ({"master": "local", "python": "python3.11"}, "spark.python without a spark.master"),
        (
            {"master": "local[2]", "packages_file": "packages.zip"},
            "spark.packages_file without a spark.master",
        ),
        (
            {"master": "spark://m:7077", "packages_file": "packages.rar"},
            "packages.rar' as spark.packages_file",
        ),
        ({"master": "spark://m:7077", "packages_file": "packages.zip"}, "packages.zip', which"),
    ],
)
def test_packages_that_no_executor_would_get_are_refused(
    tmp_path: Path, section: dict[str, Any], complaint: str
) -> None:
    assert complaint in str(refusal_of(tmp_path, LEAST | {"spark": section}))


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({}, (1_000_000, 1_000_000, 64 << 20)),
        ({"record_bytes": "2m", "lane_bytes": "1g"}, (2 << 20, 1_000_000, 1 << 30)),
        ({"interval_records": 5, "lane_bytes": 1 << 20}, (1_000_000, 5, 1 << 20)),
    ],
)
def test_limits_are_bytes_or_sizes(tmp_path: Path, limits: dict[str, Any], found: tuple[int, ...]) -> None:
    loaded = read(tmp_path, LEAST | {"limits": limits}).limits
    assert (loaded.record_bytes, loaded.interval_records, loaded.lane_bytes) == found


@pytest.mark.parametrize(
    "limits",
    [
        {"record_bytes": 999_999},
        {"record_bytes": "65m"},
        {"record_bytes": "1mb"},
        {"record_bytes": 1.5},
        {"lane_bytes": "0m"},
        {"lane_bytes": True},
        {"interval_records": 0},
        {"lane_bytes": "2g"},
        {"long_transaction": "59s"},
        {"long_transaction": "25h"},
        {"records": 1},
    ],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limits: dict[str, Any]) -> None:
    assert "limits." in refusal_of(tmp_path, LEAST | {"limits": limits}).found


DELTA = {"uri": "source", "version": 7, "offsets": [1, 2]}


def test_a_start_from_a_table_is_below_the_folder_of_the_file(tmp_path: Path) -> None:
    start = read(tmp_path, LEAST | {"initial": {"delta": DELTA}}).initial
    assert start is not None
    assert start.to_dict() == {**DELTA, "uri": str(tmp_path / "source"), "timestamp_ms": None}
    assert start.to_dict() == DeltaStart.from_dict(start.to_dict()).to_dict()
    elsewhere = read(tmp_path, LEAST | {"initial": {"delta": {**DELTA, "uri": "s3://lake/orders"}}}).initial
    assert elsewhere is not None
    assert elsewhere.uri == "s3://lake/orders"
    assert read(tmp_path, LEAST).initial is None


@pytest.mark.parametrize(
    "at", ["2026-01-31T12:00:00.0001Z", "2026-01-31T14:00:00.0001+02:00", "2026-01-31 12:00:00.000100+00:00"]
)
def test_a_time_to_start_from_is_the_first_millisecond_that_is_not_before_it(tmp_path: Path, at: str) -> None:
    declared = {"uri": "source", "version": 0, "timestamp": at}
    start = read(tmp_path, LEAST | {"initial": {"delta": declared}}).initial
    assert start is not None
    assert start.timestamp == 1_769_860_800_001


@pytest.mark.parametrize(
    ("delta", "complaint"),
    [
        ({"uri": "x", "version": 1}, "initial.delta: offsets or timestamp is needed, and not both"),
        ({**DELTA, "timestamp": "2026-01-31T12:00:00Z"}, "offsets or timestamp is needed, and not both"),
        ({**DELTA, "offsets": [-1]}, "initial.delta.offsets.0 is -1"),
        ({**DELTA, "version": None}, "initial.delta.version is None"),
        ({**DELTA, "versoin": 1}, "unknown key 'initial.delta.versoin' (did you mean 'version'?)"),
        ({"uri": "x", "version": 1, "timestamp": "2026-01-31T12:00:00"}, "a time without its zone"),
        ({"uri": "x", "version": 1, "timestamp": 7}, "7 is no time as in 2026-01-31T12:00:00Z"),
    ],
)
def test_a_start_that_is_none_is_refused(tmp_path: Path, delta: dict[str, Any], complaint: str) -> None:
    assert complaint in refusal_of(tmp_path, LEAST | {"initial": {"delta": delta}}).found


def test_rows_without_identity_start_from_no_table(tmp_path: Path) -> None:
    declared = {
        "upstream": {"topic": "clicks", "format": "append"},
        "state": "state",
        "table": {"name": "clicks", "columns": {"page": "string"}},
        "initial": {"delta": DELTA},
    }
    assert "rows of format append have no identity" in refusal_of(tmp_path, declared).found


POSTGRES = {"dsn_file": "orders.dsn", "table": "public.orders", "slot": "orders"}
DEBEZIUM = {"topic": "shop.public.orders", "format": "debezium"}


def from_postgres(folder: Path, **over: Any) -> dict[str, Any]:
    """A configuration with a file of a connection string beside it."""
    (folder / "orders.dsn").write_text("host=127.0.0.1 password=planted")
    (folder / "orders.dsn").chmod(0o600)
    return LEAST | {"upstream": DEBEZIUM, "initial": {"postgres": POSTGRES}} | over


def test_a_start_from_postgres_is_bound_to_table_and_slot_alone(tmp_path: Path) -> None:
    start = read(tmp_path, from_postgres(tmp_path)).initial_postgres
    assert start is not None
    assert start.to_dict() == {"table": "public.orders", "slot": "orders", "mode": "chunks"}
    assert start.dsn.read() == "host=127.0.0.1 password=planted"
    other = {**POSTGRES, "readers": 4, "rate_limit": 0, "chunk_rows": 7, "statement_timeout": "2s"}
    again = read(tmp_path, from_postgres(tmp_path, initial={"postgres": other})).initial_postgres
    assert again is not None
    assert (again.to_dict(), again.statement_timeout) == (start.to_dict(), 2_000)


@pytest.mark.parametrize(
    ("over", "complaint"),
    [
        ({"initial": {}}, "initial: delta or postgres is needed"),
        ({"initial": {"postgres": POSTGRES, "delta": DELTA}}, "initial: delta or postgres is needed"),
        ({"upstream": {**DEBEZIUM, "before": "full"}}, "upstream.format: debezium, without before: full"),
        ({"upstream": "orders"}, "upstream.format: debezium, without before: full"),
        (
            {"table": {**TABLE, "distribution": "upstream"}},
            "which is their vnode with table.distribution: upstream",
        ),
        ({"jobs": [{"name": "log", "output": "log", "read": "topic"}]}, "job log: read: topic needs an upst"),
        ({"initial": {"postgres": {**POSTGRES, "dsn_file": "none"}}}, "initial.postgres.dsn_file"),
        (
            {"initial": {"postgres": {**POSTGRES, "dsn_file": 7}}},
            "initial.postgres.dsn_file: input should be",
        ),
        (
            {
                "initial": {
                    "postgres": {**POSTGRES, "connector_url": "https://planted:planted@c/connectors/a"}
                }
            },
            "initial.postgres.connector_url: ",
        ),
        ({"initial": {"postgres": {**POSTGRES, "statement_timeout": "1ms"}}}, "'1ms' is not in 1s..1h"),
        ({"initial": {"postgres": {**POSTGRES, "slots": "a"}}}, "did you mean 'slot'"),
    ],
)
def test_a_start_from_postgres_that_does_not_fit_is_refused(
    tmp_path: Path, over: dict[str, Any], complaint: str
) -> None:
    refused = refusal_of(tmp_path, from_postgres(tmp_path, **over))
    assert complaint in str(refused)
    assert "planted" not in str(refused)


def test_a_connection_string_that_others_may_read_is_refused(tmp_path: Path) -> None:
    declared = from_postgres(tmp_path)
    (tmp_path / "orders.dsn").chmod(0o644)
    assert "initial.postgres.dsn_file" in str(refusal_of(tmp_path, declared, Code.SECRET_FILE_MODE))


def test_limits_of_reading_are_those_of_the_upstream_and_of_all_jobs(tmp_path: Path) -> None:
    upstream = {"topic": "orders", "format": "upsert", "read_limit": 500}
    config = read(tmp_path, LEAST | {"upstream": upstream, "limits": {"rate_limit": 1_000}})
    assert (config.source.read_limit, config.limits.rate_limit) == (500, 1_000)
    config = read(tmp_path, LEAST | {"barrier_topic": "b", "upstream": {"topic": "orders", "read_limit": 1}})
    assert config.source.read_limit == 1
    assert (read(tmp_path, LEAST).source.read_limit, read(tmp_path, LEAST).limits.rate_limit) == (None, None)


@pytest.mark.parametrize(
    ("over", "complaint"),
    [
        (
            {"upstream": {"topic": "orders", "read_limit": 1}},
            "upstream.read_limit without 'barriers: inject'",
        ),
        (
            {"upstream": {"topic": "orders", "format": "upsert", "read_limit": 1}, "barriers": "embedded"},
            "upstream.read_limit without 'barriers: inject'",
        ),
        ({"upstream": {"topic": "orders", "format": "upsert", "read_limit": 0}}, "read_limit"),
        ({"upstream": {"topic": "orders", "format": "upsert", "read_limit": True}}, "read_limit"),
        ({"upstream": {"topic": "orders", "format": "upsert", "read_limit": "5/s"}}, "read_limit"),
        ({"limits": {"rate_limit": 0}}, "limits.rate_limit"),
    ],
)
def test_a_limit_of_reading_that_nothing_keeps_or_that_is_none_is_refused(
    tmp_path: Path, over: dict[str, Any], complaint: str
) -> None:
    assert complaint in str(refusal_of(tmp_path, LEAST | over))

"""The sections `spark` and `limits` of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.config_files import LEAST, read, refusal_of


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
    ("section", "told"),
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
    tmp_path: Path, section: dict[str, Any], told: str
) -> None:
    refused = refusal_of(tmp_path, LEAST | {"spark": section})
    assert told in str(refused)
    assert "planted" not in str(refused).lower()


def test_settings_of_a_cluster_are_passed_on_to_spark(tmp_path: Path) -> None:
    settings = {"spark.executor.memory": "2g", "spark.cores.max": 8, "spark.kubernetes.namespace": "orders"}
    assert read(tmp_path, LEAST | {"spark": {"settings": settings}}).spark.settings == settings


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

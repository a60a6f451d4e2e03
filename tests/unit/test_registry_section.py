"""The section `registry`: only our own keys, every contradiction at once, and secrets that never show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.settings.config import ServiceConfig
from tests.kit import config_files
from tests.kit.config_files import LEAST
from tests.kit.secure import Certificates, private

UPSTREAM = {"topic": "orders", "format": "upsert", "encoding": "avro-registry"}
NEAR, FAR = {"url": "http://127.0.0.1:8081"}, {"url": "https://registry.example/apis/ccompat/v7"}
OAUTH = {"token_url": "http://127.0.0.1:9/token", "client_id": "backfill", "client_secret_file": "password"}
LOGIN = {"username": "backfill", "password_file": "password"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    private(tmp_path / "password", "hunter2\n")
    private(tmp_path / "open", "hunter2", mode=0o640)
    certificates = Certificates(tmp_path)
    certificates.issue("client")
    certificates.issue("locked", password="hunter3")
    return tmp_path


def declared(registry: object, upstream: object = UPSTREAM) -> dict[str, Any]:
    return LEAST | {"upstream": upstream, "registry": registry}


def read(folder: Path, registry: object, upstream: object = UPSTREAM) -> ServiceConfig:
    return config_files.read(folder, declared(registry, upstream))


def refusal_of(folder: Path, registry: object, code: Code = Code.CONFIG_INVALID) -> str:
    refused = config_files.refusal_of(folder, declared(registry), code)
    assert "hunter" not in str(refused)
    return refused.found


def tokens(**over: object) -> dict[str, Any]:
    return {**NEAR, "oauth": {**OAUTH, **over}}


def test_files_are_found_below_the_folder_and_secrets_stay_references(folder: Path) -> None:
    pair = {"certificate_file": "client.pem", "key_file": "client-key.pem"}
    keys = [path.name for path in folder.iterdir() if "client" in path.name and path.name != "client.pem"]
    pair["key_file"] = keys[0]
    found = read(folder, {**FAR, **LOGIN, **pair, "ca_file": "ca.pem"}).registry
    assert found.password is not None
    assert found.password.read() == "hunter2"
    assert "hunter" not in repr(found)
    assert (found.ca_file, found.key_file) == (str(folder / "ca.pem"), str(folder / keys[0]))
    assert read(folder, {**FAR, "url": "https://a.example:1, https://b.example/x"}).registry.urls == [
        "https://a.example:1",
        "https://b.example/x",
    ]


def test_a_format_with_schemas_by_id_needs_a_registry_and_others_do_not(folder: Path) -> None:
    empty: object
    for empty in ({}, None):
        assert "no 'registry.url'" in refusal_of(folder, empty)
        assert read(folder, empty, "orders").registry.url is None
    assert read(folder, NEAR, "orders").registry.urls == ["http://127.0.0.1:8081"]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({**NEAR, "pasword_file": "x"}, "did you mean 'password_file'?"),
        ({"username": "backfill"}, "registry.username without registry.url"),
        ({**NEAR, "username": "backfill"}, "without the other"),
        ({**NEAR, "password_file": "password"}, "without the other"),
        ({**NEAR, "username": "a:b", "password_file": "password"}, "registry.username"),
        (
            {**NEAR, **LOGIN, "password_env": "HUNTER"},
            "both registry.password_file and registry.password_env",
        ),
        (
            {**NEAR, "token_file": "password", "token_env": "X"},
            "both registry.token_file and registry.token_env",
        ),
        ({**NEAR, **LOGIN, "token_file": "password"}, "both a registry.token and a registry.username"),
        ({**NEAR, "token_env": "NO_SUCH_VARIABLE"}, "empty or not set"),
        ({**NEAR, "token_file": "absent"}, "can't be read"),
        ({**NEAR, "ca_file": "ca.pem"}, "registry.ca_file with an http URL"),
        ({**FAR, "certificate_file": "client.pem"}, "without the other"),
        ({**FAR, "ca_file": "password"}, "registry.ca_file: no certificates in PEM"),
        ({"url": "http://registry.example:8081"}, "allow_plaintext: true"),
        ({"url": "http://me:hunter2@127.0.0.1:8081"}, "registry.url: "),
        ({"url": "ftp://127.0.0.1"}, "registry.url: "),
        ({**NEAR, **LOGIN, "oauth": OAUTH}, "both registry.oauth and registry.username"),
        ({**NEAR, "token_file": "password", "oauth": OAUTH}, "both registry.oauth and registry.token"),
        ({"oauth": OAUTH}, "registry.oauth without registry.url"),
        (tokens(client_secret_file="absent"), "registry.oauth.client_secret_file: a file"),
        (tokens(token_url="http://far.example"), "registry.oauth.token_url is another"),
        ({"url": "mock://hunter2"}, "registry.url: "),
    ],
)
def test_what_contradicts_itself_is_refused(folder: Path, keys: dict[str, Any], fault: str) -> None:
    assert fault in refusal_of(folder, keys)


def test_a_secret_that_others_may_read_is_refused(folder: Path) -> None:
    keys = {**NEAR, "token_file": "open"}
    assert "0640" in refusal_of(folder, keys, Code.SECRET_FILE_MODE)


def test_http_to_another_machine_has_to_be_allowed(folder: Path) -> None:
    keys = {"url": "http://registry.example:8081", "allow_plaintext": True}
    assert read(folder, keys).registry.allow_plaintext


@pytest.mark.parametrize(("encoding", "key"), [("json", "avro"), ("avro", "record")])
def test_an_encoding_and_a_key_that_do_not_go_together_are_refused(
    folder: Path, encoding: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=r"upstream\.(key|encoding)"):
        read(folder, NEAR, {**UPSTREAM, "encoding": encoding, "key": key})

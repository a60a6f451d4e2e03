"""The section `kafka`: only our own keys, every contradiction at once, and secrets that never show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from schemas.errors import Code, ConfigError
from schemas.settings.kafka import load_kafka, reach
from schemas.settings.security import MAX_SECRET_BYTES, Secret
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.security import for_java, for_librdkafka, jaas_quoted
from tests.kit import config_files
from tests.kit.config_files import LEAST
from tests.kit.secure import Certificates, private

LOGIN = {"security": "sasl_ssl", "username": "backfill", "password_file": "password"}
FAR = {"bootstrap": "far.example:9093"}
OAUTH = {
    "token_url": "https://issuer.example/realms/a/token",
    "client_id": "backfill",
    "client_secret_file": "password",
}
TOKENS: dict[str, Any] = {"security": "sasl_ssl", "oauth": OAUTH}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    private(tmp_path / "password", "hunter2\n")
    private(tmp_path / "open", "hunter2", mode=0o640)
    private(tmp_path / "key-password", "hunter3")
    certificates = Certificates(tmp_path)
    certificates.issue("client")
    certificates.issue("locked", password="hunter3")
    return tmp_path


def read(folder: Path, kafka: object) -> KafkaSettings:
    return KafkaSettings.from_config(config_files.read(folder, LEAST | {"kafka": kafka}).kafka)


def refusal_of(folder: Path, kafka: object, code: Code = Code.CONFIG_INVALID) -> str:
    refused = config_files.refusal_of(folder, LEAST | {"kafka": kafka}, code)
    assert "hunter" not in str(refused)
    return refused.found


def login(**over: object) -> dict[str, Any]:
    return {**FAR, **LOGIN, **over}


def tokens(**over: object) -> dict[str, Any]:
    return {**FAR, **TOKENS, "oauth": {**OAUTH, **over}}


def test_a_login_over_tls_is_the_same_for_both_clients(folder: Path) -> None:
    security = read(folder, login(ca_file="ca.pem")).security
    assert for_librdkafka(security) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "backfill",
        "sasl.password": "hunter2",
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    assert for_java(security) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="backfill" password="hunter2";',
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def test_a_token_server_is_the_same_for_both_clients(folder: Path) -> None:
    kafka = read(folder, tokens(scope='a "b"', ca_file="ca.pem"))
    assert "hunter2" not in repr(kafka)
    native, java = for_librdkafka(kafka.security), for_java(kafka.security)
    assert {name: value for name, value in native.items() if name.startswith(("sasl", "https"))} == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": OAUTH["token_url"],
        "sasl.oauthbearer.client.id": "backfill",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.scope": 'a "b"',
        "https.ca.location": str(folder / "ca.pem"),
    }
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="backfill" clientSecret="hunter2" scope="a \\"b\\"" '
        f'ssl.truststore.type="PEM" ssl.truststore.location="{folder / "ca.pem"}";'
    )
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.oauthbearer.token.endpoint.url"] == OAUTH["token_url"]


def test_a_client_certificate_is_the_same_for_both_clients(folder: Path) -> None:
    mutual = {
        "security": "ssl",
        "certificate_file": "locked.pem",
        "key_file": "locked.key",
        "key_password_file": "key-password",
    }
    security = read(folder, {**FAR, **mutual}).security
    native, java = for_librdkafka(security), for_java(security)
    assert native["ssl.key.location"] == str(folder / "locked.key")
    assert native["ssl.key.password"] == "hunter3"
    assert "ssl.key.password" not in java
    opened = serialization.load_pem_private_key(java["ssl.keystore.key"].encode(), None)
    locked = serialization.load_pem_private_key((folder / "locked.key").read_bytes(), b"hunter3")
    assert opened.public_key() == locked.public_key()
    assert java["ssl.keystore.certificate.chain"] == (folder / "locked.pem").read_text()
    assert native["ssl.endpoint.identification.algorithm"] == "https"


@pytest.mark.parametrize(
    ("kafka", "fault"),
    [
        (login(password="hunter2"), "unknown key 'kafka.password' (did you mean 'password_"),
        ({**FAR, "sasl.jaas.config": "hunter2"}, "unknown key 'kafka.sasl.jaas.config'"),
        ({**FAR, "ssl.endpoint.identification.algorithm": ""}, "unknown key"),
        ({**FAR, "plugin.library.paths": "x.so"}, "unknown key"),
        (login(security="SASL_SSL"), "kafka.security is 'SASL_SSL'"),
        (login(sasl_mechanism="GSSAPI"), "kafka.sasl_mechanism is 'GSSAPI'"),
        (login(username=None), "no 'kafka.username'"),
        (login(username="a\nb"), "kafka.username"),
        (login(password_file=None), "neither 'kafka.password_file' nor 'kafka.password_env'"),
        (login(password_env="P"), "both kafka.password_file and kafka.password_env"),
        (login(password_file=7), "kafka.password_file: input should be a valid string"),
        (login(password_file=None, password_env="hunter2!"), "kafka.password_env: string should"),
        (login(password_file="hunter2"), "kafka.password_file: a file that can't be read"),
        (login(password_file="."), "kafka.password_file: a file that can't be read"),
        (login(password_file=None, password_env="hunter2"), "not set"),
        (tokens(token="hunter2"), "unknown key 'kafka.oauth.token'"),
        (tokens(token_url="https://a:hunter2@b"), "kafka.oauth.token_url: string"),
        (tokens(token_url="http://far.example/t"), "with http, which sends the"),
        (tokens(token_url="http://[::1]/t", ca_file="ca.pem"), "with an http URL"),
        (tokens(ca_file="password"), "kafka.oauth.ca_file: no certificates in PEM"),
        (tokens(client_secret_file=None), "neither kafka.oauth.client_secret_file"),
        (tokens(client_secret_env="P"), "both kafka.oauth.client_secret_file"),
        (tokens(client_secret_file="."), "kafka.oauth.client_secret_file: a file"),
        (tokens(client_id="a\nb"), "kafka.oauth.client_id"),
        ({**FAR, **TOKENS, "username": "a"}, "both kafka.oauth and kafka.username"),
        ({**FAR, **TOKENS, "sasl_mechanism": "PLAIN"}, "kafka.oauth with sasl_mechanism: PLAIN"),
        ({**FAR, "security": "ssl", "oauth": OAUTH}, "kafka.oauth with security: ssl"),
        ({**FAR, "security": "sasl_ssl", "sasl_mechanism": "OAUTHBEARER"}, "no 'kafka.oauth'"),
        ({**FAR, "security": "ssl", "username": "a"}, "kafka.username with security: ssl"),
        ({"bootstrap": "localhost:1", "ca_file": "ca.pem"}, "kafka.ca_file with security: plaintext"),
        ({**FAR, "security": "ssl", "key_file": "client.key"}, "certificate_file and key_file go together"),
        ({**FAR, "security": "ssl", "key_password_env": "P"}, "without kafka.key_file"),
        ({**FAR, "security": "ssl", "ca_file": "password"}, "kafka.ca_file: no certificates in PEM"),
        ({**FAR, "security": "ssl", "ca_file": "nowhere"}, "kafka.ca_file: no certificates in PEM"),
        (
            {**FAR, "security": "ssl", "certificate_file": "client.pem", "key_file": "locked.key"},
            "don't go together",
        ),
        ({**LOGIN}, "no 'kafka.bootstrap': the embedded broker has no security"),
        (FAR, "kafka.bootstrap is another machine with security: plaintext"),
        ({"bootstrap": "localhost:1,far.example:1"}, "another machine"),
        (login(security="sasl_plaintext"), "another machine with security: sasl_plaintext"),
        ({"bootstrap": "localhost.example:1"}, "another machine"),
    ],
)
def test_what_can_not_work_or_is_not_safe_is_refused(folder: Path, kafka: Any, fault: str) -> None:
    assert fault in refusal_of(folder, kafka)


@pytest.mark.parametrize(
    "address", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "127.0.0.1:1, localhost:2"]
)
def test_this_machine_is_reached_without_security(folder: Path, address: str) -> None:
    assert read(folder, {"bootstrap": address}).security.protocol == "plaintext"


def test_another_machine_is_reached_in_the_clear_only_by_name_of_the_danger(folder: Path) -> None:
    assert read(folder, {**FAR, "allow_plaintext": True}).client()["security.protocol"] == "plaintext"


def test_contradictions_are_named_all_at_once(folder: Path) -> None:
    found = refusal_of(folder, {**FAR, "username": "a", "password_env": "P", "key_file": "k", "ca_file": "c"})
    for fault in (
        "kafka.username",
        "kafka.password_env",
        "kafka.key_file",
        "kafka.ca_file",
        "another machine",
    ):
        assert fault in found


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o610])
def test_a_secret_that_others_may_touch_is_refused(folder: Path, mode: int) -> None:
    (folder / "open").chmod(mode)
    found = refusal_of(folder, login(password_file="open"), Code.SECRET_FILE_MODE)
    assert f"mode {mode:04o}" in found


def test_a_private_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "client.key").chmod(0o644)
    mutual = {"security": "ssl", "certificate_file": "client.pem", "key_file": "client.key"}
    assert "kafka.key_file" in refusal_of(folder, {**FAR, **mutual}, Code.SECRET_FILE_MODE)


def test_a_key_that_the_java_client_can_not_read_is_refused(folder: Path) -> None:
    old = (folder / "client.key").read_text().replace("PRIVATE KEY", "EC PRIVATE KEY")
    private(folder / "client.key", old)
    mutual = {"security": "ssl", "certificate_file": "client.pem", "key_file": "client.key"}
    assert "PKCS#8" in refusal_of(folder, {**FAR, **mutual})


@pytest.mark.parametrize("text", ["", "\n", "a\nb", "a\x00b", "\x1b[31m", "x" * (MAX_SECRET_BYTES + 1)])
def test_what_is_no_line_of_text_is_no_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        Secret("kafka.password_file", file=private(tmp_path / "secret", text)).read()


@pytest.mark.parametrize("text", ["plain", "ends\r\n", "ends\n", " spaces kept ", "ünïcödé", 'a"b\\c;'])
def test_only_the_line_end_is_taken_off_a_secret(tmp_path: Path, text: str) -> None:
    assert Secret("k", file=private(tmp_path / "secret", text)).read() == text.rstrip("\r\n")


def test_a_quoted_text_ends_where_it_should() -> None:
    assert jaas_quoted('a" required; \\') == '"a\\" required; \\\\"'


def test_a_secret_is_read_again_for_each_client(folder: Path) -> None:
    kafka = read(folder, login())
    private(folder / "password", "another")
    assert kafka.client()["sasl.password"] == "another"


def test_a_section_may_stand_alone_and_an_address_wins_over_it(folder: Path) -> None:
    alone, within = folder / "alone.yaml", folder / "within.yaml"
    alone.write_text(json.dumps(login()))
    within.write_text(json.dumps({"kafka": login()}))
    assert load_kafka(alone, None) == load_kafka(within, None)
    near = load_kafka(alone, "near.example:1")
    assert (near.bootstrap, near.security) == ("near.example:1", "sasl_ssl")
    assert reach(load_kafka(alone, None), "near.example:1") == near


def test_an_address_alone_is_held_to_the_same_rule(folder: Path) -> None:
    with pytest.raises(ConfigError, match="another machine"):
        load_kafka(None, "far.example:1")
    with pytest.raises(ConfigError, match="another machine"):
        reach(load_kafka(None, "localhost:1"), "far.example:1")
    assert load_kafka(None, "localhost:1").bootstrap == "localhost:1"

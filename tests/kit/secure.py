"""A broker with every way in that is promised, certificates made for the occasion, and clients for them.

One broker has them all, so that a run of the tests starts one: the plain listener is for the tests' own set-up.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.security import jaas_quoted
from tests.kit.listening import Listener, ListeningBroker

HOST = "127.0.0.1"
USER, OPERATOR = "backfill", "operator"
SCRAM_PASSWORD = 'canaryScram "quoted" \\ and ; spaced'
OPERATOR_PASSWORD = "canaryOperator"
PLAIN_PASSWORD = "canaryPlain $password ${x}"
_BY_NAME = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def private(path: Path, text: str | bytes, *, mode: int = 0o600) -> Path:
    """A file as a secret's should be."""
    path.touch(mode=0o600)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


@dataclass
class Certificates:
    """An authority with a folder for its files, and what it certifies."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))

    def issue(
        self,
        name: str,
        host: str = HOST,
        *,
        user: str = USER,
        expired: bool = False,
        password: str | None = None,
    ) -> tuple[Path, Path]:
        """Files with a certificate for the host and the user, and with its key in PKCS#8."""
        end = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1) if expired else None
        begin = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        issued = self.authority.issue_cert(host, common_name=user, not_before=begin, not_after=end)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        certificate = self.folder / f"{name}.pem"
        certificate.write_bytes(chain)
        return certificate, private(
            self.folder / f"{name}.key", _pkcs8(issued.private_key_pem.bytes(), password)
        )


def _pkcs8(pem: bytes, password: str | None) -> bytes:
    how: KeySerializationEncryption = (
        NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    )
    key = load_pem_private_key(pem, password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


def _store(certificate: Path, key: Path, ca: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ca.read_text(),
    }


@dataclass(frozen=True)
class SecureBroker:
    """The running broker, its certificates, and the sections `kafka` that lead into it."""

    broker: ListeningBroker
    certificates: Certificates
    folder: Path

    def section(self, listener: str, **over: Any) -> dict[str, Any]:
        """The section `kafka` of a configuration for this listener, as its user would write it."""
        password = PLAIN_PASSWORD if listener == "PLAIN" else SCRAM_PASSWORD
        login = {
            "security": "sasl_ssl",
            "sasl_mechanism": "PLAIN" if listener == "PLAIN" else "SCRAM-SHA-512",
            "username": USER,
            "password_file": str(private(self.folder / f"{listener}.password", password + "\n")),
        }
        declared = {"bootstrap": self.broker.address(listener), "ca_file": str(self.certificates.ca_file)}
        declared |= {"security": "ssl"} if listener == "MTLS" else login
        return {key: value for key, value in {**declared, **over}.items() if value is not None}

    def mutual(
        self, name: str = "client", *, user: str = USER, password: str | None = None, **over: Any
    ) -> dict[str, Any]:
        """The section for mTLS, with a certificate of the client's own."""
        certificate, key = self.certificates.issue(name, "client.example", user=user, password=password)
        mine: dict[str, Any] = {"certificate_file": str(certificate), "key_file": str(key)}
        if password is not None:
            mine["key_password_file"] = str(private(self.folder / f"{name}.key-password", password))
        return self.section("MTLS", **mine, **over)


@contextmanager
def secure_broker(folder: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[SecureBroker]:
    """A broker with listeners SCRAM, PLAIN, MTLS, and those with a certificate that is no good: EXPIRED, OTHER."""
    certificates = Certificates(folder / "certificates")
    good = _store(*certificates.issue("broker"), certificates.ca_file)
    expired = _store(*certificates.issue("expired", expired=True), certificates.ca_file)
    other = _store(*certificates.issue("other", "other.example"), certificates.ca_file)
    scram = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram-sha-256.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        "scram-sha-512.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
    }
    plain = {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{_PLAIN_MODULE} required user_{USER}={jaas_quoted(PLAIN_PASSWORD)};",
    }
    listeners = [
        Listener("SCRAM", "SASL_SSL", good | scram),
        Listener("CLEAR", "SASL_PLAINTEXT", scram),
        Listener("PLAIN", "SASL_SSL", good | plain),
        Listener(
            "MTLS", "SSL", {**good, "ssl.client.auth": "required", "ssl.principal.mapping.rules": _BY_NAME}
        ),
        Listener("EXPIRED", "SASL_SSL", expired | scram),
        Listener("OTHER", "SASL_SSL", other | scram),
    ]
    with ListeningBroker(
        listeners, data=folder / "kafka", log=folder / "kafka.log", settings=settings or {}
    ) as broker:
        for user, password in ((USER, SCRAM_PASSWORD), (OPERATOR, OPERATOR_PASSWORD)):
            _add_scram_user(broker.bootstrap, user, password)
        yield SecureBroker(broker, certificates, folder)


def _add_scram_user(bootstrap: str, user: str, password: str) -> None:
    admin = AdminClient(KafkaSettings(bootstrap).client())
    wanted = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for mechanism in wanted:  # one mechanism of a user a request
        for answer in admin.alter_user_scram_credentials([mechanism]).values():
            answer.result(30)

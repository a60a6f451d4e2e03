"""The configuration's section `kafka`: the broker's address, and how clients log in.

Login and TLS have keys of their own; other settings of a client pass through by role, see
`schemas.settings.client_settings`. TLS always checks the broker's certificate and its host name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from schemas.errors import Code
from schemas.faults import Faults
from schemas.settings.client_settings import ClientSettings, PassedSettings, Role, refusal
from schemas.settings.documents import read_mapping
from schemas.settings.job_keys import MAX_REPLICATION_FACTOR
from schemas.settings.security import (
    CaFile,
    CertificateFile,
    Mechanism,
    OAuthConfig,
    PasswordFile,
    PasswordVariable,
    Printable,
    Protocol,
    Section,
    Security,
    Variable,
    is_loopback,
)

_HOST_AND_PORT = r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}"
_LOGIN_KEYS = ("sasl_mechanism", "username", "password_file", "password_env", "oauth")
_TLS_KEYS = ("ca_file", "certificate_file", "key_file", "key_password_file", "key_password_env")


class KafkaConfig(Section):
    """Address and security of Kafka, as written; `check_kafka` finds contradictions."""

    bootstrap: str | None = Field(
        None,
        pattern=rf"^({_HOST_AND_PORT})(,\s*({_HOST_AND_PORT}))*$",
        description="`host:port`, comma-separated. None: the service starts an embedded broker.",
    )
    security: Protocol = Field(
        "plaintext",
        description="`plaintext`, `ssl`, `sasl_ssl` or `sasl_plaintext`, see [security](security.md).",
    )
    sasl_mechanism: Mechanism | None = Field(
        None,
        description="`SCRAM-SHA-512` (which `sasl_*` takes by default), `SCRAM-SHA-256`, `PLAIN`, or `OAUTHBEARER`, "
        "which goes with `oauth` alone.",
    )
    username: Printable | None = Field(None, max_length=255, description="Name to log in with.")
    password_file: PasswordFile = None
    password_env: PasswordVariable = None
    oauth: OAuthConfig | None = Field(
        None, description="A token server to log in by, in place of name and password, see below."
    )
    ca_file: CaFile = None
    certificate_file: CertificateFile = None
    key_file: Printable | None = Field(None, description="PKCS#8 PEM of the certificate's key, mode `0600`.")
    key_password_file: Printable | None = Field(
        None, repr=False, description="File with the key's password, mode `0600`."
    )
    key_password_env: Variable | None = Field(
        None, repr=False, description="Environment variable with the key's password, instead."
    )
    replication_factor: int | None = Field(
        None,
        ge=1,
        le=MAX_REPLICATION_FACTOR,
        description="Copies of each topic that is created: outputs, their dead letters, the control topic. None: the "
        "broker's default, which is 1 unless it was set.",
    )
    allow_plaintext: bool = Field(
        False, description="Allow unencrypted connections to another machine than this one."
    )
    consumer: ClientSettings = Field(
        {},
        description="Settings of the clients that read, by librdkafka's names, as in `{client.rack: a}`, see "
        "[settings of Kafka's clients](security.md#settings-of-kafkas-clients).",
    )
    producer: ClientSettings = Field({}, description="The same of those that write, as in `{linger.ms: 20}`.")
    admin: ClientSettings = Field({}, description="The same of those that look at topics and create them.")

    def passed_settings(self) -> PassedSettings:
        """The settings that pass through."""
        roles: tuple[tuple[Role, dict[str, str]], ...] = (
            ("consumer", self.consumer),
            ("producer", self.producer),
            ("admin", self.admin),
        )
        return tuple((role, tuple(sorted(settings.items()))) for role, settings in roles if settings)

    def declared_security(self) -> Security:
        """The security settings, secrets as references."""
        sasl = self.security.startswith("sasl")
        by_default: Mechanism = "SCRAM-SHA-512" if self.oauth is None else "OAUTHBEARER"
        return Security(
            protocol=self.security,
            mechanism=(self.sasl_mechanism or by_default) if sasl else None,
            username=self.username,
            password=self.secret("kafka.password"),
            oauth=self.oauth.declared("kafka.oauth") if self.oauth else None,
            ca_file=self.file("ca_file"),
            certificate_file=self.file("certificate_file"),
            key_file=self.file("key_file"),
            key_password=self.secret("kafka.key_password"),
        )


def check_kafka(declared: KafkaConfig, *, folder: Path, faults: Faults) -> KafkaConfig:
    """The section with its files below `folder` where they are relative; contradictions go to `faults`.

    Files and variables are looked at too: what can't be read here can't be read when a client is made.
    """
    resolved = declared.below(folder)
    before = _contradictions(resolved)
    for fault in before:
        faults.add(fault)
    if not before:
        _try(resolved.declared_security(), faults)
    return resolved


def _contradictions(kafka: KafkaConfig) -> list[str]:
    given = {key for key, value in kafka.model_dump().items() if value is not None}
    security, found = kafka.security, []
    if not security.startswith("sasl"):
        found += [f"kafka.{key} with security: {security}" for key in _LOGIN_KEYS if key in given]
    elif kafka.oauth is not None:
        beside = ("username", "password_file", "password_env")
        found += [f"both kafka.oauth and kafka.{key}" for key in beside if key in given]
        if kafka.sasl_mechanism not in (None, "OAUTHBEARER"):
            found.append(f"kafka.oauth with sasl_mechanism: {kafka.sasl_mechanism}")
        found += kafka.oauth.contradictions("kafka.oauth", may_be_plain=kafka.allow_plaintext)
    elif kafka.sasl_mechanism == "OAUTHBEARER":
        found.append("no 'kafka.oauth', which sasl_mechanism: OAUTHBEARER takes")
    else:
        if "username" not in given:
            found.append("no 'kafka.username'")
        found += _one_of("password", given, needed=True)
    if not security.endswith("ssl"):
        found += [f"kafka.{key} with security: {security}" for key in _TLS_KEYS if key in given]
    else:
        pair = {"certificate_file", "key_file"} & given
        if len(pair) == 1:
            found.append(
                f"kafka.{pair.pop()} without its other half: certificate_file and key_file go together"
            )
        found += _one_of("key_password", given, needed=False)
        if {"key_password_file", "key_password_env"} & given and "key_file" not in given:
            found.append("a kafka.key_password without kafka.key_file")
    if security != "plaintext" and kafka.bootstrap is None:
        found.append("no 'kafka.bootstrap': the embedded broker has no security")
    found += [
        f"kafka.{role}.{name}, which {reason}"
        for role, settings in kafka.passed_settings()
        for name, _ in settings
        if (reason := refusal(role, name))
    ]
    if not security.endswith("ssl") and not kafka.allow_plaintext and not _is_loopback(kafka.bootstrap):
        found.append(
            f"kafka.bootstrap is another machine with security: {security}, which sends everything in the clear: "
            "use sasl_ssl or ssl, or say allow_plaintext: true"
        )
    return found


def _one_of(name: str, given: set[str], *, needed: bool) -> list[str]:
    file, variable = f"{name}_file", f"{name}_env"
    if {file, variable} <= given:
        return [f"both kafka.{file} and kafka.{variable}"]
    if needed and not {file, variable} & given:
        return [f"neither 'kafka.{file}' nor 'kafka.{variable}'"]
    return []


def _is_loopback(bootstrap: str | None) -> bool:
    """True if every address is this machine; the names that a broker advertises are not checked."""
    hosts = [
        address.strip().rpartition(":")[0].strip("[]") for address in (bootstrap or "localhost:1").split(",")
    ]
    return all(map(is_loopback, hosts))


def _try(security: Security, faults: Faults) -> None:
    """Read what a client would read, once, to find everything that is wrong with it."""
    if security.oauth is not None:
        security.oauth.find_unusable(faults)
    if security.password is not None:
        faults.find_by(security.password.read)
    key_opens = security.key_password is None or faults.find_by(security.key_password.read)
    if security.encrypted and key_opens:
        faults.find_by(security.tls_context)


def load_kafka(path: Path | None, bootstrap: str | None) -> KafkaConfig:
    """A section `kafka` that stands alone in a file, or under this key; `bootstrap` wins over the file's.

    Raises: ConfigError, as `config.load`.
    """
    declared: object = {}
    if path is not None:
        file = read_mapping(path, Code.CONFIG_INVALID, expected="the section kafka of a configuration")
        declared = file.get("kafka", file)
    return _checked_alone(declared, path, bootstrap)


def reach(kafka: KafkaConfig, bootstrap: str | None) -> KafkaConfig:
    """A checked section with another address, checked again. Raises: ConfigError(CONFIG_INVALID)."""
    if bootstrap is None or bootstrap == kafka.bootstrap:
        return kafka
    return _checked_alone(kafka.model_dump(), None, bootstrap)


def _checked_alone(declared: object, path: Path | None, bootstrap: str | None) -> KafkaConfig:
    faults = Faults(Code.CONFIG_INVALID)
    keys: Any = {} if declared is None else declared
    if bootstrap is not None and isinstance(keys, dict):
        keys = {**keys, "bootstrap": bootstrap}
    try:
        raw = KafkaConfig.model_validate(keys)
    except ValidationError as error:
        faults.add_invalid(error, KafkaConfig, "kafka.")
    else:
        kafka = check_kafka(raw, folder=path.resolve().parent if path else Path(), faults=faults)
        if not faults:
            return kafka
    where = str(path) if path else "options"
    raise faults.error(where=where, next_step="correct the file or the option; see --kafka")

"""Security of a client: protocol, credentials, and the certificates that it trusts.

A secret is a *reference* (a file, or a variable of the environment) up to the moment a client is made of it. So
what is defined here may be logged, pickled into a Spark task or kept in a file, and gives nothing away; and a
worker that has the reference reads the secret itself.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from schemas.errors import Code, ConfigError
from schemas.faults import Faults

if TYPE_CHECKING:
    from schemas.job import JobDefinition

Protocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]

VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
PRINTABLE_PATTERN = r"^[^\x00-\x1f\x7f]+$"

Printable = Annotated[str, Field(pattern=PRINTABLE_PATTERN)]
Variable = Annotated[str, Field(pattern=VARIABLE_PATTERN)]
# A user may have written a secret where the name of its file or variable belongs, or into a URL. So such keys have
# `repr=False`: their values are never quoted, see `schemas.faults`.
PasswordFile = Annotated[
    Printable | None, Field(repr=False, description="File with its password, mode `0600`.")
]
PasswordVariable = Annotated[
    Variable | None,
    Field(repr=False, description="Environment variable with its password, instead of the file."),
]
CaFile = Annotated[
    Printable | None, Field(description="PEM of the authorities to believe. None: the system's.")
]
CertificateFile = Annotated[
    Printable | None, Field(description="PEM of the client's certificate and its chain (mTLS).")
]
OpenKeyFile = Annotated[
    Printable | None,
    Field(description="PKCS#8 PEM of the certificate's key, without a password, mode `0600`."),
]

MAX_SECRET_BYTES = 1 << 16
_OTHERS_MAY = 0o077
_NEEDED_KEY = "a key in PKCS#8 PEM, the only form that both of Kafka's clients read"


@dataclass(frozen=True, slots=True)
class Secret:
    """The location of a secret. `key` is the configuration's name for it; either `file` or `variable` is set."""

    key: str
    file: Path | None = None
    variable: str | None = None

    def read(self) -> str:
        """The secret itself: one line of text. Pass it on to a client, and to nothing else.

        A line end at the end of the file is not part of it.

        Raises: ConfigError(CONFIG_INVALID) when it is not there or is no line of text, ConfigError(SECRET_FILE_MODE)
        when others may read the file.
        """
        if self.file is not None:
            text = read_private(self.key, self.file).removesuffix("\n").removesuffix("\r")
        else:
            text = os.environ.get(self.variable or "", "")
            if not text:
                raise _refusal(self.key, "an environment variable that is empty or not set")
        if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
            raise _refusal(self.key, "no single line of text")
        return text

    def read_bytes(self) -> bytes:
        """The bytes of the file but for one line end, which may be any. Raises: ConfigError, as `read`."""
        assert self.file is not None
        data = read_private_bytes(self.key, self.file)
        data = data.removesuffix(b"\r\n" if data.endswith(b"\r\n") else b"\n")
        if not data:
            raise _refusal(self.key, "an empty file")
        return data


def is_loopback(host: str) -> bool:
    """True if a host, without brackets, is this machine itself. Names other than localhost are not trusted."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class OAuth:
    """A client of a token server, which gives tokens for its own credentials; the secret is a reference."""

    token_url: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    ca_file: Path | None = None
    section: str = "kafka.oauth"
    """The section of the configuration, for errors."""

    def tls_context(self) -> ssl.SSLContext:
        """The certificates by which the token server is trusted. Raises: ConfigError for a file without any."""
        return _trust(f"{self.section}.ca_file", self.ca_file)

    def find_unusable(self, faults: Faults) -> None:
        """Read secret and certificates as a client would, once, to find everything that is wrong with them."""
        faults.find_by(self.client_secret.read)
        faults.find_by(self.tls_context)


class Section(BaseModel):
    """A section of the configuration that names files: keys for them end with `_file`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def below(self, folder: Path) -> Self:
        """The section with its files, and those of sections in it, below `folder` where they are relative."""
        absolute: dict[str, Any] = {}
        for key in type(self).model_fields:
            value = getattr(self, key)
            if isinstance(value, Section):
                absolute[key] = value.below(folder)
            elif key.endswith("_file") and value is not None:
                absolute[key] = str(folder.resolve() / value)
        return self.model_copy(update=absolute)

    def secret(self, key: str) -> Secret | None:
        """The secret of the pair `<key>_file` and `<key>_env`, as in `kafka.password`; None where neither is given."""
        name = key.rpartition(".")[2]
        if (file := self.file(f"{name}_file")) is not None:
            return Secret(f"{key}_file", file=file)
        variable = getattr(self, f"{name}_env")
        return None if variable is None else Secret(f"{key}_env", variable=variable)

    def file(self, name: str) -> Path | None:
        """The file of a key, None where it is not given."""
        given: str | None = getattr(self, name)
        return None if given is None else Path(given)


class OAuthConfig(Section):
    """The section `oauth` of `kafka` and `registry`."""

    token_url: str = Field(
        repr=False,
        pattern=r"^https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~/%-]*)?$",
        description="The token endpoint of the OIDC provider; `http` to another machine takes the section's "
        "`allow_plaintext`.",
    )
    client_id: Printable = Field(min_length=1, max_length=255, description="Name of this client there.")
    client_secret_file: Printable | None = Field(
        None, repr=False, description="File with its secret, mode `0600`."
    )
    client_secret_env: Variable | None = Field(
        None, repr=False, description="Environment variable with the secret, instead of the file."
    )
    scope: Printable | None = Field(None, max_length=1_024, description="What to ask for, space-separated.")
    ca_file: Printable | None = Field(
        None, description="PEM of the authorities to believe there. None: the system's."
    )

    def declared(self, section: str) -> OAuth:
        """The settings for a client; exactly one of file and variable must be given."""
        secret = self.secret(f"{section}.client_secret")
        assert secret is not None
        return OAuth(self.token_url, self.client_id, secret, self.scope, self.file("ca_file"), section)

    def contradictions(self, section: str, *, may_be_plain: bool) -> Iterator[str]:
        """Texts of what can't work or is not safe as written."""
        secrets = [self.client_secret_file, self.client_secret_env]
        if secrets.count(None) != 1:
            which = "neither" if None in secrets else "both"
            yield f"{which} {section}.client_secret_file and {section}.client_secret_env"
        if self.token_url.startswith("https:"):
            return
        if self.ca_file is not None:
            yield f"{section}.ca_file with an http URL"
        if not may_be_plain and not is_loopback(urlsplit(self.token_url).hostname or ""):
            yield (
                f"{section}.token_url is another machine with http, which sends the secret in the clear: use https, or "
                "say allow_plaintext: true"
            )


@dataclass(frozen=True, slots=True)
class Security:
    """Every setting of a secured connection, checked, without a secret in it. The default is none: plaintext."""

    protocol: Protocol = "plaintext"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: Secret | None = None
    oauth: OAuth | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None
    section: str = "kafka"
    """The section of the configuration, for errors."""

    @property
    def encrypted(self) -> bool:
        """True if the connection is TLS."""
        return self.protocol.endswith("ssl")

    @property
    def sasl(self) -> bool:
        """True if the client logs in by SASL."""
        return self.protocol.startswith("sasl")

    def private_key(self) -> str:
        """The client's key as PEM text. Raises: ConfigError, as `Secret.read`."""
        assert self.key_file is not None
        return read_private(f"{self.section}.key_file", self.key_file)

    def tls_context(self) -> ssl.SSLContext:
        """The trust and the certificate of this client, for Python's own TLS.

        Raises: ConfigError when certificates and key are unreadable or don't belong together; a key of another form
        than PKCS#8 is refused too.
        """
        context = _trust(f"{self.section}.ca_file", self.ca_file)
        if self.certificate_file is not None and self.key_file is not None:
            pem = self.private_key()
            if (
                "-----BEGIN PRIVATE KEY-----" not in pem
                and "-----BEGIN ENCRYPTED PRIVATE KEY-----" not in pem
            ):
                raise _refusal(
                    f"{self.section}.key_file",
                    f"no {_NEEDED_KEY.removeprefix('a ')}: openssl pkcs8 -topk8 makes one",
                )
            password = self.key_password.read() if self.key_password else ""
            try:
                # Always with a password: without one OpenSSL would ask for it on the terminal.
                context.load_cert_chain(self.certificate_file, self.key_file, lambda: password)
            except (ssl.SSLError, OSError) as error:
                reason = getattr(error, "reason", None) or type(error).__name__
                found = f"a certificate, key and key password that don't go together ({reason})"
                raise _refusal(f"{self.section}.certificate_file", found) from None
        return context


def _trust(key: str, ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise _refusal(key, f"no certificates in PEM ({reason})") from None


def read_private(key: str, path: Path) -> str:
    """The text of a file that only its owner may read. Raises: as `read_private_bytes`, also when it is no text."""
    try:
        return read_private_bytes(key, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal(key, f"a file that can't be read ({type(error).__name__})") from None


def read_private_bytes(key: str, path: Path) -> bytes:
    """The bytes of a file that only its owner may read.

    Raises: ConfigError(SECRET_FILE_MODE) when others have any right to it; ConfigError(CONFIG_INVALID) when it
    can't be read or is too large. The message names neither the path nor anything of the content, since a user may have
    written the secret where its file belongs.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _refusal(key, "no regular file")
            if status.st_mode & _OTHERS_MAY:
                mode = f"{stat.S_IMODE(status.st_mode):04o}"
                found = f"a file with mode {mode}, open to others"
                raise ConfigError(Code.SECRET_FILE_MODE, where=key, found=found)
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise _refusal(key, f"a file of more than {MAX_SECRET_BYTES} bytes")
        return data
    except (OSError, ValueError) as error:
        raise _refusal(key, f"a file that can't be read ({type(error).__name__})") from None


def _refusal(key: str, found: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_INVALID,
        where=key,
        found=found,
        expected="certificates and secrets that this process can read and use",
        next_step="correct the file or variable that this key names",
    )


def hash_key_of(job: JobDefinition) -> bytes:
    """The key by which a job hashes columns, of its file; empty if it hashes none. Keep it nowhere.

    Raises: ConfigError, as `Secret.read_bytes`.
    """
    file = job.hash_key_file
    return b"" if file is None else Secret(f"hash_key_file of job {job.name}", Path(file)).read_bytes()

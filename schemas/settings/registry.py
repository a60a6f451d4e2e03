"""The configuration's section `registry`: the schema registry's address, and how clients log in.

As with `kafka`, the keys are ours and there are no others, and secrets are named, never written here. TLS always checks
the registry's certificate and its host name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from schemas.errors import Code
from schemas.faults import Faults
from schemas.settings.documents import read_mapping
from schemas.settings.security import (
    CaFile,
    CertificateFile,
    OAuthConfig,
    OpenKeyFile,
    PasswordFile,
    PasswordVariable,
    Printable,
    Secret,
    Section,
    Security,
    Variable,
    is_loopback,
)

_URL = r"https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~/-]*)?"
"""A URL without a name and password in it, which would show wherever the URL does."""
_TLS_KEYS = ("ca_file", "certificate_file", "key_file")


class RegistryConfig(Section):
    """Address and security of the schema registry, as written; `check_registry` finds contradictions."""

    url: str | None = Field(
        None,
        repr=False,
        pattern=rf"^{_URL}(,\s*{_URL})*$",
        description="`http(s)://host:port`, with a path where the registry has one; several are tried in turn, "
        "comma-separated. Needed by `encoding: avro-registry`, see [formats](formats.md#avro-with-a-schema-registry).",
    )
    username: str | None = Field(
        None, max_length=255, pattern=r"^[^\x00-\x1f\x7f:]+$", description="Name to log in with (HTTP basic)."
    )
    password_file: PasswordFile = None
    password_env: PasswordVariable = None
    token_file: Printable | None = Field(
        None, repr=False, description="File with a bearer token, mode `0600`; instead of name and password."
    )
    token_env: Variable | None = Field(
        None, repr=False, description="Environment variable with the token, instead of the file."
    )
    oauth: OAuthConfig | None = Field(
        None, description="A token server that gives bearer tokens, in place of one that is fixed, see below."
    )
    ca_file: CaFile = None
    certificate_file: CertificateFile = None
    key_file: OpenKeyFile = None
    allow_plaintext: bool = Field(False, description="Allow `http` to another machine than this one.")

    @property
    def password(self) -> Secret | None:
        return self.secret("registry.password")

    @property
    def token(self) -> Secret | None:
        return self.secret("registry.token")

    @property
    def tls(self) -> Security:
        """Trust and certificate."""
        ca, certificate, key = map(self.file, _TLS_KEYS)
        return Security(
            section="registry", protocol="ssl", ca_file=ca, certificate_file=certificate, key_file=key
        )

    @property
    def urls(self) -> list[str]:
        return [url.strip() for url in self.url.split(",")] if self.url else []


def check_registry(declared: RegistryConfig, *, folder: Path, faults: Faults) -> RegistryConfig:
    """The section with its files below `folder` where they are relative; contradictions go to `faults`.

    Files and variables are looked at too: what can't be read here can't be read when the client is made.
    """
    resolved = declared.below(folder)
    found = list(_contradictions(resolved))
    for fault in found:
        faults.add(fault)
    if not found and resolved.url is not None:
        _try(resolved, faults)
    return resolved


def _contradictions(registry: RegistryConfig) -> Iterator[str]:
    given = {key for key, value in registry.model_dump().items() if value not in (None, False)}
    if registry.url is None:
        yield from (f"registry.{key} without registry.url" for key in sorted(given - {"allow_plaintext"}))
        return
    for name in ("password", "token"):
        if {f"{name}_file", f"{name}_env"} <= given:
            yield f"both registry.{name}_file and registry.{name}_env"
    if registry.oauth is not None:
        others = {"token", "username", "password"} & {key.rpartition("_")[0] or key for key in given}
        yield from (f"both registry.oauth and registry.{key}" for key in sorted(others))
        yield from registry.oauth.contradictions("registry.oauth", may_be_plain=registry.allow_plaintext)
    if registry.token is not None and (registry.username or registry.password):
        yield "both a registry.token and a registry.username or password"
    elif (registry.username is None) != (registry.password is None):
        yield "one of registry.username and registry.password_file (or password_env) without the other"
    if len({"certificate_file", "key_file"} & given) == 1:
        yield "one of registry.certificate_file and registry.key_file without the other"
    plain = [url for url in registry.urls if url.startswith("http:")]
    if plain:
        yield from (f"registry.{key} with an http URL" for key in _TLS_KEYS if key in given)
    far = [url for url in plain if not is_loopback(urlsplit(url).hostname or "")]
    if far and not registry.allow_plaintext:
        yield (
            "registry.url is another machine with http, which sends everything in the clear: use https, or say "
            "allow_plaintext: true"
        )


def _try(registry: RegistryConfig, faults: Faults) -> None:
    """Read what the client would read, once, to find everything that is wrong with it."""
    if registry.oauth is not None:
        registry.oauth.declared("registry.oauth").find_unusable(faults)
    for secret in (registry.password, registry.token):
        if secret is not None:
            faults.find_by(secret.read)
    if any(url.startswith("https:") for url in registry.urls):
        faults.find_by(registry.tls.tls_context)


def load_registry(given: str) -> RegistryConfig:
    """A registry by its URL, or by a file with a section `registry` that stands alone there or under this key.

    Raises: ConfigError, as `config.load`.
    """
    declared: Any = {"url": given}
    folder, faults = Path(), Faults(Code.CONFIG_INVALID)
    if not given.startswith(("http:", "https:")):
        expected = "the section registry of a configuration"
        file = read_mapping(Path(given), Code.CONFIG_INVALID, expected=expected)
        declared, folder = file.get("registry", file), Path(given).resolve().parent
    try:
        raw = RegistryConfig.model_validate({} if declared is None else declared)
    except ValidationError as error:
        faults.add_invalid(error, RegistryConfig, "registry.")
    else:
        registry = check_registry(raw, folder=folder, faults=faults)
        if registry.url is None:
            faults.add("no 'registry.url'")
        if not faults:
            return registry
    raise faults.error(where="--registry", next_step="correct the address or the file; see --registry")

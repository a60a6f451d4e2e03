"""The configuration's section `http`: the address of status page, API and metrics, and the token for changes.

Loopback needs no token to look, and always one to change something. Any other address needs one for everything but
the health checks, so the service refuses to listen there without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from schemas.errors import Code, ConfigError
from schemas.faults import Faults
from schemas.settings.security import OpenKeyFile, Printable, Secret, Section, Security, Variable, is_loopback

_HOST = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
LEAST_TOKEN_CHARACTERS = 16


class HttpConfig(Section):
    """Address and certificate of the page, and its token."""

    listen: str | None = Field(
        None,
        pattern=rf"^({_HOST}):[0-9]{{1,5}}$",
        description="`host:port` to listen on, as in `127.0.0.1:8080`, see [control](control.md). None: no page.",
    )
    token_file: Printable | None = Field(
        None,
        repr=False,
        description="File with the token for changes, mode `0600`, 16 characters at least. Without a token, only this "
        "machine is listened to.",
    )
    token_env: Variable | None = Field(
        None, repr=False, description="Environment variable with the token, instead of the file."
    )
    certificate_file: Printable | None = Field(
        None,
        description="PEM of the certificate that it shows, with its chain: then it is `https`. None: `http`.",
    )
    key_file: OpenKeyFile = None
    hosts: list[Annotated[str, Field(pattern=rf"^(\*|(\*\.)?({_HOST}))$")]] = Field(
        [], description="Names that this address is asked for by, besides its own; others are refused."
    )

    @property
    def shown_host(self) -> str:
        """The host to bind, as a URL has it."""
        assert self.listen is not None
        return self.listen.rpartition(":")[0]

    @property
    def host(self) -> str:
        """The host to bind, without brackets."""
        return self.shown_host.strip("[]")

    @property
    def names(self) -> list[str]:
        """The hosts of requests that are served. Those of this machine are, by which `backfill status` asks."""
        return [self.shown_host, "localhost", "127.0.0.1", "[::1]", *self.hosts]

    @property
    def port(self) -> int:
        """The port to bind; 0 for any."""
        assert self.listen is not None
        return int(self.listen.rpartition(":")[2])

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def scheme(self) -> str:
        """`https` with a certificate, else `http`."""
        return "http" if self.certificate_file is None else "https"

    @property
    def token(self) -> Secret | None:
        return self.secret("http.token")


def check_http(declared: HttpConfig, *, folder: Path, faults: Faults) -> HttpConfig:
    """Check what no single key shows; relative files are below `folder`."""
    if declared.listen is None:
        return declared
    if declared.port > 65_535:
        faults.add("http.listen names no port (0 to 65535)")
    if declared.token_file is not None and declared.token_env is not None:
        faults.add("http has both token_file and token_env")
    checked = declared.below(folder)
    _find_no_certificate(checked, faults)
    if checked.token is None and not checked.is_local:
        faults.add("http.listen is not this machine alone, so http needs token_file or token_env")
    return checked


def _find_no_certificate(http: HttpConfig, faults: Faults) -> None:
    """Load the certificate and its key together, as a server would, to find errors early."""
    if (http.certificate_file is None) != (http.key_file is None):
        faults.add("http.certificate_file and http.key_file go together")
    elif http.certificate_file is not None and http.key_file is not None:
        pair = Path(http.certificate_file), Path(http.key_file)
        faults.find_by(
            Security("ssl", certificate_file=pair[0], key_file=pair[1], section="http").tls_context
        )


def read_token(config: HttpConfig) -> str | None:
    """The token, None where none is declared. Only the service needs it, so only it reads it.

    Raises: ConfigError as `Secret.read`, and for a token that could be guessed.
    """
    if config.listen is None or config.token is None:
        return None
    token = config.token.read()
    if len(token) < LEAST_TOKEN_CHARACTERS:
        raise ConfigError(
            Code.CONFIG_INVALID,
            where=config.token.key,
            found=f"a token of fewer than {LEAST_TOKEN_CHARACTERS} characters",
            expected="one that can't be guessed",
            next_step="make one with: openssl rand -hex 16",
        )
    return token

"""The HTTP API of a service: its socket, and a client for its condition and the pace of reading from a database.

The pace is no control request: no output depends on it, so it need not wait for a barrier, and takes effect with the
next chunk.
"""

from __future__ import annotations

import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from schemas.error_table import TABLE
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.settings.http import HttpConfig, read_token
from streaming.core.forecast import Extent, Forecast

_ANSWER_S = 2.0
_HELD_S = 10.0
"""Shorter holds are ordinary transactions."""
_NOT_READY = 503
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""The address for a service that listens on all of them."""


@dataclass(frozen=True)
class Answer:
    """`reason` is the error's line, None without an error; `ready` is None if the service gave no answer."""

    condition: str
    ready: bool | None = None
    reason: str | None = None
    batch_age_s: float | None = None
    reading: Mapping[str, Any] | None = None
    """`ReadingStatus` of a table that is read from its database."""
    troubles: tuple[str, ...] = ()
    """Troubles that do not stop batches yet, a line each."""
    undeclared: tuple[str, ...] = ()
    """Fields of the newest rows that are no columns."""
    step: str | None = None
    """The step of the start under way."""
    forecasts: Mapping[str, Forecast] | None = None
    """Of each job; None where only the condition was given."""


def read_condition(config: HttpConfig) -> Answer | None:
    """The service's answer; its condition alone without its token here. None if it can't be reached."""
    if config.listen is None or config.port == 0:
        return None
    try:
        token = read_token(config)
    except ConfigError:
        return _readiness(config)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with opened(config, "/api/v1/status", headers) as answer:
            return _parsed(json.load(answer))
    except (OSError, ValueError, KeyError):
        return None


def _readiness(config: HttpConfig) -> Answer | None:
    try:
        with opened(config, "/readyz") as answer:
            return Answer(answer.read(100).decode().strip(), ready=True)
    except urllib.error.HTTPError as answer:
        return Answer(answer.read(100).decode().strip(), ready=False) if answer.code == _NOT_READY else None
    except (OSError, ValueError):
        return None


def opened(
    config: HttpConfig,
    path: str,
    headers: Mapping[str, str] = MappingProxyType({}),
    body: bytes | None = None,
) -> Any:
    """Open a request, as a context; with a body it is a POST. Raises: OSError, `HTTPError` among them."""
    host = _HERE.get(config.host, config.host)
    address = f"{config.scheme}://{f'[{host}]' if ':' in host else host}:{config.port}{path}"
    # A proxy of the environment is for other addresses than this one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *_trusting(config))
    return opener.open(urllib.request.Request(address, body, dict(headers)), timeout=_ANSWER_S)  # noqa: S310 (http or https)


def _trusting(config: HttpConfig) -> Sequence[urllib.request.BaseHandler]:
    """Trust exactly the configured certificate, for any name: the address is the configuration's own."""
    if config.certificate_file is None:
        return ()
    context = ssl.create_default_context(cafile=config.certificate_file)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return (urllib.request.HTTPSHandler(context=context),)


def _parsed(status: dict[str, Any]) -> Answer:
    reason = status["reason"]
    line = None
    if reason is not None:
        place = f" at {reason['where']}" if reason["where"] else ""
        line = f"{reason['code']}{place}: found {reason['found']}; next: {reason['next_step']}"
    return Answer(
        condition=status["condition"],
        ready=status["ready"],
        reason=line,
        batch_age_s=status["batch_age_s"],
        reading=status.get("reading"),
        troubles=tuple(_troubles(status)),
        undeclared=tuple(status.get("fields", {}).get("undeclared", ())),
        step=status.get("step"),
        forecasts={job["name"]: _forecast(job) for job in status["jobs"]} if status.get("barrier") else None,
    )


def _forecast(job: dict[str, Any]) -> Forecast:
    return Forecast(
        extent=Extent(job["rows_read"], job["rows_left"]),
        share=job["share"],
        grew=job["grew"],
        rows_per_s=job["rows_per_s"],
        seconds_left=job["seconds_left"],
    )


def _troubles(status: dict[str, Any]) -> Iterator[str]:
    for each in status.get("maintenance", ()):
        if each["failures"]:
            yield (
                f"{each['work']} has failed {each['failures']} times in a row ({each['error']}), "
                f"again in {each['again_in_s']:.0f} s; next: {each['next_step']}"
            )
    for each in status.get("partitions", ()):
        held_s = each.get("held_s")
        if held_s is not None and held_s > _HELD_S:
            since = datetime.now().astimezone() - timedelta(seconds=held_s)
            yield (
                f"an open transaction holds back partition {each['partition']} at offset {each['held_offset']} since "
                f"{since:%H:%M:%S}: {each['unstable']:,} records there are late by {held_s:.0f} s; next: "
                f"{TABLE[Code.BARRIER_STALLED].next_step}"
            )
    fields = status.get("fields", {"lost": (), "never": ()})
    if fields["lost"] or fields["never"]:
        names = ", ".join((*fields["lost"], *fields["never"]))
        yield (
            f"none of the newest rows has column {names}; next: see whether the upstream's table has it, or correct "
            "its name or `field`"
        )
    disk = status.get("disk")
    if disk is not None and disk["is_low"]:
        yield (
            f"{disk['free_bytes'] / 2**30:.1f} GiB are free on the state's disk, less than a compaction may write; "
            "next: give it more room"
        )
    if disk is not None and disk.get("rows_low"):
        yield (
            f"{disk['rows_free_bytes'] / 2**20:.0f} MiB are free for rows by key, beside the "
            f"{disk['rows_bytes'] / 2**20:.0f} MiB that they take; next: make room, or name a folder on a larger disk "
            "as rows_folder"
        )


Action = Literal["pause", "resume", "throttle"]
_PATH = "/api/v1/initial"


def set_pace(config: HttpConfig, action: Action, rate_limit: int | None = None) -> dict[str, Any]:
    """Pause, resume or throttle; `rate_limit` None removes the limit. Returns the service's status of the reading.

    Raises: ConfigError(USAGE) for a configuration without an address or a token; as `read_token`;
    EnvironmentProblem(NOT_SERVED); ConfigError(INITIAL_NOT_READ) and others, as the service refuses.
    """
    token = _token(config)
    body = {"rate_limit": rate_limit} if action == "throttle" else {}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with opened(config, f"{_PATH}/{action}", headers, json.dumps(body).encode()) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as refused:
        raise _refusal(refused) from None
    except (OSError, ValueError) as error:
        found = f"no answer at http.listen ({type(error).__name__})"
        raise EnvironmentProblem(Code.NOT_SERVED, where="http.listen", found=found) from None


def _token(config: HttpConfig) -> str:
    token = None if config.listen is None or config.port == 0 else read_token(config)
    if token is None:
        missing = "http.token_file" if config.listen is not None and config.port else "http.listen"
        raise ConfigError(
            Code.USAGE,
            where=missing,
            found="a service that can't be steered over HTTP",
            expected="http.listen with a port, and http.token_file",
            next_step="set both, or change initial.postgres.rate_limit and start the service again",
        )
    return token


def _refusal(refused: urllib.error.HTTPError) -> BackfillError:
    try:
        answer = json.loads(refused.read(10_000))
        return ConfigError(
            Code(answer["code"]),
            found=answer["found"],
            expected=answer["expected"],
            next_step=answer["next_step"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        found = f"status {refused.code}"
        return EnvironmentProblem(Code.NOT_SERVED, where="http.listen", found=found)


def listener_of(config: HttpConfig) -> socket.socket:
    """Listen at the configured address. Raises: EnvironmentProblem(ADDRESS_UNUSABLE)."""
    try:
        family, *_, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:  # the latter for a port beyond 65535
        reason = getattr(error, "strerror", None) or str(error)
        raise EnvironmentProblem(
            Code.ADDRESS_UNUSABLE, where="http.listen", found=f"{config.listen}: {reason}"
        ) from None
    return listener

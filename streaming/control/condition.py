"""The condition of a running service, from its HTTP API."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from schemas.error_table import TABLE
from schemas.errors import Code, ConfigError
from schemas.settings.http import HttpConfig, read_token

_ANSWER_S = 2.0
_HELD_S = 10.0
"""What lasts less is a transaction as others are."""
_NOT_READY = 503
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""A service that listens on all addresses is asked at this one."""


@dataclass(frozen=True)
class Answer:
    """`reason` is the error's line, None where nothing is wrong; `ready` None if the service could not be asked."""

    condition: str
    ready: bool | None = None
    reason: str | None = None
    batch_age_s: float | None = None
    reading: Mapping[str, Any] | None = None
    """As `ReadingStatus`: of a table that is read from its database."""
    troubles: tuple[str, ...] = ()
    """What goes wrong beside the batches, a line each: they go on, for now."""
    undeclared: tuple[str, ...] = ()
    """Names of fields in the newest rows that are no columns."""


def ask(config: HttpConfig) -> Answer | None:
    """The service's answer; only its condition where its token is not known here. None if it can't be asked."""
    if config.listen is None or config.port == 0:
        return None
    try:
        token = read_token(config)
    except ConfigError:
        return _asked_shortly(config)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with opened(config, "/api/v1/status", headers) as answer:
            return _parsed(json.load(answer))
    except (OSError, ValueError, KeyError):
        return None


def _asked_shortly(config: HttpConfig) -> Answer | None:
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
    """The service's answer, as a context; with a body it is a POST. Raises: OSError, `HTTPError` among them."""
    host = _HERE.get(config.host, config.host)
    address = f"{config.scheme}://{f'[{host}]' if ':' in host else host}:{config.port}{path}"
    # A proxy of the environment is for other addresses than this one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *_trusting(config))
    return opener.open(urllib.request.Request(address, body, dict(headers)), timeout=_ANSWER_S)  # noqa: S310 (http or https)


def _trusting(config: HttpConfig) -> Sequence[urllib.request.BaseHandler]:
    """Trust exactly the configured certificate, whatever name it is for: the address is the configuration's own."""
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

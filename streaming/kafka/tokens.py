"""Tokens of an OIDC token server, for the client credentials of the configuration (RFC 6749, 4.4).

For the schema registry's client, and for the reason why a client of Kafka got no token: those request tokens of their
own.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

from schemas.errors import BackfillError, Code, EnvironmentProblem
from schemas.settings.security import OAuth

WAIT_S = 10.0
"""The longest wait for the token server's answer."""
_MAX_ANSWER_BYTES = 1 << 18
_USED_SHARE = 0.8
"""The share of a token's life after which it is renewed, as Kafka's clients do."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bearer token; `expires_s` is its end and `stale_s` the time to renew it, both by `time.time`."""

    text: str
    expires_s: float
    stale_s: float

    def __repr__(self) -> str:
        return f"BearerToken(…, expires_s={self.expires_s})"


_AWAY = frozenset({Code.BROKER_UNREACHABLE, Code.REGISTRY_UNREACHABLE})
_tokens: dict[OAuth, BearerToken] = {}
_asking: dict[OAuth, threading.Lock] = {}
_lock = threading.Lock()


def token_for(oauth: OAuth) -> BearerToken:
    """A token that is valid for a while, from memory or from the token server; concurrent threads get the same.

    If the server is away, the token before is returned for as long as it is valid.

    Raises: EnvironmentProblem: for Kafka AUTH_FAILED or BROKER_UNREACHABLE, for the registry REGISTRY_REFUSED or
    REGISTRY_UNREACHABLE; ConfigError when the secret can't be read.
    """
    with _lock:
        mine = _asking.setdefault(oauth, threading.Lock())
    with mine:
        known, now_s = _tokens.get(oauth), time.time()
        if known is not None and now_s < known.stale_s:
            return known
        try:
            _tokens[oauth] = _asked(oauth)
        except EnvironmentProblem as problem:
            if known is None or now_s >= known.expires_s or problem.code not in _AWAY:
                raise
            return known
        return _tokens[oauth]


def why_no_token(oauth: OAuth) -> BackfillError | None:
    """The token server's reason to refuse this client now, whatever is cached; None if it issues a token.

    For errors of clients that request tokens themselves, and give no reason when they fail.
    """
    try:
        _asked(oauth)
    except BackfillError as problem:
        return problem
    return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the secret is sent to the declared address alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _asked(oauth: OAuth) -> BearerToken:
    # In the form of Kafka's clients, without the encoding of RFC 6749, 2.3.1: the server has to accept all three.
    login = f"{oauth.client_id}:{oauth.client_secret.read()}"
    wanted = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    request = urllib.request.Request(  # noqa: S310 (http or https, by the configuration's pattern)
        oauth.token_url,
        urllib.parse.urlencode(wanted).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(login.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    https = urllib.request.HTTPSHandler(context=oauth.tls_context())
    began_s = time.time()
    try:
        with urllib.request.build_opener(https, _NoRedirects).open(request, timeout=WAIT_S) as answer:
            said = answer.read(_MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        if error.code >= 500 or error.code == 429:
            raise _unreachable(oauth, f"status {error.code}") from None
        raise _refused(oauth, f"status {error.code}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None)
        raise _unreachable(oauth, type(reason if isinstance(reason, Exception) else error).__name__) from None
    return _read(oauth, said, began_s)


def _read(oauth: OAuth, said: bytes, began_s: float) -> BearerToken:
    """The token of an answer. Its life counts from before the request, so that it never ends early."""
    try:
        answer: dict[str, Any] = json.loads(said)
        text, life_s = answer["access_token"], float(answer.get("expires_in", 0))
        kind = str(answer.get("token_type", "bearer")).lower()
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _refused(oauth, "an answer without an access_token") from None
    if kind != "bearer" or not life_s > 0:
        raise _refused(oauth, "a token that is no bearer token, or has no expires_in")
    return BearerToken(text, began_s + life_s, began_s + life_s * _USED_SHARE)


def _refused(oauth: OAuth, found: str) -> EnvironmentProblem:
    return _problem(
        oauth,
        (Code.REGISTRY_REFUSED, Code.AUTH_FAILED),
        f"no token from the token server ({found})",
        "a client that it knows, with this secret, and a scope that it may have",
        "check client_id, its secret, scope and token_url",
    )


def _unreachable(oauth: OAuth, found: str) -> EnvironmentProblem:
    return _problem(
        oauth,
        (Code.REGISTRY_UNREACHABLE, Code.BROKER_UNREACHABLE),
        f"no answer from the token server ({found})",
        "a token server there",
        "start it, or correct token_url or ca_file",
    )


def _problem(
    oauth: OAuth, codes: tuple[Code, Code], found: str, expected: str, step: str
) -> EnvironmentProblem:
    """`codes`: of the registry, and of Kafka."""
    return EnvironmentProblem(
        codes[0] if oauth.section.startswith("registry") else codes[1],
        where=f"{oauth.section}.token_url",
        found=found,
        expected=expected,
        next_step=f"{step} in {oauth.section}",
    )

"""Checks of every request: how many are under way, its body's size and time, and a token where one is needed.

Requests that are refused, and errors, are answered as on the command line, with a status of HTTP.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.errors import BackfillError, Code, ConfigError
from streaming.observe.models import ApiModel

MAX_BODY_BYTES = 64 * 1024
BODY_WITHIN_S = 10.0
MOST_REQUESTS = 100
PROBES = frozenset({"/healthz", "/readyz"})
"""An orchestrator restarts a service that leaves them without an answer, so they have no limit."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Problem(ApiModel):
    """An error: as on the command line."""

    code: str
    found: str
    expected: str
    next_step: str


def problem(
    status: int,
    *,
    found: str,
    expected: str,
    next_step: str,
    code: str = Code.USAGE,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The answer to a request that can't be served: the same form as every error of ours."""
    body = Problem(code=code, found=found, expected=expected, next_step=next_step)
    return JSONResponse(body.model_dump(), status, headers)


class Bounded:
    """ASGI middleware: the whole body is read first, up to a size and within a time; answers carry safe headers.

    Of requests beyond `MOST_REQUESTS` at once only probes are served.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._under_way = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with 413, 408 or 503."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._under_way -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if self._under_way > MOST_REQUESTS and scope["path"] not in PROBES:
            busy = problem(
                503,
                code=Code.NOT_SERVED,
                found="too many requests at once",
                expected=f"at most {MOST_REQUESTS}",
                next_step="try again; see who sends them",
                headers={"Retry-After": "1"},
            )
            await busy(scope, receive, send_safely)
            return
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                body = await _body(receive)
        except TimeoutError:
            await _refusal(408, "a body that took too long")(scope, receive, send_safely)
            return
        if body is None:
            await _refusal(413, "a body that is too large")(scope, receive, send_safely)
            return
        replayed = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            message = next(replayed, None)
            return await receive() if message is None else message

        await self._app(scope, replay, send_safely)


async def _body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _refusal(status: int, found: str) -> JSONResponse:
    return problem(
        status,
        found=found,
        expected=f"at most {MAX_BODY_BYTES} bytes within {BODY_WITHIN_S:g} s",
        next_step="send less, or faster",
    )


class NotAllowed(Exception):
    """A request without the right that it needs. `status` is 401 (no token or a wrong one) or 403 (none is set)."""

    def __init__(self, status: int, found: str, next_step: str) -> None:
        super().__init__(found)
        self.status, self.found, self.next_step = status, found, next_step


class ApiAuth:
    """Authorization of requests to read and to change. `token` is None where none is configured."""

    def __init__(self, token: str | None, *, is_local: bool) -> None:
        self._token, self._is_local = token, is_local

    def require_read(self, authorization: Annotated[str | None, Header()] = None) -> None:
        """Check a request that only reads. Raises: NotAllowed, unless the service listens on this machine alone."""
        if not self._is_local:
            self._check(authorization)

    def require_control(self, authorization: Annotated[str | None, Header()] = None) -> None:
        """Check a request that changes something. Raises: NotAllowed without the token.

        On this machine, too: a page of any site, open in a browser here, can send requests to it.
        """
        if self._token is None:
            raise NotAllowed(
                403, "no token in the service's configuration", "set http.token_file or http.token_env"
            )
        self._check(authorization)

    def _check(self, authorization: str | None) -> None:
        scheme, _, given = (authorization or "").partition(" ")
        wanted = self._token or ""
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise NotAllowed(401, "no token, or another one", "send the header Authorization: Bearer <token>")


def not_allowed(_: Request, refused: Exception) -> JSONResponse:
    """The answer to a request without the right to do this."""
    assert isinstance(refused, NotAllowed)
    return problem(
        refused.status,
        found=refused.found,
        expected="the token that the service was started with",
        next_step=refused.next_step,
        headers={"WWW-Authenticate": "Bearer"} if refused.status == 401 else None,
    )


_HTTP_STATUS = {
    Code.JOB_UNKNOWN: 404,
    Code.JOB_EXISTS: 409,
    Code.TABLE_SUSPENDED: 409,
    Code.NOT_SUSPENDED: 409,
    Code.INITIAL_NOT_READ: 409,
    Code.OUTPUT_TOPIC_MISMATCH: 409,
    Code.OUTPUT_LOSES_RECORDS: 409,
    Code.SAME_TOPIC: 409,
}
_MOST_FAULTS, _MOST_CHARACTERS = 10, 1_000
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "No JSON, or another Host", "content": {"text/plain": {}}},
    401: {"model": Problem, "description": "No token"},
    403: {"model": Problem, "description": "No token is configured"},
    404: {"model": Problem, "description": "No such job"},
    408: {"model": Problem, "description": "A body that took too long"},
    409: {"model": Problem, "description": "In the way of another job"},
    413: {"model": Problem, "description": "A body that is too large"},
    422: {"model": Problem, "description": "Not a job of this table"},
    503: {"model": Problem, "description": "Kafka can't be reached"},
}


def foreseen(_: Request, error: Exception) -> JSONResponse:
    """An error of ours."""
    assert isinstance(error, BackfillError)
    status = _HTTP_STATUS.get(error.code) or {7: 503}.get(error.exit_status, 422)
    return problem(
        status, code=error.code, found=error.found, expected=error.expected, next_step=error.next_step
    )


def not_as_described(_: Request, error: Exception) -> JSONResponse:
    """Names what is wrong and where, and quotes no value."""
    assert isinstance(error, RequestValidationError)
    found = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['type']}"
        for fault in error.errors()[:_MOST_FAULTS]
    )
    return _usage(422, found[:_MOST_CHARACTERS])


def not_here(_: Request, error: Exception) -> JSONResponse:
    """A path or a method that there is none of."""
    assert isinstance(error, HTTPException)
    return _usage(error.status_code, str(error.detail), error.headers)


def _usage(status: int, found: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return problem(
        status,
        found=found,
        expected="a request as the description says",
        next_step="see /api/openapi.json",
        headers=headers,
    )


def unknown_job(job: str) -> ConfigError:
    """The error for a name that no job has."""
    return ConfigError(Code.JOB_UNKNOWN, found=f"no job {job}")

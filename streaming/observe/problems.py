"""Errors as the API answers them: as on the command line, with a status of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from schemas.errors import BackfillError, Code, ConfigError
from streaming.observe.changes import Problem
from streaming.observe.middleware import problem

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

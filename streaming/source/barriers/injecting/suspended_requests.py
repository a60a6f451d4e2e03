"""Requests to a suspended service, as JSON on the control topic. No barrier carries them: no batch can end then.

    {"id": "<unique>", "suspended": {"resume": {"skip_records": ["2@207978"], "accept_log_reset": false}}}
    {"id": "<unique>", "suspended": {"drop": "orders-copy"}}
    {"id": "<unique>", "suspended": {"alter": [{"add": {"c": "int"}}, {"rename": {"old": "new"}}, {"ignore": "d"}]}}
    {"id": "<unique>", "suspended": {"stop": {}}}

The service reads the topic itself from the offset at which it was suspended; injectors pass these requests over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.kinds.table_changes import TableChange, changes_from_json, changes_to_json
from schemas.records import RecordId, record_from_text
from streaming.source.barriers.injecting.control_requests import (
    MAX_ID_CHARACTERS,
    MAX_JOB_CHARACTERS,
    MalformedRequestError,
    json_object,
    text_in,
)

MOST_SKIPPED = 1_000


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Go on from the state. `skip_records` are left out if they are invalid; a log may begin anew once more."""

    skip_records: frozenset[RecordId] = frozenset()
    accept_log_reset: bool = False


@dataclass(frozen=True, slots=True)
class DropAndTryAgain:
    """Go on without a job."""

    job: str


@dataclass(frozen=True, slots=True)
class AlterAndTryAgain:
    """Go on with another version of the table."""

    changes: tuple[TableChange, ...]


@dataclass(frozen=True, slots=True)
class EndProcess:
    """End the service; its table stays suspended."""


SuspendedAction = TryAgain | DropAndTryAgain | AlterAndTryAgain | EndProcess


def encode_suspended(request_id: str, action: SuspendedAction) -> bytes:
    """The value of the control record."""
    content: dict[str, Any]
    match action:
        case TryAgain(records, accepts):
            places = [f"{partition}@{offset}" for partition, offset in sorted(records)]
            content = {"resume": {"skip_records": places, "accept_log_reset": accepts}}
        case DropAndTryAgain(job):
            content = {"drop": job}
        case AlterAndTryAgain(changes):
            content = {"alter": changes_to_json(changes)}
        case EndProcess():
            content = {"stop": {}}
    return json.dumps({"id": request_id, "suspended": content}).encode()


def decode_suspended(data: bytes | None) -> SuspendedAction | None:
    """The action in the value of a control record, None for requests of other kinds. Raises: MalformedRequestError."""
    fields = json_object(data)
    if "suspended" not in fields:
        return None
    content = fields["suspended"]
    if fields.keys() != {"id", "suspended"} or not isinstance(content, dict) or len(content) != 1:
        raise MalformedRequestError("keys are id and suspended, which has one of resume, drop, alter, stop")
    text_in(fields, "id", MAX_ID_CHARACTERS)
    if "resume" in content:
        return _try_again(content["resume"])
    if "drop" in content:
        return DropAndTryAgain(text_in(content, "drop", MAX_JOB_CHARACTERS))
    if "alter" in content:
        try:
            return AlterAndTryAgain(changes_from_json(content["alter"]))
        except ValueError as reason:
            raise MalformedRequestError(str(reason)) from None
    if content == {"stop": {}}:
        return EndProcess()
    raise MalformedRequestError("suspended has one of resume, drop, alter, stop")


def _try_again(content: object) -> TryAgain:
    if not isinstance(content, Mapping) or not content.keys() <= {"skip_records", "accept_log_reset"}:
        raise MalformedRequestError("keys of resume are skip_records and accept_log_reset")
    texts, accepts = content.get("skip_records", []), content.get("accept_log_reset", False)
    if not isinstance(texts, list) or len(texts) > MOST_SKIPPED or not isinstance(accepts, bool):
        raise MalformedRequestError(
            f"skip_records is a list of {MOST_SKIPPED:,} at most, accept_log_reset a boolean"
        )
    try:
        return TryAgain(frozenset(map(record_from_text, texts)), accepts)
    except (TypeError, ValueError):
        raise MalformedRequestError("a record of skip_records is a text PARTITION@OFFSET") from None

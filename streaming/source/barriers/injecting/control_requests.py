"""Control requests to a running service or a suspended one, as JSON on the topic `<upstream>.control`.

    {"id": "<unique>", "mutation": "Throttle", "job": "orders-copy", "rate_limit": 100}

    {"id": "<unique>", "suspended": {"resume": {"skip_records": ["2@207978"], "accept_log_reset": false}}}
    {"id": "<unique>", "suspended": {"drop": "orders-copy"}}
    {"id": "<unique>", "suspended": {"alter": [{"add": {"c": "int"}}, {"ignore": "d"}]}}
    {"id": "<unique>", "suspended": {"stop": {}}}

A request with a `mutation` becomes the mutation of the next barrier. With `timeout_ms` it is refused where no barrier
has taken it within that time of the broker's append. No barrier carries the others, for no batch can end while a table
is suspended: the service reads the topic itself from the offset at which it was, and injectors pass them over. Any
client may write to the topic, so all about a request is checked here, except for its job's existence, which the service
checks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from schemas.kinds.table_changes import TableChange, changes_from_json, changes_text, changes_to_json
from schemas.mutations import named
from schemas.records import (
    Add,
    Alter,
    Drop,
    Lanes,
    Mutation,
    Pause,
    RecordId,
    Resume,
    Stop,
    Throttle,
    record_from_text,
)
from schemas.table import nearest

MAX_REQUEST_BYTES = 64 * 1024
MAX_JOB_CHARACTERS = 63
MAX_ID_CHARACTERS = 200
_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_TIMEOUT = "timeout_ms"
_MOST_DEPTH, _MOST_DIGITS = 64, 400
"""Far within what readers of barriers take: a request becomes part of one, which the service has to read again."""
MOST_SKIPPED = 1_000


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request. The client chooses `id`, to find its request again; nothing here depends on it.

    `timeout_ms` is its greatest age when a barrier takes it; None for any.
    """

    id: str
    mutation: Mutation
    timeout_ms: int | None = None


class MalformedRequestError(ValueError):
    """The error for bytes that are no request. The message holds nothing of their content but names of keys."""


def encode_request(request: ControlRequest) -> bytes:
    """The value of the control record."""
    name, fields = named(request.mutation)
    if isinstance(request.mutation, Add):
        fields = {"definition": json.loads(request.mutation.job)}
    if request.timeout_ms is not None:
        fields[_TIMEOUT] = request.timeout_ms
    return json.dumps({"id": request.id, "mutation": name, **fields}).encode()


def decode_request(data: bytes | None) -> ControlRequest:
    """Read the value of a control record. Raises MalformedRequestError for anything but one whole request."""
    fields = json_object(data)
    kind = fields.get("mutation")
    if not isinstance(kind, str) or kind not in _MUTATIONS:
        hint = nearest(kind, list(_MUTATIONS)) if isinstance(kind, str) else ""
        raise MalformedRequestError(f"mutation is not one of {', '.join(_MUTATIONS)}{hint}")
    build, readers = _MUTATIONS[kind]
    timeout_ms = _timeout_ms(fields)
    expected = {"id", "mutation", *readers}
    if fields.keys() != expected:
        raise MalformedRequestError(f"keys of {kind} are {', '.join(sorted(expected))}")
    request_id = text_in(fields, "id", MAX_ID_CHARACTERS)
    return ControlRequest(request_id, build(*(read(fields) for read in readers.values())), timeout_ms)


def _timeout_ms(fields: dict[str, Any]) -> int | None:
    """Take the key out, which every kind may have."""
    if _TIMEOUT not in fields:
        return None
    value = fields.pop(_TIMEOUT)
    if not (type(value) is int and 1 <= value <= _MAX_LONG):
        raise MalformedRequestError(f"{_TIMEOUT} is not a whole number from 1 (milliseconds)")
    return value


def json_object(data: bytes | None) -> dict[str, Any]:
    """The object in the value of a control record. Raises: MalformedRequestError."""
    if not data:
        raise MalformedRequestError("an empty value")
    if len(data) > MAX_REQUEST_BYTES:
        raise MalformedRequestError(f"{len(data)} bytes; at most {MAX_REQUEST_BYTES}")
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_int=lambda digits: int(_within(digits)),
            parse_float=_finite,
            parse_constant=_refuse,
            object_pairs_hook=_without_doubles,
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate could not be sent on
    except MalformedRequestError:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedRequestError(f"no JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise MalformedRequestError("no JSON object")
    _refuse_deep(value)
    return value


def _within(digits: str) -> str:
    if len(digits) > _MOST_DIGITS:
        raise MalformedRequestError(f"a number of more than {_MOST_DIGITS} characters")
    return digits


def _finite(digits: str) -> float:
    number = float(_within(digits))
    if math.isinf(number):
        raise MalformedRequestError("a number beyond every double")
    return number


def _refuse_deep(value: object) -> None:
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
        if not level:
            return
    raise MalformedRequestError(f"objects and lists more than {_MOST_DEPTH} deep in each other")


def _refuse(constant: str) -> NoReturn:
    raise MalformedRequestError(f"{constant} is no JSON number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise MalformedRequestError("a key twice")
    return dict(pairs)


def text_in(fields: Mapping[str, Any], key: str, longest: int) -> str:
    """A text of an object, not empty. Raises: MalformedRequestError."""
    value = fields[key]
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise MalformedRequestError(f"{key} is not a text of 1 to {longest} characters")
    return value


def _job(fields: Mapping[str, Any]) -> str:
    return text_in(fields, "job", MAX_JOB_CHARACTERS)


def _job_or_all(fields: Mapping[str, Any]) -> str | None:
    return None if fields["job"] is None else _job(fields)


def _rate_limit(fields: Mapping[str, Any]) -> int | None:
    value = fields["rate_limit"]
    if value is not None and not (type(value) is int and 0 <= value <= _MAX_LONG):
        raise MalformedRequestError("rate_limit is neither null nor a whole number from 0 (rows per second)")
    return value


def _lanes(fields: Mapping[str, Any]) -> int:
    value = fields["lanes"]
    if not (type(value) is int and 1 <= value <= _MAX_INT):
        raise MalformedRequestError("lanes is not a whole number from 1")
    return value


def _changes(fields: Mapping[str, Any]) -> str:
    try:
        return changes_text(changes_from_json(fields["changes"]))
    except ValueError as reason:
        raise MalformedRequestError(str(reason)) from None


def _definition(fields: Mapping[str, Any]) -> str:
    value = fields["definition"]
    if not isinstance(value, dict):
        raise MalformedRequestError("definition is no JSON object")
    return json.dumps(value, separators=(",", ":"))


_Reader = Callable[[Mapping[str, Any]], object]

_MUTATIONS: dict[str, tuple[Callable[..., Mutation], dict[str, _Reader]]] = {
    "Add": (Add, {"definition": _definition}),
    "Drop": (Drop, {"job": _job}),
    "Pause": (Pause, {"job": _job_or_all}),
    "Resume": (Resume, {"job": _job_or_all}),
    "Throttle": (Throttle, {"job": _job, "rate_limit": _rate_limit}),
    "Stop": (Stop, {}),
    "Lanes": (Lanes, {"lanes": _lanes}),
    "Alter": (Alter, {"changes": _changes}),
}
"""The kinds of mutations, and readers of their fields by the keys of a request."""


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

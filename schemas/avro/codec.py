"""Barrier records to bytes and back (docs/contract.md#records-on-the-upstream)."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.record_bytes import INT_MAX, MalformedError, RecordBytes, UnknownChoiceError
from schemas.errors import Code, InputError
from schemas.mutations import BRANCHES, named, named_from
from schemas.records import Barrier, BarrierKind, Mutation, Other, VnodeProgress
from schemas.types import FIRST_US, LAST_US

Schema = dict[str, Any]


def _mutation(name: str, *fields: tuple[str, Any]) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


_MUTATIONS: list[Any] = [
    "null",
    _mutation("Add", ("job", "string")),
    _mutation("Drop", ("job", "string")),
    _mutation("Pause", ("job", ["null", "string"])),
    _mutation("Resume", ("job", ["null", "string"])),
    _mutation("Throttle", ("job", "string"), ("rate_limit", ["null", "long"])),
    _mutation("Stop"),
    # The last branch for ever: later mutations go by their name.
    _mutation("Other", ("name", "string"), ("value", "string")),
]
BARRIER_SCHEMA: Schema = {
    "type": "record",
    "name": "Barrier",
    "fields": [
        {"name": "curr", "type": "long"},
        {"name": "prev", "type": "long"},
        {
            "name": "kind",
            "type": {"type": "enum", "name": "Kind", "symbols": [kind.name for kind in BarrierKind]},
        },
        {"name": "partitions", "type": "int"},
        {"name": "injected_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "mutation", "type": _MUTATIONS},
        {
            "name": "progress",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "VnodeProgress",
                    "fields": [
                        {"name": "vnode", "type": "int"},
                        {"name": "position", "type": ["null", "string"]},
                        {"name": "finished", "type": "boolean"},
                        {"name": "row_count", "type": "long"},
                    ],
                },
            },
        },
    ],
}
_BARRIER = fastavro.parse_schema(BARRIER_SCHEMA)
MAX_BARRIER_BYTES = 16 << 20
"""An entry for each of the most vnodes there can be, with positions of hundreds of bytes."""


def encode_barrier(barrier: Barrier) -> bytes:
    """Value of a barrier record; its header is `barrier_header`."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _BARRIER, _barrier_to_avro(barrier))
    return out.getvalue()


def barrier_header(barrier: Barrier) -> bytes:
    """Value of the `barrier` header."""
    return str(barrier.curr).encode("ascii")


def _barrier_to_avro(barrier: Barrier) -> dict[str, Any]:
    return {
        "curr": barrier.curr,
        "prev": barrier.prev,
        "kind": barrier.kind.name,
        "partitions": barrier.partitions,
        "injected_at": barrier.injected_at_ms,
        "mutation": _mutation_to_avro(barrier.mutation),
        "progress": [
            {"vnode": p.vnode, "position": p.position, "finished": p.finished, "row_count": p.row_count}
            for p in barrier.progress
        ],
    }


def _mutation_to_avro(mutation: Mutation | None) -> tuple[str, dict[str, Any]] | None:
    if mutation is None:
        return None
    name, fields = named(mutation)
    if name in BRANCHES:
        return name, fields
    return Other.__name__, {"name": name, "value": json.dumps(fields)}


def decode_barrier(header: bytes | None, data: bytes | None, *, where: str | None = None) -> Barrier:
    """Read a barrier record from its header and value, which must agree.

    Raises:
        InputError: BARRIER_MALFORMED for bytes that are no barrier, a header that is not the value's epoch,
            `curr` not above `prev`, or a count of partitions below 1; BARRIER_UNSUPPORTED for a kind or a mutation
            that is not known; AVRO_LIMIT for lengths and counts that no barrier has, and more than
            `MAX_BARRIER_BYTES`.
    """
    try:
        if data is None:
            raise MalformedError("null value")
        if len(data) > MAX_BARRIER_BYTES:
            raise MalformedError("more than a barrier can have", Code.AVRO_LIMIT)
        record = RecordBytes(data, is_limited=True)
        barrier = _read_barrier(record)
        record.finish()
        check_barrier(barrier, header)
    except _UnsupportedError as reason:
        raise _refusal(Code.BARRIER_UNSUPPORTED, reason, where) from None
    except MalformedError as reason:
        is_limit = reason.code is Code.AVRO_LIMIT
        raise _refusal(Code.AVRO_LIMIT if is_limit else Code.BARRIER_MALFORMED, reason, where) from None
    return barrier


class _UnsupportedError(MalformedError):
    """A kind or a mutation that this version does not know."""


def _refusal(code: Code, reason: MalformedError, where: str | None) -> InputError:
    found = f"a record with the header `barrier` that is no barrier ({reason})"
    return InputError(code, where=where, found=found)


def check_barrier(barrier: Barrier, header: bytes | None) -> None:
    """The conditions on a barrier in the data and in a separate topic. Raises: MalformedError."""
    if header != barrier_header(barrier):
        raise MalformedError("header and value name different epochs")
    if not barrier.curr > barrier.prev >= 0:
        raise MalformedError("curr is not above prev")
    if not 1 <= barrier.partitions <= INT_MAX:
        raise MalformedError("partitions is below 1 or no int")


def _read_barrier(record: RecordBytes) -> Barrier:
    curr, prev = record.number(), record.number()
    kind = BarrierKind(_known(record, len(BarrierKind), "a symbol of Kind"))
    partitions, injected_at_ms = record.integer(), record.within(FIRST_US // 1_000, LAST_US // 1_000)
    return Barrier(
        curr,
        prev,
        kind,
        partitions,
        injected_at_ms,
        _read_mutation(record),
        tuple(
            VnodeProgress(
                record.integer(), _read_field(record, ["null", "string"]), record.boolean(), record.number()
            )
            for _ in record.items()
        ),
    )


def _known(record: RecordBytes, count: int, what: str) -> int:
    try:
        return record.choice(count, what)
    except UnknownChoiceError as reason:
        raise _UnsupportedError(reason.choice) from None


def _read_mutation(record: RecordBytes) -> Mutation | None:
    branch = _MUTATIONS[_known(record, len(_MUTATIONS), "choice")]
    if branch == "null":
        return None
    fields = {each["name"]: _read_field(record, each["type"]) for each in branch["fields"]}
    if branch["name"] in BRANCHES:
        return BRANCHES[branch["name"]](**fields)
    try:
        if fields["name"] in BRANCHES:
            raise ValueError("a mutation that has a branch of its own")
        return named_from(fields["name"], fields["value"])
    except ValueError:
        raise MalformedError("a mutation with a value that is not its own") from None


def _read_field(record: RecordBytes, kind: Any) -> Any:
    if isinstance(kind, list):
        return _read_field(record, kind[1]) if record.has_value(kind) else None
    return record.text() if kind == "string" else record.number()

"""Barrier records to bytes and back with fastavro."""

from __future__ import annotations

import datetime as dt
import json
from io import BytesIO
from typing import Any

import fastavro

from schemas.avro.binary import BARRIER_SCHEMA
from schemas.avro.limits import MalformedError, check_claims
from schemas.avro.reader import INT_MAX, RecordReader
from schemas.errors import Code, InputError
from schemas.mutations import BRANCHES, named, named_from
from schemas.records import Barrier, BarrierKind, Mutation, Other, VnodeProgress

_BARRIER = fastavro.parse_schema(BARRIER_SCHEMA)
_BARRIERS = RecordReader(_BARRIER, named=True)
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
    code = Code.BARRIER_MALFORMED
    try:
        if data is None:
            raise MalformedError("null value")
        if len(data) > MAX_BARRIER_BYTES:
            raise MalformedError("more than a barrier can have", Code.AVRO_LIMIT)
        code = Code.BARRIER_UNSUPPORTED
        check_claims(data, _BARRIER)
        code = Code.BARRIER_MALFORMED
        barrier = _barrier_from_avro(_BARRIERS.read(data))
        check_barrier(barrier, header)
    except MalformedError as reason:
        raise InputError(
            Code.AVRO_LIMIT if reason.code is Code.AVRO_LIMIT else code,
            where=where,
            found=f"a record with the header `barrier` that is no barrier ({reason})",
        ) from None
    return barrier


def check_barrier(barrier: Barrier, header: bytes | None) -> None:
    """The conditions on a barrier in the data and in a separate topic. Raises: MalformedError."""
    if header != barrier_header(barrier):
        raise MalformedError("header and value name different epochs")
    if not barrier.curr > barrier.prev >= 0:
        raise MalformedError("curr is not above prev")
    if not 1 <= barrier.partitions <= INT_MAX:
        raise MalformedError("partitions is below 1 or no int")


def _barrier_from_avro(value: dict[str, Any]) -> Barrier:
    injected_at = value["injected_at"]
    return Barrier(
        curr=value["curr"],
        prev=value["prev"],
        kind=BarrierKind[value["kind"]],
        partitions=value["partitions"],
        injected_at_ms=_unix_ms(injected_at) if isinstance(injected_at, dt.datetime) else injected_at,
        mutation=_mutation_from_avro(value["mutation"]),
        progress=tuple(VnodeProgress(**dict(item)) for item in value["progress"]),
    )


def _mutation_from_avro(value: tuple[str, dict[str, Any]] | None) -> Mutation | None:
    if value is None:
        return None
    name, fields = value
    if name in BRANCHES:
        return BRANCHES[name](**fields)
    try:
        if fields["name"] in BRANCHES:
            raise ValueError("a mutation that has a branch of its own")
        return named_from(fields["name"], fields["value"])
    except ValueError:
        raise MalformedError("a mutation with a value that is not its own") from None


_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _unix_ms(instant: dt.datetime) -> int:
    return (instant - _UNIX_ZERO) // dt.timedelta(milliseconds=1)

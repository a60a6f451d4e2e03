"""Records of a barrier topic: a barrier of one data partition, in JSON (docs/contract.md#barriers-in-a-separate-topic).

header barrier   curr in decimal text
key              the number of the data partition, in decimal text
value            the fields of Barrier, and `end`: the exclusive end of its interval in that partition; `full` if it is,
                 and `columns` that an output has got
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from schemas.avro.codec import MAX_BARRIER_BYTES, check_barrier
from schemas.avro.record_bytes import MalformedError
from schemas.errors import Code, InputError
from schemas.mutations import named, named_from
from schemas.records import Barrier, BarrierKind, Mutation, VnodeProgress

_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1

_Epoch = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,18})$")]
_Long = Annotated[int, Field(ge=0, le=_LONG_MAX)]
_Int = Annotated[int, Field(ge=0, le=_INT_MAX)]


class _Model(BaseModel):
    """Values must have the declared JSON type. Unknown fields are ignored: a later version may write them."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _Progress(_Model):
    vnode: _Int
    position: str | None
    finished: bool
    row_count: _Long


class _Value(_Model):
    curr: _Epoch
    prev: _Epoch
    kind: Literal["INITIAL", "BARRIER", "CHECKPOINT"]
    partitions: Annotated[int, Field(ge=1, le=_INT_MAX)]
    injected_at: Annotated[int, Field(ge=-_LONG_MAX, le=_LONG_MAX)]
    mutation: dict[str, Any] | None
    progress: list[_Progress]
    end: _Long
    full: bool = False
    columns: Any = None


@dataclass(frozen=True, slots=True)
class BesideBarrier:
    """A barrier of one data partition, and the exclusive end of its interval there."""

    barrier: Barrier
    end: int


def encode_beside(barrier: Barrier, end: int) -> bytes:
    """Value of the record; its header is `barrier_header`, its key the partition's number."""
    value = {
        "curr": str(barrier.curr),
        "prev": str(barrier.prev),
        "kind": barrier.kind.name,
        "partitions": barrier.partitions,
        "injected_at": barrier.injected_at_ms,
        "mutation": None if barrier.mutation is None else dict([named(barrier.mutation)]),
        "progress": [asdict(each) for each in barrier.progress],
        "end": end,
        **({"full": True} if barrier.full else {}),
        **(
            {"columns": {name: json.loads(text) for name, text in barrier.columns}} if barrier.columns else {}
        ),
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decode_beside(
    header: bytes | None, key: bytes | None, value: bytes | None, *, partition: int, where: str | None = None
) -> BesideBarrier:
    """Read the record of a data partition's barrier. Its three parts must agree.

    Raises:
        InputError: BARRIER_MALFORMED for anything that is none; AVRO_LIMIT for more bytes than a barrier has.
    """
    if len(value or b"") > MAX_BARRIER_BYTES:
        raise InputError(
            Code.AVRO_LIMIT,
            where=where,
            found=f"a barrier of {len(value or b'')} bytes",
            expected=f"at most {MAX_BARRIER_BYTES}",
        )
    try:
        from_json(value or b"", allow_inf_nan=False)  # the model takes them, which no JSON has
        read = _Value.model_validate_json(value or b"")
        mutation = _mutation(read.mutation, where)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "value"
        raise _malformed(f"{place}: {first['type']}", where) from None
    except ValueError as reason:
        raise _malformed(f"no JSON: {reason}", where) from None
    barrier = Barrier(
        curr=int(read.curr),
        prev=int(read.prev),
        kind=BarrierKind[read.kind],
        partitions=read.partitions,
        injected_at_ms=read.injected_at,
        mutation=mutation,
        progress=tuple(VnodeProgress(**each.model_dump()) for each in read.progress),
        full=read.full,
        columns=_columns(read.columns),
    )
    if barrier.curr > _LONG_MAX:
        raise _malformed("curr is no long", where)
    try:
        check_barrier(barrier, header)
    except MalformedError as reason:
        raise _malformed(str(reason), where) from None
    if key != str(partition).encode():
        raise _malformed("the key is not the partition's number", where)
    return BesideBarrier(barrier, read.end)


def _columns(read: object) -> tuple[tuple[str, str], ...]:
    """None where something else has that name: to an upstream's barriers it means nothing."""
    fields = read.items() if isinstance(read, dict) else ()
    return tuple((str(name), json.dumps(announced)) for name, announced in fields)


def _mutation(read: dict[str, Any] | None, where: str | None) -> Mutation | None:
    if read is None:
        return None
    if len(read) != 1:
        raise _malformed(f"a mutation with {len(read)} names", where)
    [(name, fields)] = read.items()
    try:
        return named_from(name, json.dumps(fields))
    except ValidationError:
        raise
    except ValueError as reason:
        raise _malformed(str(reason), where) from None


def _malformed(reason: str, where: str | None) -> InputError:
    return InputError(
        Code.BARRIER_MALFORMED,
        where=where,
        found=f"a record with the header `barrier` that is no barrier of a barrier topic ({reason})",
        expected="header = curr in decimal, key = the partition's number, value = JSON of a barrier with its end",
        next_step="correct what writes this topic; with another `barrier_topic` the service begins with a new state",
    )

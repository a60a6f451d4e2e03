"""Records that several outputs of one form send: encoded once, and only as long as they are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from schemas.formats.outputs.records import ChangeEncoder
from schemas.job import JobDefinition
from schemas.records import Change, Op
from streaming.sink.columns import ChangeColumns
from streaming.sink.output import Output
from streaming.source.decoded import Changes
from tests.kit import barriers
from tests.kit.columns import changes_of
from tests.kit.masks import hash_key_file
from tests.kit.tables import table

TABLE = table()
BARRIER = barriers.barrier(1, 1)


def output(name: str, **more: object) -> Output:
    return Output(JobDefinition.declare({"name": name, "output": name, **more}, TABLE), TABLE)


def changes() -> Changes:
    return changes_of(TABLE, [Change(Op.UPDATE, (1, 2, "x"), (1, 2, "x"))] * 2)


def sent(decoded: Changes, out: Output, rows: list[int], ops: list[Op]) -> list[bytes]:
    columns = ChangeColumns(
        output=out,
        decoded=decoded,
        rows=np.array(rows, np.int64),
        ops=np.array(ops, np.int8),
        partitions=np.zeros(len(rows), np.int32),
        parts=np.zeros(len(rows), np.int32),
        bounds=np.array([0, len(rows)]),
        barriers=[BARRIER],
    )
    return list(columns.records.values.to_pylist())


def test_equal_outputs_share_what_is_encoded_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    encode = ChangeEncoder.changes

    def counted(self: ChangeEncoder, *columns: object) -> pa.BinaryArray:
        calls.append(self)
        return encode(self, *columns)  # type: ignore[arg-type]

    monkeypatch.setattr(ChangeEncoder, "changes", counted)
    decoded, both = changes(), [Op.UPDATE, Op.UPDATE]
    first = sent(decoded, output("one"), [0, 1], both)
    assert sent(decoded, output("two"), [0, 1], both) == first
    assert len(calls) == 1
    assert sent(decoded, output("filtered"), [0, 1], [Op.UPDATE, Op.INSERT])[1] != first[1]
    assert sent(decoded, output("some"), [1], [Op.UPDATE]) == first[1:]
    assert sent(decoded, output("narrow", columns=["id", "v"]), [0, 1], both) != first
    assert sent(decoded, output("again"), [0, 1], both) == first
    assert len(calls) == 5


def test_outputs_that_mask_otherwise_share_nothing() -> None:
    decoded, both = changes(), [Op.UPDATE, Op.UPDATE]
    columns: list[list[object]] = [
        ["id", "v"],
        ["id", {"v": None}],
        ["id", {"v": "prefix(v, 1)"}],
        ["id", {"v": "hash(v)"}],
    ]
    first, second = (
        [
            sent(decoded, output(f"{name}{number}", columns=each, hash_key_file=file), [0, 1], both)
            for number, each in enumerate(columns)
            for file in [hash_key_file() if "hash" in str(each) else None]
        ]
        for name in ("first", "second")
    )
    assert first == second
    assert first[0] == first[2]
    assert len({each[0] for each in first}) == len(columns) - 1


def test_events_that_name_their_job_are_encoded_for_each() -> None:
    decoded = changes()
    one, other = (
        sent(decoded, output(name, format="debezium"), [0], [Op.UPDATE]) for name in ("one", "other")
    )
    assert one != other

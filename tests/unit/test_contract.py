"""Bytes, vnodes, requests, commands and types on the pages of the contract are those of the code."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pytest

from schemas.avro.codec import decode_barrier
from schemas.avro.output_schemas import text_of
from schemas.avro.registered import SchemaIds
from schemas.epoch import NO_EPOCH, next_epoch
from schemas.errors import BackfillError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs import events
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.records import Barrier, BarrierKind, Change, Op, Throttle, VnodeProgress
from schemas.table import declare
from schemas.types import TYPE_NAMES
from streaming.cli.app import COMMANDS
from streaming.source.barriers.injecting.control_requests import decode_request
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.columns import origins_at
from tests.kit.sent_records import sent_change, sent_key, sent_row
from tests.kit.single_records import single_records
from tests.kit.vnodes import compute_vnode

ROOT = Path(__file__).parents[2]
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
OUTPUTS = (ROOT / "docs" / "outputs.md").read_text(encoding="utf-8")


def section(document: str, title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", document, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def test_the_bytes_shown_are_those_of_the_records() -> None:
    text = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"}
    table = declare({"name": "orders", "columns": text, "primary_key": ["id"]})
    shown = re.findall(r"^(.*?) +((?:[0-9a-f]{2}(?: |$))+)$", section(CONTRACT, "Changes"), re.MULTILINE)
    inserted = (7, "EU", Decimal("250.00"), None)
    updated = (7, "EU", Decimal("99.90"), "late")
    codec = ChangeCodec(table.columns)
    assert [(label, bytes.fromhex(data)) for label, data in shown] == [
        ("key of 7", KeyCodec(table.key_columns).encode((7,))),
        ("INSERT 7, EU, 250.00, null", codec.encode(Change(Op.INSERT, None, inserted))),
        ("UPDATE to 7, EU, 99.90, late", codec.encode(Change(Op.UPDATE, inserted, updated))),
    ]


def test_the_forms_of_an_output_are_written_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"}
    table = declare({"name": "orders", "columns": text, "primary_key": ["id"]})
    before, after = (7, "EU", Decimal("250.00"), None), (7, "EU", Decimal("99.90"), "late")
    closing = Barrier(10002471321600000, 0, BarrierKind.BARRIER, 4, 1_769_860_800_000)
    origin = origins_at(closing, "orders-copy", "orders", 41)
    monkeypatch.setattr(events, "own_version", lambda: "1.0.0")
    shown = section(OUTPUTS, "Forms")
    columns = (table.columns, table.key_columns)
    for encoding in ("json", "json-schema", "avro-registry"):
        upsert, debezium = (
            kind.model_validate({"encoding": encoding}).with_ids(SchemaIds(1, 2))
            for kind in (UpsertOutput, DebeziumOutput)
        )
        key, event_key = (sent_key(each, table.key_columns, (7,)) for each in (upsert, debezium))
        event = sent_change(debezium, table.columns, Change(Op.UPDATE, before, after), origin)
        written = [key, sent_row(upsert, table.columns, after) or b"", event or b""]
        if encoding == "avro-registry":
            schema = text_of(upsert.schemas(*columns, "shop.orders-copy")["value"])
            written = [*(each.hex(" ").encode() for each in written), schema.encode()]
        assert key == event_key
        for each in written if encoding != "json-schema" else written[:1]:
            assert re.search(rf"(^| ){re.escape(each.decode())}$", shown, re.MULTILINE), each


def test_the_example_of_the_readme_goes_in_and_comes_out_so() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```json\n(.*?)```", readme, re.DOTALL)
    event, sent = ([part.encode() for part in block.rstrip().split("\n", 1)] for block in blocks)
    text = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"}
    table = declare({"name": "orders", "columns": text, "primary_key": ["id"]})
    upstream = DebeziumFormat.model_validate({"decimal": "precise"})
    change = single_records(upstream, table.columns, table.key_columns).read_record(*event).change
    assert change is not None
    assert change.after == (7, "EU", Decimal("250.00"), None)
    output, columns = UpsertOutput.model_validate({}), table.select(("id", "region", "amount"))
    written = sent_key(output, table.key_columns, (7,)), sent_row(output, columns, change.after[:3])
    assert list(written) == sent


def test_the_barrier_shown_is_one() -> None:
    *_, block = re.findall(r"```\n(.*?)```", section(CONTRACT, "Barriers"), re.DOTALL)
    at = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    epoch, at_ms = 10002471321600000, int(at.timestamp() * 1000)
    assert next_epoch(NO_EPOCH, at_ms) == epoch
    assert decode_barrier(str(epoch).encode(), bytes.fromhex(block)) == Barrier(
        curr=epoch,
        prev=10002471256064000,
        kind=BarrierKind.CHECKPOINT,
        partitions=4,
        injected_at_ms=at_ms,
        mutation=Throttle("big-orders", 100),
        progress=(VnodeProgress(41, "[7]", finished=False, row_count=3),),
    )


@pytest.mark.parametrize(
    ("call", "columns", "values"),
    [
        ("CAST(7 AS BIGINT)", {"id": "bigint"}, (7,)),
        ("CAST(-1 AS BIGINT)", {"id": "bigint"}, (-1,)),
        (
            "'EU', 7, DATE '2026-01-31'",
            {"region": "string", "id": "int", "day": "date"},
            ("EU", 7, dt.date(2026, 1, 31)),
        ),
    ],
)
def test_the_vnodes_shown_are_those(call: str, columns: dict[str, str], values: tuple[object, ...]) -> None:
    table = declare({"name": "t", "columns": columns, "primary_key": list(columns)})
    vnode = compute_vnode(values, table.key_columns, 64)
    assert re.search(rf"xxhash64\({re.escape(call)}\), 64\) +-- {vnode}\b", CONTRACT)


def test_every_control_request_shown_is_one() -> None:
    block = re.search(r"```json\n(.*?)```", section(CONTRACT, "The control topic"), re.DOTALL)
    assert block is not None
    requests = [decode_request(line.encode()) for line in block[1].splitlines()]
    assert len({type(request.mutation) for request in requests}) == 7


def test_it_lists_every_command_and_every_exit_status() -> None:
    commands = section(CONTRACT, "Command line")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", commands, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(COMMANDS)
    statuses = {int(number) for number in re.findall(r"^\| (\d+)\b", commands, re.MULTILINE)}
    assert {kind.exit_status for kind in BackfillError.__subclasses__()} <= statuses


def test_it_names_every_type() -> None:
    named = re.findall(r"^\| (`.*?)[|]", section(CONTRACT, "Tables and vnodes"), re.MULTILINE)
    assert {name for row in named for name in re.findall(r"`([^`]+)`", row)} == set(TYPE_NAMES)

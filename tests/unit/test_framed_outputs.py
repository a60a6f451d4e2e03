"""Records of outputs with Connect's frame, read back: the frame has to be the one that is written, to the byte."""

from __future__ import annotations

import pytest

from schemas.errors import Code, InputError
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import OutputFormat
from schemas.records import Row
from tests.kit.sent_records import sent_key, sent_reader, sent_row
from tests.kit.tables import table

TABLE = table()
ROW: Row = (7, 1, "x")
FORMATS = [UpsertOutput(encoding="json-schema"), DebeziumOutput(encoding="json-schema")]


@pytest.mark.parametrize("format_", FORMATS, ids=lambda each: each.format)
@pytest.mark.parametrize(
    ("shown", "instead", "code"),
    [
        (b'"type":"int64"', b'"type":"int32"', Code.JSON_MALFORMED),
        (b'{"schema"', b'{ "schema"', Code.JSON_MALFORMED),
        (b'"payload"', b'"load"', Code.JSON_MALFORMED),
        (b'"id":7', b'"id":70000000000000000000', Code.VALUE_OUT_OF_RANGE),
        (b'"v":"x"', b'"v":"x","w":1', Code.JSON_MALFORMED),
    ],
)
def test_another_frame_or_row_is_refused(
    format_: OutputFormat, shown: bytes, instead: bytes, code: Code
) -> None:
    reader = sent_reader(format_, TABLE.columns, TABLE.key_columns)
    key, value = sent_key(format_, TABLE.key_columns, (7,)), sent_row(format_, TABLE.columns, ROW)
    assert value is not None
    change = reader.record(key, value).change
    assert change is not None
    assert change.after == ROW
    assert shown in value
    with pytest.raises(InputError) as caught:
        reader.record(key, value.replace(shown, instead))
    assert caught.value.code is code
    if shown in key:
        with pytest.raises(InputError):
            reader.key(key.replace(shown, instead))

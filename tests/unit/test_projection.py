"""Columns of a job: what is read, what is refused, and how it is written down again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.projection import OutputColumn, columns_of_text
from schemas.settings.security import hash_key_of
from schemas.table import declare
from streaming.service.checks.machine import hash_keys
from streaming.service.checks.surroundings import Surroundings
from tests.kit.config_files import EXAMPLE, read

TABLE = declare(
    {
        "name": "t",
        "columns": {
            "id": "bigint",
            "region": "string",
            "zip": "string",
            "note": "string",
            "f": "float",
            "n": "int",
        },
        "primary_key": ["region", "id"],
        "vnode_count": 4,
    }
)
COPY = {"name": "copy", "output": "copy"}
COLUMNS: list[Any] = [
    "n",
    {"key": "id"},
    {"mail": "hash(zip)"},
    {"note": None},
    {"start": "prefix( zip , 3 )"},
    {"again": "zip"},
]


def job(**keys: Any) -> JobDefinition:
    return JobDefinition.declare(COPY | keys, TABLE)


def faults_of(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        job(**keys)
    assert caught.value.code is Code.JOB_INVALID
    return caught.value.found


def test_columns_have_names_types_and_masks() -> None:
    found = job(columns=COLUMNS, hash_key_file="/keys/hash")
    assert found.columns == (
        OutputColumn("n", "n"),
        OutputColumn("key", "id"),
        OutputColumn("mail", "zip", "hash"),
        OutputColumn("note", "note", "null"),
        OutputColumn("start", "zip", "prefix", 3),
        OutputColumn("again", "zip"),
    )
    shown = [(each.name, str(each.type), each.nullable) for each in found.columns_of(TABLE)]
    assert shown == [
        ("n", "int", True),
        ("key", "bigint", False),
        *((name, "string", True) for name in ("mail", "note", "start", "again")),
    ]
    assert [each.name for each in found.key_columns_of(TABLE)] == ["region", "key"]
    assert found.read_columns(TABLE) == ("n", "id", "zip", "region")
    assert found.is_masked
    assert not job(columns=["id", {"again": "zip"}]).is_masked


def test_they_are_written_as_they_are_declared() -> None:
    found = job(columns=COLUMNS, hash_key_file="/keys/hash")
    written = json.loads(found.to_json())
    assert written["columns"] == [
        *("n", {"key": "id"}, {"mail": "hash(zip)"}, {"note": None}),
        *({"start": "prefix(zip, 3)"}, {"again": "zip"}),
    ]
    assert written["hash_key_file"] == "/keys/hash"
    assert JobDefinition.from_json(found.to_json(), TABLE) == found
    texts = ", ".join(map(str, found.columns))
    assert texts == "n, key: id, mail: hash(zip), note: null, start: prefix(zip, 3), again: zip"
    assert job(columns=columns_of_text(texts), hash_key_file="/keys/hash") == found
    assert found.differences(job(columns=["n", {"key": "id"}]))[0].startswith(
        'columns was ["n", {"key": "id"}, '
    )


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ([{}], "not a list of column names"),
        ([{"a": "id", "b": "n"}], "not a list of column names"),
        ([{"a": 7}], "not a list of column names"),
        ([{7: "id"}], "not a list of column names"),
        ([{"a": "hash(zpi)"}], "'zpi', no such column (did you mean 'zip'?)"),
        ([{"a": "md5(zip)"}], "masks are hash(column), prefix(column, n), null"),
        ([{"a": "prefix(zip)"}], "masks are hash(column)"),
        ([{"a": "hash(zip, 3)"}], "masks are hash(column)"),
        ([{"a": None}], "'a', no such column"),
        ([{"a b": "zip"}], "'a b', which is not letters"),
        (["zip", {"ZIP": "note"}], "twice"),
        ([{"a": "hash(id)"}], "masks id, which is in the primary key"),
        ([{"id": None}], "masks id, which is in the primary key"),
        ([{"a": "prefix(region, 2)"}], "masks region, which is in the primary key"),
        ([{"a": "hash(f)"}], "hashes f, a float"),
        ([{"a": "prefix(n, 2)"}], "takes a prefix of n, a int"),
        ([{"a": "prefix(zip, 0)"}], "without a character"),
        (["id", {"a": "id"}], "'id' as id and a"),
        ([{"id": "note"}], "the name 'id' to another column"),
    ],
)
def test_others_are_refused(columns: list[Any], fault: str) -> None:
    assert fault in faults_of(columns=columns)


def test_the_key_has_the_names_that_rows_have_and_nulls_in_further_columns() -> None:
    columns = [{"mail": "hash(note)"}, {"key": "id"}]
    found = job(key=["zip", "note", "id", "region"], columns=columns, hash_key_file="/keys/hash")
    shown = [(each.name, str(each.type), each.nullable) for each in found.key_columns_of(TABLE)]
    assert shown == [
        ("zip", "string", True),
        ("mail", "string", True),
        ("key", "bigint", False),
        ("region", "string", False),
    ]
    assert found.read_columns(TABLE) == ("note", "id", "region", "zip")
    assert JobDefinition.from_json(found.to_json(), TABLE) == found
    assert json.loads(found.to_json())["key"] == ["zip", "note", "id", "region"]
    assert found.schemas(TABLE)["key"]["fields"][0] == {"name": "zip", "type": ["null", "string"]}


def test_the_primary_key_is_no_other_key() -> None:
    assert job(key=["region", "id"]) == job()
    assert job(key=["id", "region"]).key == ("id", "region")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"key": "id"}, "not a list of column names"),
        ({"key": ["id", 7]}, "not a list of column names"),
        ({"key": ["id", "region", "zpi"]}, "'zpi', no such column (did you mean 'zip'?)"),
        ({"key": ["id", "region", "id"]}, "'id' twice"),
        ({"key": ["id", "zip"]}, "lacks region of the primary key"),
        ({"key": []}, "lacks region and id of the primary key"),
        ({"key": ["id", "region", "f"]}, "key names f, a float"),
        ({"key": ["id", "region", "zip"], "columns": [{"zip": None}]}, "masks zip, which is in the key"),
        (
            {"key": ["id", "region", "zip"], "columns": [{"a": "prefix(zip, 1)"}]},
            "masks zip, which is in the key",
        ),
        ({"key": ["id", "region", "zip"], "columns": ["zip", {"a": "zip"}]}, "'zip' as zip and a"),
        ({"key": ["id", "region", "zip"], "columns": [{"zip": "note"}]}, "the name 'zip' to another column"),
        ({"key": ["id", "region", "zip"], "read": "topic"}, "not with read: topic"),
    ],
)
def test_another_key_is_refused(keys: dict[str, Any], fault: str) -> None:
    assert fault in faults_of(**keys)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"columns": [{"a": "hash(zip)"}]}, "no 'hash_key_file'"),
        ({"hash_key_file": "/keys/hash"}, "no column is hash(...)"),
        ({"columns": [{"a": "hash(zip)"}], "hash_key_file": "s3cret"}, "not the absolute path"),
        ({"columns": [{"a": "hash(zip)"}], "hash_key_file": 7}, "not the absolute path"),
    ],
)
def test_a_key_of_hashes_is_the_path_of_a_file(keys: dict[str, Any], fault: str) -> None:
    found = faults_of(**keys)
    assert fault in found
    assert "s3cret" not in found


def test_a_key_column_of_debeziums_frame_is_refused_by_its_new_name() -> None:
    named = {"format": "debezium", "encoding": "json"}
    assert "named payload" in faults_of(columns=[{"payload": "id"}], **named)


@pytest.mark.parametrize(
    ("content", "key"),
    [(b"k\n", b"k"), (b"k\r\n", b"k"), (b"k\r", b"k\r"), (b"k\n\n", b"k\n"), (b"\xff\x00", b"\xff\x00")],
)
def test_the_key_is_the_bytes_of_its_file_but_for_one_line_end(
    content: bytes, key: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "hash"
    file.write_bytes(content)
    file.chmod(0o600)
    assert hash_key_of(job(columns=[{"a": "hash(zip)"}], hash_key_file=str(file))) == key


@pytest.mark.parametrize(("content", "mode"), [(b"\n", 0o600), (b"k", 0o644), (None, 0)])
def test_a_key_that_is_empty_open_to_others_or_absent_is_refused(
    content: bytes | None, mode: int, tmp_path: Path
) -> None:
    file = tmp_path / "hash"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        hash_key_of(job(columns=[{"a": "hash(zip)"}], hash_key_file=str(file)))
    assert caught.value.where == "hash_key_file of job copy"
    assert str(file) not in str(caught.value)


def test_doctor_and_a_start_read_the_keys_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "hash"
    hashed = f"columns: [id, {{a: hash(amount)}}]\n    hash_key_file: {file}"
    declared = read(tmp_path, EXAMPLE.replace("columns: [id, amount]", hashed))
    with pytest.raises(ConfigError, match="can't be read"):
        list(hash_keys(Surroundings(declared, None)))
    file.write_bytes(b"k")
    file.chmod(0o600)
    assert [found.found for found in hash_keys(Surroundings(declared, None))] == ["job orders-copy"]

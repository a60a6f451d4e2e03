"""Documents of settings: variables in their values, and mistakes that are named by their keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from ruamel.yaml import YAML

from schemas.errors import Code, ConfigError
from schemas.faults import Faults, fields_by_key, noted, section_in
from schemas.settings.documents import fill_in, read_mapping


def read(folder: Path, text: str) -> dict[Any, Any]:
    path = folder / "file.yaml"
    path.write_text(text)
    return read_mapping(path, Code.CONFIG_INVALID, expected="a configuration")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: ${NUMBER}", 12),
        ('a: "${NUMBER}"', "12"),
        ("a: '${NUMBER}'", "12"),
        ("a: ${NUMBER}m", "12m"),
        ("a: 0.0.0.0:${NUMBER}", "0.0.0.0:12"),
        ("a: [x, '${NUMBER}']", ["x", "12"]),
        ("a: &b ${NUMBER}\nc: *b", 12),
        ("a: |\n  ${NUMBER} $${NUMBER}\n", "12 ${NUMBER}\n"),
        ("a: ${EMPTY}", None),
        ("a: '${EMPTY}'", ""),
        ("a: ${TRUE}", True),
        ("a: ${KEYS}", "x: {y: 1}\nz: 2"),
        ("a: $$", "$"),
        ("a: $$$${NUMBER}", "$${NUMBER}"),
        ("a: $NUMBER $ 5$", "$NUMBER $ 5$"),
        ('{"a": "${NUMBER}"}', "12"),
        ("${NUMBER}: 1\na: 2", 2),
    ],
)
def test_a_value_is_the_variables_and_no_variable_brings_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: object
) -> None:
    for name, value in {"NUMBER": "12", "EMPTY": "", "TRUE": "true", "KEYS": "x: {y: 1}\nz: 2"}.items():
        monkeypatch.setenv(name, value)
    found = read(tmp_path, text)
    assert found["a"] == expected
    assert type(found["a"]) is type(expected)
    assert set(found) <= {"a", "c", "${NUMBER}"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb:\n  c: x${MISSING}", "the variable MISSING, which is not set"),
        ("a: 1\nb: 2\nc: '${}'", "'${' without a variable's name and '}'; '$$' is a '$'"),
        ("a: 1\nb: 2\nc: '${NO-NAME}'", "'${' without a variable's name and '}'; '$$' is a '$'"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error_with_its_line(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    error = caught.value
    assert (error.code, error.found, error.where) == (
        Code.CONFIG_INVALID,
        found,
        f"{tmp_path / 'file.yaml'}:3",
    )


@given(
    st.text(st.characters(min_codepoint=0xA0, max_codepoint=0xD7FF) | st.sampled_from('${}"\\ a')),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
)
def test_text_in_quotes_is_what_the_variable_holds(before: str, value: str) -> None:
    yaml = YAML(typ="safe", pure=True)
    escaped = before.replace("$", "$$")
    root = yaml.compose(json.dumps({"a": f"{escaped}${{NAME}}"}, ensure_ascii=False))
    fill_in(root, yaml.resolver, {"NAME": value})
    assert yaml.constructor.construct_document(root) == {"a": before + value}


def refused(declared: object) -> str:
    raise noted()


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    password_file: str | None = Field(None, repr=False)
    limit: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    timeout_ms: int = Field(0, alias="timeout")
    inner: Inner | None = None
    checked: Annotated[str, BeforeValidator(refused)] = ""


def faults_of(declared: dict[str, Any], place: str = "") -> Faults:
    faults = Faults(Code.CONFIG_INVALID)
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(declared)
    faults.add_invalid(caught.value, Outer, place)
    return faults


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"timeuot": 1}, "unknown key 'timeuot' (did you mean 'timeout'?)"),
        ({"timeout_ms": 1}, "unknown key 'timeout_ms' (did you mean 'timeout'?)"),
        ({"timeout": "1"}, "timeout is '1': input should be a valid integer"),
        ({"inner": {"limt": 1}}, "unknown key 'inner.limt' (did you mean 'limit'?)"),
        ({"inner": {"limit": None, "x": 1}}, "inner.limit is None: input should be a valid integer; "
         "unknown key 'inner.x'"),
        ({"inner": {"password_file": ["hunter2"]}}, "inner.password_file: input should be a valid string"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_key_as_it_is_declared(declared: dict[str, Any], found: str) -> None:
    assert faults_of(declared).error(where="file").found == found


def test_a_place_goes_in_front_of_each_key() -> None:
    assert faults_of({"inner": 5}, "a.").error(where="file").found.startswith("a.inner is 5: ")


def test_what_a_validator_has_added_itself_is_not_added_again() -> None:
    assert not faults_of({"checked": "x"})


def test_sections_are_found_by_their_keys() -> None:
    assert list(fields_by_key(Outer)) == ["timeout", "inner", "checked"]
    assert section_in(Outer, ["inner"]) is section_in(Outer, ["inner", "limit"]) is Inner

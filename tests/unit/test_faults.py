"""Mistakes that pydantic finds in a declaration, as texts: each with its key, and none with a secret."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from schemas.errors import Code
from schemas.faults import Faults, fields_by_key, noted, section_in


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

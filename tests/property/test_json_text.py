"""Values of a JSON text, against the standard library's plain reading of it."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.codec.json.text import may_exceed_limits, read_value
from schemas.json.tokens import MAX_DEPTH, MAX_NAME, MAX_NUMBER, JsonError, Kind, Token, quoted

NUMBERS = ["0", "-0", "-0.0", "17", "1.50", "-3e+7", "1E400", "0.1e-3", "123456789012345678901234567890"]
STRANGE = [
    "NaN",
    "Infinity",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "-",
    "0x1",
    "tru",
    "nul",
    "'a'",
    "\ufeff1",
    "\x0b1",
]
TEXTS = st.text(max_size=4) | st.sampled_from(["a", "", '"', "\\", "\u0000", "\U0001f600", "\x7f"])
LEAVES = st.one_of(
    st.sampled_from([*NUMBERS, "true", "false", "null", r'"\ud800"', r'"\u00e9\/\b"', r'"\ud83d\ude00"']),
    TEXTS.map(json.dumps),
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
)
SPACE = st.sampled_from(["", "", "", " ", "\n\t", "\r"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    fields = draw(st.lists(st.tuples(TEXTS.map(json.dumps), SPACE, inner, SPACE), max_size=4))
    return "{" + ",".join(f"{a}{name}{a}:{b}{value}{b}" for name, a, value, b in fields) + "}"


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")


DOCUMENTS = st.recursive(LEAVES, lambda inner: objects(inner) | lists(inner), max_leaves=12)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Documents, many of them spoilt in one place."""
    text = draw(SPACE) + draw(DOCUMENTS) + draw(SPACE)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        to = min(len(text), at + draw(st.integers(0, 2)))
        text = text[:at] + draw(st.sampled_from([*STRANGE, *'{}[],:"0.e-\\\x01', ""])) + text[to:]
    return text


def shown(token: Token) -> Any:
    """All that a reader may ask a value for."""
    inside = None if token.fields is None else [(name, shown(each)) for name, each in token.fields]
    return token.kind, token.text, inside


def read(text: str) -> Any:
    try:
        return shown(read_value(text))
    except JsonError:
        return None


class Digits(str):
    """The characters of a number."""


class Pairs(list[tuple[str, Any]]):
    """The fields of an object."""


def refuse(_: str) -> NoReturn:
    raise ValueError


def expected(text: str) -> Any:
    """None for invalid JSON."""
    try:
        value = json.loads(
            text, object_pairs_hook=Pairs, parse_int=Digits, parse_float=Digits, parse_constant=refuse
        )
    except ValueError:
        return None
    return shown_as(value)


def shown_as(value: Any) -> Any:
    match value:
        case Digits():
            kind = Kind.INTEGER if value.lstrip("-").isdigit() else Kind.FRACTION
            return kind, str(value), None
        case str():
            return Kind.TEXT, value, None
        case Pairs():
            inside = [(name, shown_as(each)) for name, each in value]
            fields = (f"{quoted(name)}:{within(each)}" for name, each in inside)
            return Kind.NESTED, "{" + ",".join(fields) + "}", inside
        case list():
            return Kind.NESTED, "[" + ",".join(within(shown_as(each)) for each in value) + "]", None
        case None:
            return Kind.NULL, "null", None
    return Kind.BOOLEAN, json.dumps(value), None


def within(found: Any) -> str:
    kind, text, _ = found
    return quoted(text) if kind is Kind.TEXT else text


@given(texts())
@example('{"a":1,"a":"x","":[{"b":-0},1.0]}')
@example('"\\ud83d"')
def test_a_text_is_read_as_the_standard_library_reads_it(text: str) -> None:
    assert read(text) == expected(text)


@given(DOCUMENTS)
def test_what_is_right_is_read(text: str) -> None:
    assert read(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        *STRANGE,
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        '{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH,
        "1" * (MAX_NUMBER + 1),
        "[0." + "1" * MAX_NUMBER + "]",
        '{"' + "n" * (MAX_NAME + 1) + '":1}',
        "",
        "{} {}",
    ],
    ids=lambda text: text[:12],
)
def test_what_is_not_or_beyond_the_limits_is_not(text: str) -> None:
    assert read(text) is None


MANY = MAX_NUMBER // 4 - 2
PIECES = st.one_of(
    st.integers(MANY - 3, MANY + 3).map("7".__mul__),
    st.integers(MAX_DEPTH // 3 - 1, MAX_DEPTH // 3 + 1).map(lambda count: count * "[}{"[: 1 + count % 3]),
    st.integers(0, 900).map(" ".__mul__),
    st.integers(0, 900).map("é".__mul__),
    st.sampled_from(["", "1", '"', ".", "12", "x" * MAX_NAME]),
)
LONG_TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(st.lists(LONG_TEXTS, max_size=6), st.integers(0, 6))
@example(["7" * MANY, "7" * MANY + " " * MAX_DEPTH, "7" * (MANY - 1) + " " * MAX_DEPTH, "7" * MANY], 1)
def test_texts_that_may_exceed_a_limit(found: list[str], start: int) -> None:
    def may_exceed(text: str) -> bool:
        data = text.encode()
        is_deep = data.count(b"{") + data.count(b"[") >= MAX_DEPTH
        return len(data) > MAX_NAME or is_deep or re.search(rb"[0-9]{%d}" % MANY, data) is not None

    flags = may_exceed_limits(pa.array(found, pa.string()).slice(start)).tolist()
    assert flags == [len(each.encode()) >= MAX_DEPTH and may_exceed(each) for each in found[start:]]

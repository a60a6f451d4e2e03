"""What is refused in whole batches of JSON texts, against a slow look at each text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from schemas.formats.by_columns.limits import check_limits
from schemas.formats.events.frames import FRAMED

from schemas.json.parsing.tokens import MAX_DEPTH, MAX_NAME, MAX_NUMBER
from schemas.records import OddRecordError

MANY = MAX_NUMBER // 4
PIECES = st.sampled_from(
    [b"NaN", b"Inf", b"N", b"I", b"{", b"[", b":", b",", b"-", b" ", b'"', b"a", b"\xff", b"7"]
)
TEXTS = st.one_of(
    st.lists(PIECES, min_size=1, max_size=12).map(b"".join),
    st.tuples(
        st.integers(0, 300), st.sampled_from([b"7", b"7777,", b"[", b"{}", b"x"]), st.integers(1, 1_200)
    ).map(lambda drawn: b"{" + b" " * drawn[0] + drawn[1] * drawn[2]),
)


def must_be_refused(text: bytes) -> bool:
    """By the reader of one record, if it is what it seems to be."""
    return bool(
        re.search(rb"[\[:,\s-](NaN|Inf)", text)
        or (len(text) >= MAX_NUMBER and re.search(rb"[0-9]{%d}" % MANY, text))
        or text.count(b"{") + text.count(b"[") >= MAX_DEPTH
    )


def may_be_refused(text: bytes) -> bool:
    is_deep_in_a_frame = text.count(b"{") + text.count(b"[") >= MAX_DEPTH - 1
    return must_be_refused(text) or is_deep_in_a_frame or bool(re.search(rb"[0-9]{100}", text))


def is_refused(texts: Sequence[bytes]) -> bool:
    padded = pa.array([b"before", *texts, b"behind"], pa.binary())
    try:
        check_limits(padded.slice(1, len(texts)))
    except OddRecordError:
        return True
    return False


@given(st.lists(TEXTS, min_size=1, max_size=5))
@example([b"{" + b"7" * MANY + b" " * MAX_NUMBER])
@example([b'{"a":"' + b"1234," * 500 + b'"}'])
@example([b'{"a":' * MAX_DEPTH])
@example([b'{"a":' * (MAX_DEPTH - 2), b'{"a":1}'])
@example([b'{"a":1}', b"NaN"])
def test_a_batch_is_refused_for_what_is_in_one_of_its_texts(texts: list[bytes]) -> None:
    # A text that begins with such a word is no object, and what stands before it belongs to another text.
    texts = [text if text[:1] == b"{" else b"{" + text for text in texts]
    if any(map(must_be_refused, texts)):
        assert is_refused(texts)
    if not any(map(may_be_refused, texts)):
        assert not is_refused(texts)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        FRAMED.encode() + b"1}",
        b'{"%s":1}' % (b"x" * (MAX_NAME + 1)),
        b'{"a":"%s", "%s" :1}' % (rb"\"" * MAX_NAME, b"x" * (MAX_NAME + 1)),
    ],
)
def test_no_object_and_a_name_that_is_too_long_are_refused(text: bytes) -> None:
    assert is_refused([text])
    assert is_refused([b"{}", text])


@pytest.mark.parametrize("content", [b"x", rb"\"", rb"\"\u0041:"])
def test_a_long_text_is_no_long_name(content: bytes) -> None:
    assert not is_refused([b'{"a":"%s","b":1}' % (content * MAX_NAME)])


def test_nothing_is_in_order() -> None:
    assert not is_refused([])

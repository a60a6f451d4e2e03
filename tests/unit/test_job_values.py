"""Durations and names of topics, as jobs and configurations have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.settings.limits import duration_text, parse_duration
from schemas.topics import is_topic_name


@pytest.mark.parametrize(
    ("text", "ms"), [("200ms", 200), ("1s", 1_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)]
)
def test_a_duration_has_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        1,
        1.5,
        None,
        True,
        "s",
        "1 s",
        "1.5s",
        "-1s",
        "1S",
        "1d",
        "\u0661s",
        "1s\n",
        "9" * 5_000 + "s",
    ],
)
def test_another_form_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="with a unit") as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 200


@given(st.integers(0, 10**11))
def test_the_text_of_a_duration_is_read_back(ms: int) -> None:
    assert parse_duration(duration_text(ms)) == ms


def test_topic_names_are_kafkas() -> None:
    assert all(is_topic_name(name) for name in ("a", "A.b_c-1", "a" * 249, "...", ".a", "_"))
    assert not any(
        is_topic_name(name) for name in ("", ".", "..", "a" * 250, "a/b", "a\n", "\u00e9", None, 1)
    )

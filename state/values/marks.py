"""What was seen of an upstream whose records may be sent again (`state.values.seen`), by partition, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from state.values.seen import Seen

Marks = Mapping[int, Seen]
"""By upstream partition; one of which nothing was seen is missing."""


def marks_to_dict(marks: Marks) -> dict[str, Any]:
    """As JSON values."""
    return {str(number): seen.to_list() for number, seen in marks.items()}


def marks_from_dict(raw: Mapping[str, Any]) -> dict[int, Seen]:
    """From what `marks_to_dict` gave."""
    return {int(number): Seen.from_list(each) for number, each in raw.items()}

"""Log events as lines for a person: the time, the event in words, its fields; long texts below, wrapped."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping

from rich.text import Text

_INDENT = " " * 10
_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red", "debug": "dim"}
_TEXTS = {"reason": "", "found": "found ", "expected": "expected ", "next_step": "next: "}
"""Fields that are sentences, in this order, and the word before each."""
_BY_ITSELF = ("event", "level", "timestamp", *_TEXTS)


def event_text(event: Mapping[str, object], width: int) -> Text:
    """An event of structlog in as many lines of `width` columns as it needs."""
    shown = {name: value for name, value in event.items() if name not in _BY_ITSELF and value is not None}
    words = str(event["event"]).replace("_", " ")
    if "is_now" in shown:  # a condition is its name
        words = f"{words}: {shown.pop('is_now')}"
    if "code" in shown:
        words = f"{words} {shown.pop('code')}"
    fields = " ".join(f"{name}={value}" for name, value in shown.items())
    lines = _wrapped(f"{words}  {fields}".rstrip(), width)
    for name, word in _TEXTS.items():
        if event.get(name):
            lines += _wrapped(f"{word}{event[name]}", width)
    now = time.strftime("%H:%M:%S")
    style = _STYLES.get(str(event.get("level")), "")
    return Text.assemble((f"{now}  ", "dim"), ("\n".join(lines).removeprefix(_INDENT), style))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width - 1, 40), initial_indent=_INDENT, subsequent_indent=_INDENT, drop_whitespace=True
    )

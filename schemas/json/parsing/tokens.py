"""Values of a JSON text, without a loss: no number becomes a float on the way."""

from __future__ import annotations

import re
from enum import Enum, auto

from schemas.errors import Code

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
MAX_DEPTH, MAX_NAME, MAX_NUMBER = 999, 50_000, 1_000
"""Limits of Spark's reader, so that both refuse the same records: nested objects and lists, characters of each."""


class JsonError(ValueError):
    """Invalid bytes, with the reason. The message holds none of them; the caller knows their location."""

    def __init__(self, reason: str, code: Code = Code.JSON_MALFORMED, column: str | None = None) -> None:
        self.code, self.column = code, column
        super().__init__(reason)


class Kind(Enum):
    """The kind of a JSON value."""

    TEXT = auto()
    INTEGER = auto()
    FRACTION = auto()
    """A number with a fraction or an exponent."""
    BOOLEAN = auto()
    NULL = auto()
    NESTED = auto()
    """An object or a list."""


class Token:
    """A value. `text` is the text that a string stands for, and of everything else the JSON text without spaces.

    A number, also one within an object or a list, has the characters that it was written with.

    An object or list that was read with what is in it writes its text when it is asked for; an object has its `fields`.
    """

    __slots__ = ("_items", "_text", "fields", "kind")

    def __init__(
        self,
        kind: Kind,
        text: str | None,
        fields: Fields | None = None,
        items: list[Token] | None = None,
    ) -> None:
        self.kind, self.fields, self._text, self._items = kind, fields, text, items

    @property
    def text(self) -> str:
        """See the class."""
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if self.fields is not None:
            return "{" + ",".join(f"{quoted(name)}:{_inside(each)}" for name, each in self.fields) + "}"
        return "[" + ",".join(map(_inside, self._items or ())) + "]"


Fields = list[tuple[str, Token]]
"""The fields of an object, in their order; a name may come twice."""


def _inside(token: Token) -> str:
    return quoted(token.text) if token.kind is Kind.TEXT else token.text


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')


def quoted(text: str) -> str:
    """Quotes as Spark writes a string inside of an object: characters that do not fit 16 bits are escaped."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    if (short := _SHORT.get(found[0])) is not None:
        return short
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))

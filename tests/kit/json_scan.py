"""A JSON object as a list of its fields: what RFC 8259 allows and nothing else, in the limits of Spark's reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from schemas.json.tokens import (
    MAX_DEPTH,
    MAX_NAME,
    MAX_NUMBER,
    Fields,
    JsonError,
    Kind,
    Token,
    quoted,
)

_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_TOKEN = re.compile(rf"[ \t\n\r]*+(?:({_STRING})|({_NUMBER})|(true|false)|(null)|([\[\]{{}},:]))")
_SPACE = re.compile(r"[ \t\n\r]*+")
_CLOSING = {"{": "}", "[": "]"}


def scanned_object(text: str) -> Fields:
    """The fields of the object that a text is. Raises: JsonError."""
    scan = _Scan(text)
    fields = list(scan.fields())
    scan.end()
    return fields


def scanned(text: str) -> Token:
    """The value that a text is. Raises: JsonError."""
    scan = _Scan(text)
    token = scan.value()
    scan.end()
    return token


def fields_in(token: Token) -> Fields:
    """The fields of an object that was read. Raises: JsonError for any other value, a text that holds one, too."""
    if token.fields is not None:
        return token.fields
    if token.kind is not Kind.NESTED:
        raise JsonError("no object where one has to be")
    return list(_Scan(token.text).fields())


class _Scan:
    """Goes over a text once, from token to token."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def end(self) -> None:
        """JsonError if anything follows."""
        if not _SPACE.fullmatch(self._text, self._at):
            raise JsonError("something behind the end")

    def fields(self) -> Iterator[tuple[str, Token]]:
        """The fields of the object that the text is."""
        self._expect("{")
        group, raw = self._next()
        while raw != "}":
            yield self._name(group, raw), self._after_colon()
            raw = self._separator("}")
            if raw == ",":
                group, raw = self._next()
                if raw == "}":
                    raise JsonError("a comma before a bracket")

    def value(self) -> Token:
        """The next value."""
        group, raw = self._next()
        return self._nested(raw) if raw in _CLOSING else self._plain(group, raw)

    def _after_colon(self) -> Token:
        self._expect(":")
        return self.value()

    def _plain(self, group: int, raw: str) -> Token:
        match group:
            case 1:
                return Token(Kind.TEXT, _text(raw))
            case 2 if raw.lstrip("-").isdigit():
                return Token(Kind.INTEGER, raw)
            case 2:
                return Token(Kind.FRACTION, raw)
            case 3:
                return Token(Kind.BOOLEAN, raw)
            case 4:
                return Token(Kind.NULL, raw)
            case _:
                raise JsonError("a value that is missing")

    def _nested(self, opening: str) -> Token:
        """An object or a list, without recursion: how deep it is is up to the record."""
        parts, open_ = [opening], [opening]
        group, raw = self._next()
        while True:
            if raw == _CLOSING[open_[-1]] and parts[-1] != ",":
                parts.append(raw)
                open_.pop()
                if not open_:
                    return Token(Kind.NESTED, "".join(parts))
                raw = self._separator(_CLOSING[open_[-1]])
                if raw == ",":
                    parts.append(raw)
                    group, raw = self._next()
                continue
            if open_[-1] == "{":
                parts += (quoted(self._name(group, raw)), ":")
                self._expect(":")
                group, raw = self._next()
            if raw in _CLOSING:
                open_.append(raw)
                parts.append(raw)
                if len(open_) >= MAX_DEPTH:
                    raise JsonError(f"more than {MAX_DEPTH} objects and lists in each other")
                group, raw = self._next()
                continue
            token = self._plain(group, raw)
            parts.append(quoted(token.text) if token.kind is Kind.TEXT else token.text)
            raw = self._separator(_CLOSING[open_[-1]])
            if raw == ",":
                parts.append(raw)
                group, raw = self._next()

    def _name(self, group: int, raw: str) -> str:
        if group != 1:
            raise JsonError("a name that is missing")
        name = _text(raw)
        if len(name) > MAX_NAME:
            raise JsonError(f"a name of more than {MAX_NAME} characters")
        return name

    def _separator(self, closing: str) -> str:
        _, raw = self._next()
        if raw not in (",", closing):
            raise JsonError("a comma or a bracket that is missing")
        return raw

    def _expect(self, mark: str) -> None:
        if self._next()[1] != mark:
            raise JsonError(f"no {mark} where one has to be")

    def _next(self) -> tuple[int, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastindex is None:
            raise JsonError("text that ends too early or is no JSON")
        self._at = found.end()
        raw = found[found.lastindex]
        if found.lastindex == 2 and len(raw) > MAX_NUMBER:
            raise JsonError(f"a number of more than {MAX_NUMBER} characters")
        return found.lastindex, raw


def _text(raw: str) -> str:
    text: str = json.loads(raw) if "\\" in raw else raw[1:-1]
    return text

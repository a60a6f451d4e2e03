"""Why a text is no filter, said at its token: not allowed on purpose, or simply mistyped.

EXPRESSION_NOT_ALLOWED is for SQL that exists elsewhere and is left out here: functions (which may read the
clock, a die or the class path), subqueries, arithmetic, casts, comparisons of two columns, comments, a second
statement. EXPRESSION_INVALID is for everything else. Both name the place as `filter:` and a character,
counted from 1.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import cast

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from schemas.errors import Code, ConfigError
from schemas.table import TableSchema

_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[\w.]+")
_CALL = re.compile(r"[A-Za-z_]\w*(?=\s*\()")
_SUBQUERY = re.compile(r"[(\s]*select\b", re.IGNORECASE)
_ALPHABET = re.compile(r"[A-Za-z0-9_\s'(),=<>!]", re.ASCII)
_MAX_SHOWN_CHARS = 40

_SQL_WORD = re.compile(
    "all|any|as|case|cast|collate|cross|current_[a-z]+|delete|distinct|div|drop|else|end|escape|except|exists|"
    "from|group|having|ilike|insert|intersect|interval|join|lateral|limit|merge|minus|order|over|regexp|rlike|"
    "select|similar|some|table|then|union|update|values|when|window|with|xor",
    re.IGNORECASE,
)
_OWN_WORD = re.compile("and|or|not|in|between|like|is|null|true|false|date|timestamp", re.IGNORECASE)

_SIGNS = {
    "--": "a comment",
    "/*": "a comment",
    ";": "a second statement",
    "`": "a quoted name (columns are written bare)",
    '"': "a double quote (text goes in single quotes)",
    "||": "an operator on values",
} | dict.fromkeys("+-*/%|&^~", "an operator on values")

_TERMINALS = {
    "NAME": "a column",
    "OPERATOR": "= <> < <= > >=",
    "NUMBER": "a number",
    "STRING": "'text'",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "$END": "the end",
}

Problem = UnexpectedToken | UnexpectedCharacters
"""How the parser gives up: at a token out of place, or at text that is no token there."""

_GRAMMAR = "column op literal, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE, IS [NOT] NULL, AND, OR, NOT, parentheses"


def not_allowed(position: int, what: str) -> ConfigError:
    """The refusal of a construct; `position` counts characters from 0."""
    return ConfigError(Code.EXPRESSION_NOT_ALLOWED, where=f"filter:{position + 1}", found=what)


def invalid(position: int, found: str, expected: str) -> ConfigError:
    """The refusal of a slip; `position` counts characters from 0."""
    return ConfigError(
        Code.EXPRESSION_INVALID, where=f"filter:{position + 1}", found=found, expected=expected
    )


def shown(text: str) -> str:
    """A piece of the filter fit for one line: ASCII, escaped, short."""
    return ascii(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}...")


def refusal(text: str, problem: Problem, table: TableSchema) -> ConfigError:
    """Say what stands at the place where the parser gave up."""
    expected = _expected(problem)
    if isinstance(problem, UnexpectedToken) and problem.token.type == "$END":
        return invalid(len(text), "the end of the text", _listed(expected))
    position = cast("int", problem.pos_in_stream)  # lark annotates its class default only, None
    construct = _sign(text, position) or _call(text, position) or _name(text, position, expected, table)
    if construct:
        return not_allowed(*construct)
    if text[position] == "'" and "STRING" in expected:
        return invalid(position, "text that never ends", "a closing quote")
    return invalid(position, shown(_word(text, position)), _listed(expected))


def _expected(problem: Problem) -> Collection[str]:
    match problem:
        case UnexpectedToken():
            return problem.accepts
        case UnexpectedCharacters():
            return problem.allowed


def _listed(terminals: Iterable[str]) -> str:
    return " or ".join(sorted(_TERMINALS.get(terminal, terminal.lstrip("_")) for terminal in terminals))


def _word(text: str, position: int) -> str:
    word = _WORD.match(text, position)
    return word[0] if word else text[position]


_Construct = tuple[int, str] | None
"""Where a known construct begins, and what it is."""


def _sign(text: str, position: int) -> _Construct:
    for sign, what in _SIGNS.items():
        if text.startswith(sign, position):
            return position, what
    if _ALPHABET.match(text, position):
        return None
    return position, f"the character {shown(text[position])}"


def _call(text: str, position: int) -> _Construct:
    if _SUBQUERY.match(text, position):
        return position, "a subquery"
    opens = text[position] == "("
    called = _name_before(text, position) if opens else _CALL.match(text, position)
    if called and not _OWN_WORD.fullmatch(called[0]):
        return called.start(), f"a call of {shown(called[0])}"
    return (position, "an expression in place of a literal") if opens else None


def _name_before(text: str, position: int) -> re.Match[str] | None:
    """The name that ends right before `position`, spaces aside."""
    last = None
    for last in _NAME.finditer(text, 0, position):  # noqa: B007  the last one is wanted; a pattern with $ is quadratic
        pass
    return last if last and not text[last.end() : position].strip() else None


def _name(text: str, position: int, expected: Collection[str], table: TableSchema) -> _Construct:
    name = _NAME.match(text, position)
    for word in (name, _name_before(text, position)):
        if word and _SQL_WORD.fullmatch(word[0]) and word[0] not in table.by_name:
            return word.start(), f"the word {shown(word[0])}"
    if not name or "NUMBER" not in expected:
        return None
    if name[0].upper() == "NULL":
        return position, "NULL as a literal (no comparison with it is ever true: use IS NULL)"
    kind = "the column" if name[0] in table.by_name else "the name"
    return position, f"{kind} {shown(name[0])} in place of a literal"

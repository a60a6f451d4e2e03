"""Parser of filters. The text comes from people and from the control topic: it is never trusted.

Limits hold before anything is built: 8 KiB of text (in canonical form too), parentheses and NOTs at most 64
deep, at most 1,000 nodes, literals included. The parser is LALR(1), so it neither recurses nor backtracks,
and what follows may recurse freely within the limits.

Refusals name `filter:` and a character, counted from 1. EXPRESSION_NOT_ALLOWED is for SQL that exists elsewhere and is
left out here: functions (which may read the clock, a die or the class path), subqueries, arithmetic, casts, comparisons
of two columns, comments, a second statement. EXPRESSION_INVALID is for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from importlib.resources import files
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from schemas.errors import Code, ConfigError
from schemas.filter.ast import (
    And,
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    check_belongs,
    check_pattern,
    date_from_text,
    number_from_text,
    string_from_text,
    timestamp_from_text,
)
from schemas.table import Column, TableSchema, nearest
from schemas.types import TypeName

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
"""The parser's failures: an unexpected token, or text that is no token there."""

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
    """The error for the text where the parser gave up."""
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
"""The start of a known construct, and its name for people."""


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


MAX_TEXT_BYTES = 8 * 1024
MAX_DEPTH = 64
MAX_NODES = 1_000

_Tree = Tree[Token]

_PARSER = Lark(
    (files("schemas.filter") / "grammar.lark").read_text("utf-8"), parser="lalr", maybe_placeholders=True
)


def parse_filter(text: str, table: TableSchema) -> Filter:
    """Read a filter over the columns of `table`, named exactly as declared.

    Raises: ConfigError, its location `filter:` and a character counted from 1. EXPRESSION_NOT_ALLOWED for SQL
    that is left out on purpose, EXPRESSION_INVALID for mistyped text, an unknown column, a literal that
    doesn't fit its column, or a filter beyond the limits. Only the first fault is reported.
    """
    _check_size(text)
    try:
        tree = _PARSER.parse(text)
    except (UnexpectedToken, UnexpectedCharacters) as problem:
        raise refusal(text, problem, table) from None
    _check_shape(tree)
    condition = _Builder(table).build(tree)
    _check_size(str(condition))
    return condition


def _check_size(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise invalid(error.start, "half of a surrogate pair", "text that has a UTF-8 form") from None
    if size > MAX_TEXT_BYTES:
        raise invalid(0, f"a filter of {size} bytes", f"at most {MAX_TEXT_BYTES} bytes")


def _check_shape(tree: _Tree) -> None:
    nodes, open_trees = 0, [(tree, 1)]
    while open_trees:
        node, depth = open_trees.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise invalid(0, "a filter that nests too deep", f"at most {MAX_DEPTH} levels")
        open_trees += [(child, depth + 1) for child in node.children if isinstance(child, Tree)]
    if nodes > MAX_NODES:
        raise invalid(0, f"a filter of {nodes} parts", f"at most {MAX_NODES} predicates and literals")


class _Builder:
    """Turns the parser's tree into a filter, checking names and literals against the table."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table

    def build(self, tree: _Tree) -> Filter:
        match tree.data, tree.children:
            case "disjunction", terms:
                return Or(tuple(self.build(term) for term in terms if isinstance(term, Tree)))
            case "conjunction", terms:
                return And(tuple(self.build(term) for term in terms if isinstance(term, Tree)))
            case "negation", [Token(), Tree() as term]:
                return Not(self.build(term))
            case "group", [Tree() as term]:
                return self.build(term)
            case "is_null", [Token() as name, negation]:
                return _negated(negation, IsNull(self._column(name).name))
            case "like", [Token() as name, negation, Token() as pattern]:
                return _negated(negation, self._like(name, pattern))
            case _, [Token() as name, *rest]:
                return self._with_literals(tree.data, self._column(name), rest)
        raise AssertionError(f"the grammar has a rule {tree.data} that nothing reads")

    def _with_literals(self, rule: str, column: Column, rest: list[Token | _Tree]) -> Filter:
        literals = tuple(_literal(part, column) for part in rest if isinstance(part, Tree))
        match rule, rest, literals:
            case "comparison", [Token() as operator, _], (literal,):
                return Comparison(column.name, Operator(operator.replace("!=", "<>")), literal)
            case "between", [negation, *_], (low, high):
                return _negated(negation, Between(column.name, low, high))
            case "in_list", [negation, *_], _:
                return _negated(negation, InList(column.name, literals))
        raise AssertionError(f"the grammar has a rule {rule} that nothing reads")

    def _like(self, name: Token, quoted: Token) -> Like:
        column, pattern = self._column(name), string_from_text(quoted)
        if column.type.name is not TypeName.STRING:
            raise _at(name, f"LIKE on column {column.name} of type {column.type}", "a string column")
        try:
            check_pattern(pattern)
        except ValueError as reason:
            raise _at(quoted, shown(str(quoted)), str(reason)) from None
        return Like(column.name, pattern)

    def _column(self, name: Token) -> Column:
        column = self._table.by_name.get(name)
        if column is None:
            names = self._table.column_names
            same = [known for known in names if known.lower() == name.lower()]
            found = f"no column {shown(str(name))}{nearest(same[0] if same else name, names)}"
            raise _at(name, found, f"a column of {self._table.name}, as declared")
        return column


def _negated(negation: Token | _Tree | None, condition: Filter) -> Filter:
    return condition if negation is None else Not(condition)


def _literal(tree: _Tree, column: Column) -> Literal:
    tokens = [child for child in tree.children if isinstance(child, Token)]
    try:
        literal = _value(tokens)
        check_belongs(literal, column.type)
    except ValueError as reason:
        found = f"{shown(' '.join(tokens))} for column {column.name}"
        raise _at(tokens[0], found, str(reason)) from None
    return literal


def _value(tokens: list[Token]) -> Literal:
    text = str(tokens[-1])
    match tokens[0].type:
        case "NUMBER":
            return number_from_text(text)
        case "STRING":
            return string_from_text(text)
        case "DATE":
            return date_from_text(string_from_text(text))
        case "TIMESTAMP":
            return timestamp_from_text(string_from_text(text))
        case boolean:
            return boolean == "TRUE"


def _at(token: Token, found: str, expected: str) -> ConfigError:
    return invalid(token.start_pos or 0, found, expected)

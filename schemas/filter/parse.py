"""From text to a filter. The text comes from people and from the control topic: it is never trusted.

Limits hold before anything is built: 8 KiB of text (in canonical form too), parentheses and NOTs at most 64
deep, at most 1,000 nodes, literals included. The parser is LALR(1), so it neither recurses nor backtracks,
and what follows may recurse freely within the limits.
"""

from __future__ import annotations

from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from schemas.errors import ConfigError
from schemas.filter.ast import And, Between, Comparison, Filter, InList, IsNull, Like, Not, Operator, Or
from schemas.filter.literals import (
    Literal,
    check_belongs,
    check_pattern,
    date_from_text,
    number_from_text,
    string_from_text,
    timestamp_from_text,
)
from schemas.filter.refusal import invalid, refusal, shown
from schemas.table import Column, TableSchema, nearest
from schemas.types import TypeName

MAX_TEXT_BYTES = 8 * 1024
MAX_DEPTH = 64
MAX_NODES = 1_000

_Tree = Tree[Token]

_PARSER = Lark(
    (files("schemas.filter") / "grammar.lark").read_text("utf-8"), parser="lalr", maybe_placeholders=True
)


def parse_filter(text: str, table: TableSchema) -> Filter:
    """Read a filter over the columns of `table`, named exactly as declared.

    Raises: ConfigError, its place `filter:` and a character counted from 1. EXPRESSION_NOT_ALLOWED for SQL
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

"""Words of product and tests: a class has a name of its own, a docstring begins with a noun or a verb."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.test_sizes import sources

ROOMS = ("schemas", "state", "streaming")
_FIRST = re.compile(r"(?:What|Whether|As|How|Those|Where|If|That|Same|The same)\b")
"""First words that make a reader look elsewhere for the noun."""
_FORMER = re.compile(r"\b(?:unfit|misfit|at fault|comes? again|twins?|steer(?:s|ing)?)\b", re.IGNORECASE)
"""Words that the field has better ones for: incompatible, invalid, redelivered, fallback, reference, control."""
_WITH_TEXT = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings() -> Iterator[tuple[Path, str]]:
    for path in sources(*ROOMS, "tests"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, _WITH_TEXT) and (text := ast.get_docstring(node)) is not None:
                yield path, text


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in sources(*ROOMS):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.as_posix())
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_a_docstring_begins_with_the_noun_or_the_verb() -> None:
    assert [(path.name, text[:60]) for path, text in docstrings() if _FIRST.match(text)] == []


def test_docstrings_have_the_words_of_the_field() -> None:
    found = [(path.name, match[0]) for path, text in docstrings() for match in _FORMER.finditer(text)]
    assert found == []

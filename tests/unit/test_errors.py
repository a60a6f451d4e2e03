"""Errors are complete where they are made: each gives the values that its code's texts have places for."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

from schemas.error_table import TABLE
from schemas.errors import BackfillError, Code, InputError

ROOT = Path(__file__).parents[2]
KINDS = {kind.__name__ for kind in BackfillError.__subclasses__()}


def made_in(source: str) -> Iterator[tuple[Code, set[str]]]:
    """The errors of a named code, each with the keywords that it is made with."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Attribute(value=ast.Name(id="Code"), attr=code)]):
                if kind in KINDS:
                    yield Code(code), {str(keyword.arg) for keyword in node.keywords}


def test_each_error_has_the_values_that_its_texts_ask_for_and_no_other() -> None:
    sources = [path for name in ("schemas", "state", "streaming") for path in (ROOT / name).rglob("*.py")]
    made = [(path, *error) for path in sources for error in made_in(path.read_text(encoding="utf-8"))]
    assert len(made) > 80
    for path, code, given in made:
        texts = {"expected": TABLE[code].expected, "next_step": TABLE[code].next_step}
        open_texts = "".join(text for name, text in texts.items() if name not in given)
        wanted = {name for _, name, _, _ in Formatter().parse(open_texts) if name}
        assert given - {"found", "where", "expected", "next_step"} == wanted, (path, code)


def test_a_value_that_is_missing_does_not_hide_the_error() -> None:
    assert InputError(Code.DATA_LOST, found="nothing").expected == "every record from … on"


def test_an_error_comes_out_of_another_process_as_it_was() -> None:
    error = InputError(Code.DATA_LOST, found="{gone}", where="orders-1@7", start=7)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (InputError, str(error), vars(error))

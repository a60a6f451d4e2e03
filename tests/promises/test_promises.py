"""Each promise names a test: sentences of the contract, invalid inputs, and where exactly-once is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.errors import BackfillError, Code, ConfigError, InputError
from tests.kit.promises import CONTRACT, PROMISES, ROOT, TEST, promises, sentences

ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SENTENCES = PROMISES / "contract.md"
INPUTS = (PROMISES / "invalid-inputs.md").read_text(encoding="utf-8")
EXACTLY_ONCE = (PROMISES / "exactly-once.md").read_text(encoding="utf-8")
KINDS: list[type[BackfillError]] = [BackfillError, *BackfillError.__subclasses__()]
STATUSES = {0, *(kind.exit_status for kind in KINDS)}


def test_every_sentence_of_the_contract_names_a_test() -> None:
    stated = list(sentences(CONTRACT.read_text(encoding="utf-8")))
    bound = promises(SENTENCES.read_text(encoding="utf-8"))
    assert len(stated) > 200
    for sentence, (begin, _) in zip(stated, bound, strict=False):
        assert sentence.startswith(begin), (
            f"{SENTENCES.name} has {begin!r} where the contract says: {sentence}"
        )
    assert len(stated) == len(bound)


@pytest.mark.parametrize("document", sorted(PROMISES.glob("*.md")), ids=lambda document: document.name)
def test_every_test_that_is_named_is_there(document: Path) -> None:
    named = re.findall(rf"`{TEST}`", document.read_text(encoding="utf-8"))
    assert len(named) > 10
    for file, name in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), (file, name)


def test_pages_for_users_name_no_tests() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if re.search(TEST, page.read_text(encoding="utf-8"))] == []


def test_sentences_are_those_of_paragraphs_items_and_rows() -> None:
    page = (
        "# Title\n\nNot yet.\n\n## One\n\nA [link](https://example.org/x). `b` is\ntwo lines.\n\n```\nno. No.\n```\n\n"
        "**Word.** It holds.\n\n- An item: with more.\n  - Below it.\n\n| Head | |\n| --- | --- |\n| `c` | yes |\n"
    )
    expected = [
        "A link.",
        "`b` is two lines.",
        "Word: It holds.",
        "An item: with more.",
        "Below it.",
        "`c` yes",
    ]
    assert list(sentences(page)) == expected


def test_every_invalid_input_names_a_code_and_a_status_that_are_there_and_a_test() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([0-9]+) \| `([^`]+)`[^|]*\|$", INPUTS, re.MULTILINE)
    assert len(rows) > 60
    sources = "".join(
        path.read_text() for top in ("schemas", "streaming") for path in (ROOT / top).rglob("*.py")
    )
    kinds = {kind.__name__: kind.exit_status for kind in KINDS}
    kinds |= {"_error": InputError.exit_status, "faults.add": ConfigError.exit_status}
    raises = set(re.findall(rf"\b({'|'.join(kinds)})\([^()]*?\bCode\.(\w+)", sources))
    for code, status, test in rows:
        assert re.fullmatch(TEST, test), test
        assert code in ("none", "one of these") or Code(code.strip("`")), code
        assert int(status) in STATUSES, status
        raised = {kinds[kind] for kind, name in raises if name == code.strip("`")}
        assert not raised or int(status) in {0, *raised}, (code, status, raised)


def test_every_code_of_the_upstream_and_the_state_is_an_invalid_input() -> None:
    codes = set(re.findall(r"^\| [^|]+ \| `([A-Z_]+)` \|", INPUTS, re.MULTILINE))
    wanted: set[str] = set()
    for title in ("Barriers upstream", "Changes upstream", "State"):
        section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", ERRORS, re.MULTILINE | re.DOTALL)
        assert section is not None
        wanted |= set(re.findall(r"^\| `([^`]+)` \|", section[1], re.MULTILINE))
    assert wanted - codes == {"OUTCOME_UNKNOWN"}  # no input


def test_every_function_that_makes_exactly_once_is_there() -> None:
    places = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", EXACTLY_ONCE)
    assert len(places) > 10
    for file, functions in places:
        source = (ROOT / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^( *def {name}\(|{name}\b.* = )", source, re.MULTILINE), (file, name)

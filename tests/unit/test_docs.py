"""Codes, keys and commands in the documents are those of the code."""

from __future__ import annotations

import re
import shlex
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from schemas.error_table import TABLE, with_table
from schemas.errors import Code
from schemas.faults import fields_by_key
from schemas.formats.registry import UPSTREAM_FORMATS, format_keys
from schemas.settings.config import ServiceConfig, check
from schemas.settings.config import load as load_config
from schemas.settings.job_keys import KEYS as JOB_KEYS
from schemas.settings.reference import reference, sections
from schemas.table import KEYS as TABLE_KEYS
from schemas.topics import UPSTREAM_KEYS
from streaming.cli.app import load as load_command
from streaming.observe.metrics import Metrics
from streaming.runtime.paths import CONFIG_VARIABLE
from tests.bench.__main__ import Case
from tests.bench.report.goals import GOALS
from tests.bench.report.page import PAGE, with_tables
from tests.bench.report.results import read_results

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
CONTROL = (ROOT / "docs" / "control.md").read_text(encoding="utf-8")
BEGINNINGS = "".join(
    page.read_text(encoding="utf-8")
    for page in [*sorted((ROOT / "docs").glob("tutorial-*.md")), ROOT / "docs" / "deployment.md"]
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md"]
TEXTS = [page.read_text(encoding="utf-8") for page in DOCUMENTS]

PAGE_LINES = 400
PAGES_AT_MOST = 20
WORDS_AT_MOST = 43_500


def first_column(document: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE))


def fenced(language: str, document: str = README) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)
    assert found
    return found


def test_every_code_that_can_occur_is_explained_and_no_other() -> None:
    sources = [path for name in ("schemas", "state", "streaming") for path in (ROOT / name).rglob("*.py")]
    sources.remove(ROOT / "schemas" / "error_table.py")
    used = {code for path in sources for code in re.findall(r"\bCode\.([A-Z_]+)", path.read_text())}
    assert first_column(ERRORS) == used == set(Code) == set(TABLE)


def test_the_page_of_errors_says_what_the_table_of_errors_says() -> None:
    assert with_table(ERRORS) == ERRORS


def test_figures_are_those_of_the_result_files() -> None:
    results = read_results(ROOT / "docs" / "bench")
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert with_tables(page, results) == page
    shown = set(re.findall(r"<!-- bench (\w+)|`(\w+)`|images/bench-(\w+)\.svg", page))
    assert results.keys() <= {name for names in shown for name in names}
    for picture in re.findall(r"!\[[^]]*\]\((\S+)\)", page):
        assert (ROOT / "docs" / picture).is_file(), picture


def test_every_figure_is_of_a_case_that_make_bench_has() -> None:
    cases = {str(case) for case in Case}
    assert read_results(ROOT / "docs" / "bench").keys() <= cases
    assert {goal.case for goal in GOALS} <= cases
    named = [case for page in TEXTS for case in re.findall(r'make bench CASE="?([a-z ]+)', page)]
    assert len(named) > 3
    assert {word for case in named for word in case.split()} <= cases


def test_every_target_of_make_that_is_named_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for page in TEXTS for target in re.findall(r"(?:`|^)make ([a-z-]+)", page, re.MULTILINE)}
    assert {"bench", "figures", "release", "test"} <= named
    assert named <= targets


def test_the_reference_of_the_configuration_is_as_the_models_write_it() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference()
    keys = {f"{section}.{key}" for section, model in sections().items() for key in fields_by_key(model)}
    keys |= {f"jobs[].{key}" for key in JOB_KEYS} | {f"table.{key}" for key in TABLE_KEYS}
    keys |= {f"upstream.{key}" for key in (*UPSTREAM_KEYS, *format_keys(UPSTREAM_FORMATS))}
    keys |= fields_by_key(ServiceConfig).keys() - {*sections(), "table", "jobs"}
    assert first_column(reference()) == keys


def test_the_configurations_shown_are_accepted() -> None:
    shown = [YAML(typ="safe").load(each) for each in (*fenced("yaml"), *fenced("yaml", BEGINNINGS))]
    whole = [each for each in shown if {"state", "table"} <= each.keys()]
    [job] = (YAML(typ="safe").load(each) for each in fenced("yaml"))
    assert len(whole) > 1
    for each in (*whole, {**whole[0], "jobs": [job]}):
        check(each, path=ROOT / "config.yaml")
    alone = load_config(ROOT / "docker" / "config.yaml")
    cluster = load_config(ROOT / "docker" / "cluster-config.yaml")
    assert cluster.model_copy(update={"lanes": alone.lanes, "spark": alone.spark}) == alone


def compose_commands() -> list[str]:
    services = YAML(typ="safe").load(ROOT / "compose.yaml")["services"].values()
    return [each["command"] for each in services if each["image"] == "arrangement-backfill"]


@pytest.mark.parametrize(
    "line",
    [
        *re.findall(
            r"\$ (?:docker compose exec backfill )?backfill ([^|\n]*?)(?= > \S+\n|[|\n])",
            (README + BEGINNINGS).replace("\\\n", " "),
        ),
        *compose_commands(),
    ],
    ids=lambda line: line,
)
def test_every_command_shown_is_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "config.yaml")  # as the image does
    name, *arguments = shlex.split(line)
    load_command(name).make_context(name, arguments)


def test_every_metric_named_is_one() -> None:
    families = list(Metrics().registry.collect())
    kept = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    named = set(re.findall(r"`((?:stream_)?backfill_\w+)`", OPERATIONS + CONTROL)) - {"backfill_"}
    assert len(named) > 6
    assert named <= kept


def test_every_scenario_that_is_named_is_there() -> None:
    named = {name for text in TEXTS for name in re.findall(r"`(scenarios/\w+\.txt)`", text)}
    assert len(named) > 8
    assert not [name for name in named if not (ROOT / "tests" / name).is_file()]


_WORDS = "whoever|whom|mend(?:ed|s|ing)?|told|wish(?:es)?|upkeep|he|his|him"
_PRIVATE = re.compile(rf"(?<![a-z])({_WORDS})(?![a-z])", re.IGNORECASE)
_NOT_PLAIN = re.compile(
    rf"(?<![a-z])({_WORDS}|folding|somebody|anybody|nobody|everybody)(?![a-z])", re.IGNORECASE
)
"""With no letter on either side, so that parts of names in the code count as well."""
_NOT_OF_THE_FIELD = re.compile(
    r"\b(?:at fault|beside|comes? again|misfit|odd|steer(?:ing)?|twins?|unfit)\b", re.I
)
"""Words for which the field has names: invalid, a separate topic, redelivered, incompatible, control, reference."""
_OLD_NAMES = re.compile(r"wish|onlooker|ordeal|upkeep|patience|inbox", re.IGNORECASE)
"""Words for which the glossary has another."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_documents_are_in_plain_words(document: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert _NOT_PLAIN.findall(prose) == []
    if document.name != "configuration.md":  # whose words are those of the models
        assert _NOT_OF_THE_FIELD.findall(prose) == []


def test_pages_are_few_and_short() -> None:
    assert len(PAGES) <= PAGES_AT_MOST
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES) <= WORDS_AT_MOST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_first_paragraph_names_the_readers_of_a_page(page: Path) -> None:
    _, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert page.name in ("README.md", "configuration.md") or first.startswith("For those who"), first


def test_a_page_is_read_in_one_sitting() -> None:
    lines = {
        page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in (ROOT / "docs").glob("*.md")
    }
    assert {name: count for name, count in lines.items() if count > PAGE_LINES} == {}


def test_tests_and_other_files_are_in_plain_words() -> None:
    named = [ROOT / "compose.yaml", ROOT / "Makefile", ROOT / "pyproject.toml"]
    named += [file for file in (ROOT / "docker").rglob("*") if file.is_file()]
    named += [
        file
        for ending in ("js", "css", "html", "xml", "toml")
        for file in (ROOT / "streaming").rglob(f"*.{ending}")
    ]
    texts = {file: file.read_text(encoding="utf-8") for file in named}
    for source in (ROOT / "tests").rglob("*.py"):
        texts[source] = " ".join(prose_of(source.read_text(encoding="utf-8")))
    found = {file.relative_to(ROOT).as_posix(): _PRIVATE.findall(text) for file, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_code_has_the_words_of_the_glossary() -> None:
    sources = {
        source.relative_to(ROOT).as_posix(): source.read_text(encoding="utf-8")
        for room in ("schemas", "state", "streaming")
        for source in (ROOT / room).rglob("*.py")
    }
    assert {name for name, text in sources.items() if _OLD_NAMES.search(text)} == set()
    found = {name: _NOT_PLAIN.findall(" ".join(prose_of(text))) for name, text in sources.items()}
    assert {name: words for name, words in found.items() if words} == {}


def prose_of(source: str) -> Iterator[str]:
    """Comments, docstrings and names of Python code, and not its other strings: messages may quote anything."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(StringIO(source).readline):
        begins = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type in (tokenize.COMMENT, tokenize.NAME) or (token.type == tokenize.STRING and begins):
            yield token.string
        before = token.type

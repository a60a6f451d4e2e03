"""What the documents say about codes, keys and commands is what the code has."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer
from ruamel.yaml import YAML

from schemas.config import SparkConfig, _Raw, check
from schemas.config import load as load_config
from schemas.errors import Code
from schemas.job import _KEYS as JOB_KEYS
from schemas.kafka import KafkaConfig
from schemas.table import _KEYS as TABLE_KEYS
from streaming.upstream.control import decode_wish

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
RECORDS = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")


def first_column(document: str) -> set[str]:
    return set(re.findall(r"^\| `([^`]+)` \|", document, re.MULTILINE))


def fenced(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_every_code_that_can_occur_is_explained_and_no_other() -> None:
    sources = [path for name in ("schemas", "state", "streaming") for path in (ROOT / name).rglob("*.py")]
    used = {code for path in sources for code in re.findall(r"\bCode\.([A-Z_]+)", path.read_text())}
    assert first_column(ERRORS) == used
    assert used <= set(Code)


def test_every_key_of_the_configuration_is_in_the_reference_and_no_other() -> None:
    sections = {"kafka": KafkaConfig.model_fields, "spark": SparkConfig.model_fields, "table": TABLE_KEYS}
    keys = {f"{section}.{key}" for section, names in sections.items() for key in names}
    keys |= {f"jobs[].{key}" for key in JOB_KEYS}
    keys |= _Raw.model_fields.keys() - sections.keys() - {"jobs"}
    assert first_column(README) == keys


def test_the_configurations_shown_are_accepted() -> None:
    check(YAML(typ="safe").load(fenced("yaml")), path=ROOT / "config.yaml")
    load_config(ROOT / "docker" / "config.yaml")


def compose_commands() -> list[str]:
    services = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
    return [service["command"] for service in services.values() if "command" in service]


@pytest.mark.parametrize(
    "line", [*re.findall(r"\$ backfill ([^|\n]*)", README), *compose_commands()], ids=lambda line: line
)
def test_every_command_shown_is_understood(line: str) -> None:
    name, *arguments = shlex.split(line)
    app = typer.Typer()
    app.command(name)(import_module(f"streaming.cli.{name}").command)
    typer.main.get_command(app).make_context(name, arguments)


def test_every_wish_shown_is_one() -> None:
    block = re.search(r"```json\n(.*?)```", RECORDS, re.DOTALL)
    assert block is not None
    wishes = [decode_wish(line.encode()) for line in block[1].splitlines()]
    assert len({type(wish.mutation) for wish in wishes}) == 6


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/bad-input.md",
        "docs/errors.md",
        "docs/how-it-works.md",
        "docs/records.md",
        "docs/security.md",
    ],
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []

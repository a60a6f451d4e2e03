"""Prometheus's own parser and engine, built from its Go module where Go is there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from streaming.runtime.paths import jar_cache

_SOURCES = Path(__file__).with_name("promql")
_BUILD_S = 900


@dataclass(frozen=True)
class Evaluation:
    """Faults of the rules; by query an error or None, and the series that it gave."""

    faults: list[str]
    errors: dict[str, str]
    series: dict[str, list[str]]


@cache
def _program() -> Path | None:
    if shutil.which("go") is None:
        return None
    # Beside the jars: a build takes half a minute of CPU, and Go's own cache does not hold what it links.
    built = jar_cache().parent / "tests" / "promql"
    built.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-buildvcs=false", "-o", str(built), "."]
    try:
        done = subprocess.run(
            command, cwd=_SOURCES, capture_output=True, text=True, timeout=_BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return built if done.returncode == 0 else None


def asked(rules: str, scrapes: Sequence[tuple[int, str]], queries: Sequence[str], at_ms: int) -> Evaluation:
    """Prometheus' answers to rules, and to queries as of `at_ms` over scrapes, each an instant and its text.

    Skips the test where it can't be built.
    """
    program = _program()
    if program is None:
        pytest.skip("Prometheus can't be built here: no Go, or its modules are out of reach")
    request = {
        "rules": rules,
        "scrapes": [{"at_ms": instant, "text": text} for instant, text in scrapes],
        "queries": list(queries),
        "at_ms": at_ms,
    }
    done = subprocess.run(
        [str(program)], input=json.dumps(request), capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    answers: Mapping[str, dict[str, object]] = found["answers"]
    return Evaluation(
        found["faults"],
        {query: str(answer["error"]) for query, answer in answers.items() if answer["error"]},
        {query: list(map(str, answer["series"] or ())) for query, answer in answers.items()},  # type: ignore[call-overload]
    )

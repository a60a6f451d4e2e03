"""Result files: one JSON file a case, small enough to be committed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import strftime
from typing import Any

import psutil

from tests.bench.report.line import Summary


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case, and its day (ISO 8601)."""

    date: str
    lines: Sequence[Summary]


def write_results(folder: Path, case: str, lines: Sequence[Summary]) -> None:
    """`<case>.json` in the folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "case": case,
        "date": strftime("%F"),
        "machine": _machine(),
        "lines": [line.to_dict() for line in lines],
    }
    (folder / f"{case}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read_results(folder: Path) -> dict[str, Result]:
    """Of each case that has a file, in the order of their names."""
    return {file.stem: _result(file) for file in sorted(folder.glob("*.json"))}


def _result(file: Path) -> Result:
    result = json.loads(file.read_text(encoding="utf-8"))
    return Result(result["date"], [_summary(line) for line in result["lines"]])


def _summary(line: dict[str, Any]) -> Summary:
    course = tuple((at, value) for at, value in line["course"])
    return Summary(**{**line, "values": tuple(line["values"]), "course": course})


def _machine() -> dict[str, str | int | float]:
    return {
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
    }

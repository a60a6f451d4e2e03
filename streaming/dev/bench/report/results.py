"""Result files: one JSON file a case, small enough to be committed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from streaming.dev.bench.report.line import Summary


def write_results(folder: Path, case: str, lines: Sequence[Summary]) -> None:
    """`<case>.json` in the folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {"case": case, "machine": _machine(), "lines": [line.to_dict() for line in lines]}
    (folder / f"{case}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read_results(folder: Path, case: str) -> list[Summary]:
    """The lines of a result file."""
    result = json.loads((folder / f"{case}.json").read_text(encoding="utf-8"))
    return [_summary(line) for line in result["lines"]]


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

"""Maintainer's command: check the components of a bill of materials against a folder of advisories.

    python -m tests.release.audit FOLDER < bill.cdx.json

FOLDER holds advisories in the form of OSV, one a file, JSON or YAML, at any depth: a copy of the Python Packaging
Advisory Database, of GitHub's, or the unpacked archives of OSV. Nothing is asked over the network, so the answer is as
new as the folder. The exit status is 1 where an advisory is about a component, and 3 where there was nothing to check
with, which is no good news.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests.release.advisories import Hit, components, hits

FOUND, UNCHECKED = 1, 3
_SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class Advisories:
    """Those below a folder, and how new they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.count, self.newest, self.unreadable = 0, "", 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        yaml = YAML(typ="safe")
        for path in sorted(self._folder.rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                try:
                    text = path.read_text(encoding="utf-8")
                    content = json.loads(text) if path.suffix == ".json" else yaml.load(text)
                except (ValueError, YAMLError):
                    self.unreadable += 1
                    continue
                if isinstance(content, dict) and "id" in content and "affected" in content:
                    self.count += 1
                    self.newest = max(self.newest, str(content.get("modified", ""))[:10])
                    yield content


def main(arguments: list[str]) -> int:
    """Say what is known of the bill on standard input, and return the exit status."""
    listed = components(json.load(sys.stdin))
    if not arguments or not arguments[0]:
        sys.stdout.write(
            "Not checked: no advisories at hand. make audit ADVISORIES=folder, with a copy of the Python Packaging "
            "Advisory Database, GitHub's, or OSV's.\n"
        )
        return UNCHECKED
    advisories = Advisories(Path(arguments[0]))
    found = hits(listed, advisories)
    if not advisories.count:
        sys.stdout.write(f"Not checked: no advisory below {arguments[0]}.\n")
        return UNCHECKED
    for hit in found:
        sys.stdout.write(_line(hit) + "\n")
    unreadable = f"; {advisories.unreadable} files could not be read" if advisories.unreadable else ""
    sys.stdout.write(
        f"{len(listed)} components against {advisories.count:,} advisories, the newest of {advisories.newest}: "
        f"{len(found)} found{unreadable}\n"
    )
    return FOUND if found else 0


def _line(hit: Hit) -> str:
    component = hit.component
    way_out = f"fixed in {', '.join(hit.fixed)}" if hit.fixed else "no version without it is known"
    names = ", ".join((hit.advisory, *hit.aliases))
    return f"{component.name} {component.version}: {names}; {way_out}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

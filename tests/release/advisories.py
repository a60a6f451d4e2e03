"""Which components of a bill of materials a known advisory is about.

Advisories have the form of OSV (https://ossf.github.io/osv-schema/), which the Python Packaging Advisory Database and
GitHub's have too. Pure: reading a folder of them is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tests.release.versions import is_before

_PURL = re.compile(r"pkg:(pypi|maven)/(?:([^/@]+)/)?([^/@]+)@([^?#]+)")
_ECOSYSTEMS = {"pypi": "PyPI", "maven": "Maven"}


@dataclass(frozen=True, slots=True)
class Component:
    """A package of a release: ecosystem and name as advisories write them (of a jar, `group:artifact`), and version."""

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Hit:
    """An advisory that is about a component; `fixed` are the versions that are without the fault, if any is known."""

    component: Component
    advisory: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]


def components(bill: Mapping[str, Any]) -> list[Component]:
    """Of a CycloneDX document, those of PyPI and Maven; others are left out."""
    found = []
    for each in bill["components"]:
        if match := _PURL.fullmatch(each.get("purl", "")):
            kind, group, name, version = match.groups()
            full = f"{group}:{name}" if group else _normal(name)
            found.append(Component(_ECOSYSTEMS[kind], full, unquote(version)))
    return found


def hits(components: Iterable[Component], advisories: Iterable[Mapping[str, Any]]) -> list[Hit]:
    """What is known of the components, by name and advisory. Withdrawn advisories don't count."""
    by_name: dict[tuple[str, str], list[Component]] = {}
    for component in components:
        by_name.setdefault((component.ecosystem, component.name), []).append(component)
    found = {
        (component, advisory["id"]): hit
        for advisory in advisories
        if not advisory.get("withdrawn")
        for affected in advisory.get("affected", ())
        for component in by_name.get(_package(affected), ())
        if (hit := _hit(component, advisory, affected))
    }
    return sorted(found.values(), key=lambda hit: (hit.component.name, hit.advisory))


def _package(affected: Mapping[str, Any]) -> tuple[str, str]:
    package = affected.get("package", {})
    ecosystem, name = package.get("ecosystem", ""), package.get("name", "")
    return ecosystem, _normal(name) if ecosystem == "PyPI" else name


def _normal(name: str) -> str:
    """As PEP 503 has names be compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _hit(component: Component, advisory: Mapping[str, Any], affected: Mapping[str, Any]) -> Hit | None:
    ranges = [each for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
    listed = component.version in affected.get("versions", ())
    if not (listed or any(_within(component, each.get("events", ())) for each in ranges)):
        return None
    fixed = tuple(event["fixed"] for each in ranges for event in each.get("events", ()) if "fixed" in event)
    return Hit(component, str(advisory["id"]), tuple(advisory.get("aliases", ())), fixed)


def _within(component: Component, events: Sequence[Mapping[str, str]]) -> bool:
    """OSV's own rule: the newest event at or below the version decides."""
    inside = False
    for kind, version in _in_order(component.ecosystem, events):
        reached = version == "0" or not is_before(component.ecosystem, component.version, version)
        if kind == "last_affected":
            inside = inside and not is_before(component.ecosystem, version, component.version)
        elif reached:
            inside = kind == "introduced"
    return inside


def _in_order(ecosystem: str, events: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Most advisories have them in order already; those that don't are sorted by insertion."""
    ordered: list[tuple[str, str]] = []
    for event in events:
        for kind in ("introduced", "fixed", "last_affected"):
            if kind in event:
                version = str(event[kind])
                at = len(ordered)
                while at and _later(ecosystem, ordered[at - 1][1], version):
                    at -= 1
                ordered.insert(at, (kind, version))
    return iter(ordered)


def _later(ecosystem: str, left: str, right: str) -> bool:
    return left != "0" and (right == "0" or is_before(ecosystem, right, left))

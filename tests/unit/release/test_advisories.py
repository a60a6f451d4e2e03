"""Which components an advisory is about: by list, by range, by name as each registry compares names."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.release import audit
from tests.release.advisories import Component, components, hits
from tests.release.versions import MavenVersion, is_before

MAVEN_IN_ORDER = [
    "1.0-alpha-1",
    "1.0-alpha-2",
    "1.0-beta1",
    "1.0-rc1",
    "1.0-SNAPSHOT",
    "1.0",
    "1.0-sp1",
    "1.0-jre",
    "1.0.1",
    "1.0.2",
    "1.0.10",
    "1.1",
    "2",
    "10",
]


def test_versions_of_jars_are_in_mavens_order() -> None:
    for at, older in enumerate(MAVEN_IN_ORDER):
        for newer in MAVEN_IN_ORDER[at + 1 :]:
            assert is_before("Maven", older, newer), (older, newer)
            assert not is_before("Maven", newer, older), (older, newer)
    assert MavenVersion("1.0.Final") == MavenVersion("1") == MavenVersion("1.0.0-GA")
    assert hash(MavenVersion("1.0.Final")) == hash(MavenVersion("1"))
    assert is_before("PyPI", "1.0rc1", "1.0")
    assert is_before("PyPI", "not-a-version-1", "not-a-version-2")


def advisory(
    events: list[dict[str, str]], name: str = "some-package", ecosystem: str = "PyPI"
) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {
        "id": "X-1",
        "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
    }


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 10), st.integers(1, 4)), max_size=3),
    st.randoms(use_true_random=False),
)
def test_ranges_are_the_union_of_half_open_intervals(
    version: int, intervals: list[tuple[int, int]], chance: Any
) -> None:
    """OSV's events against the intervals that they were written from, in any order."""
    events, end = [], 0
    inside = False
    for gap, width in intervals:
        start, stop = end + gap, end + gap + width
        events += [{"introduced": str(start)}, {"fixed": str(stop)}]
        inside = inside or start <= version < stop
        end = stop + 1
    chance.shuffle(events)
    component = Component("PyPI", "some-package", str(version))
    assert bool(hits([component], [advisory(events)])) == inside


@pytest.mark.parametrize(
    ("version", "is_hit"), [("1.9", False), ("2.0", True), ("2.4", True), ("2.4.1", False)]
)
def test_a_last_affected_version_is_affected(version: str, is_hit: bool) -> None:
    events = [{"introduced": "2.0"}, {"last_affected": "2.4"}]
    jar = Component("Maven", "org.example:thing", version)
    assert bool(hits([jar], [advisory(events, "org.example:thing", "Maven")])) == is_hit


def test_names_of_python_packages_are_compared_as_the_registry_does() -> None:
    listed = components(
        {"components": [{"purl": "pkg:pypi/Some_Package@1.0"}, {"purl": "pkg:cargo/other@1"}]}
    )
    assert listed == [Component("PyPI", "some-package", "1.0")]
    assert hits(listed, [advisory([{"introduced": "0"}], "some.package")])


def test_a_withdrawn_advisory_does_not_count_and_a_listed_version_does() -> None:
    component = Component("PyPI", "some-package", "1.0")
    all_of_it = advisory([{"introduced": "0"}])
    assert hits([component], [all_of_it])
    assert not hits([component], [all_of_it | {"withdrawn": "2026-01-01T00:00:00Z"}])
    package = {"ecosystem": "PyPI", "name": "some-package"}
    named = {"id": "X-2", "affected": [{"package": package, "versions": ["1.0"]}]}
    assert [hit.advisory for hit in hits([component], [named])] == ["X-2"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    bill = {"components": [{"purl": "pkg:maven/org.example/thing@1.0"}, {"purl": "pkg:pypi/other@2.0"}]}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(bill)))
    return audit.main(list(arguments))


def test_an_audit_names_what_it_found_and_never_passes_without_advisories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "") == audit.UNCHECKED
    assert run(monkeypatch, str(tmp_path)) == audit.UNCHECKED
    assert capsys.readouterr().out.count("Not checked") == 2

    (tmp_path / "deep").mkdir()
    other = advisory([{"introduced": "3"}], "other") | {"modified": "2026-11-01T00:00:00Z"}
    (tmp_path / "deep" / "other.json").write_text(json.dumps(other))
    (tmp_path / "broken.json").write_text("{")
    assert run(monkeypatch, str(tmp_path)) == 0
    said = "2 components against 1 advisories, the newest of 2026-11-01: 0 found; 1 files could not be read\n"
    assert capsys.readouterr().out == said

    (tmp_path / "thing.yaml").write_text(
        "id: X-3\naliases: [CVE-1]\naffected:\n- package: {ecosystem: Maven, name: 'org.example:thing'}\n"
        "  ranges: [{type: ECOSYSTEM, events: [{introduced: '0'}, {fixed: '1.0.1'}]}]\n"
    )
    assert run(monkeypatch, str(tmp_path)) == audit.FOUND
    assert "org.example:thing 1.0: X-3, CVE-1; fixed in 1.0.1\n" in capsys.readouterr().out

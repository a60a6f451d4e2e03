"""The list of jars is complete and fitting, and no other bytes than the listed ones are run."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java import jars
from streaming.runtime.java.jars import LIST, JarSet, ensure, listed

FOR_TESTS = Path(__file__).parents[2] / "kit" / "connect" / "jars.toml"
every_set = pytest.mark.parametrize(
    ("jar_set", "file"),
    [*((each, LIST) for each in JarSet), ("connect", FOR_TESTS), ("converter", FOR_TESTS)],
    ids=lambda part: part.parent.name if isinstance(part, Path) else str(part),
)


@every_set
def test_every_listed_jar_has_a_digest_and_a_file_name_of_its_own(jar_set: str, file: Path) -> None:
    names = [jar.file_name for jar in listed(jar_set, file)]
    assert len(set(names)) == len(names) > 10
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in listed(jar_set, file))


@every_set
def test_every_root_is_listed(jar_set: str, file: Path) -> None:
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    assert set(content[jar_set]["roots"]) <= {jar.coordinate for jar in listed(jar_set, file)}


def test_the_delta_jar_is_that_of_the_delta_package() -> None:
    revisions = {jar.revision for jar in listed(JarSet.SPARK) if jar.name.startswith("delta-spark")}
    assert revisions == {version("delta-spark")}


def test_a_jar_that_was_exchanged_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ensure(JarSet.SPARK):
        shutil.copy(path, tmp_path)
    monkeypatch.setenv("BACKFILL_JARS", str(tmp_path))
    assert {path.parent for path in ensure(JarSet.SPARK)} == {tmp_path}
    # Nothing is written where all jars are, so the folder may be read-only.
    assert {path.suffix for path in tmp_path.iterdir()} == {".jar"}

    victim = tmp_path / listed(JarSet.SPARK)[3].file_name
    victim.write_bytes(victim.read_bytes() + b"\0")

    with pytest.raises(EnvironmentProblem) as failure:
        ensure(JarSet.SPARK)
    assert failure.value.code is Code.DEPENDENCY_MISMATCH
    assert failure.value.where == str(victim)


def test_a_jar_that_arrives_with_other_bytes_never_enters_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, cache = tmp_path / "repository", tmp_path / "cache"
    _publish(repository, "org.example", "thing", "1.0", b"not what was listed")
    monkeypatch.setenv("BACKFILL_JARS", str(cache))
    monkeypatch.setenv("BACKFILL_IVY_SETTINGS", str(_settings(tmp_path, repository)))
    monkeypatch.setattr(jars, "listed", lambda _: (jars.Jar("org.example", "thing", "1.0", "0" * 64),))
    with pytest.raises(EnvironmentProblem) as failure:
        ensure(JarSet.SPARK)
    assert failure.value.code is Code.DEPENDENCY_MISMATCH
    assert list(cache.glob("*.jar")) == []


def test_a_jar_that_nobody_has_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKFILL_JARS", str(tmp_path / "cache"))
    monkeypatch.setenv("BACKFILL_IVY_SETTINGS", str(_settings(tmp_path, tmp_path / "empty")))
    monkeypatch.setattr(jars, "listed", lambda _: (jars.Jar("org.example", "thing", "1.0", "0" * 64),))
    with pytest.raises(
        EnvironmentProblem, match=r"DEPENDENCY_MISMATCH: found jars that can't be fetched .*thing"
    ):
        ensure(JarSet.SPARK)


def _settings(folder: Path, repository: Path) -> Path:
    settings = folder / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/>'
        '<resolvers><filesystem name="here" m2compatible="true">'
        f'<artifact pattern="{repository}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    return settings


def _publish(repository: Path, organisation: str, name: str, revision: str, content: bytes) -> None:
    folder = repository / organisation.replace(".", "/") / name / revision
    folder.mkdir(parents=True)
    (folder / f"{name}-{revision}.jar").write_bytes(content)

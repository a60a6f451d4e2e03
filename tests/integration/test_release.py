"""`make release`, and a user who has nothing but its wheel: an environment with the locked packages, no checkout."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from streaming.runtime.java.jars import JarSet, ensure, listed

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WHEEL, SOURCES = f"arrangement_backfill-{VERSION}-py3-none-any.whl", f"arrangement_backfill-{VERSION}.tar.gz"
BILL = f"arrangement-backfill-{VERSION}.cdx.json"


def run(*command: str | Path, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def uv() -> str:
    return shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release; no image, whose build is tried by the tests of compose."""
    folder = tmp_path_factory.mktemp("dist")
    run("make", "release", f"DIST={folder}", DOCKER_HOST="unix:///nowhere")
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`backfill` of an environment that holds the packages of the lock file and the wheel, and a user's folder."""
    folder = tmp_path_factory.mktemp("user")
    environment = folder / "venv"
    bare = ("--frozen", "--no-dev", "--no-install-project", "--quiet")
    run(uv(), "sync", *bare, UV_PROJECT_ENVIRONMENT=str(environment))
    python = environment / "bin" / "python"
    run(uv(), "pip", "install", "--offline", "--no-deps", "--python", python, dist / WHEEL)
    # What the wheel says that it needs is there.
    run(uv(), "pip", "check", "--python", python)
    return environment / "bin" / "backfill"


def test_a_release_is_what_it_says_and_comes_out_the_same_twice(dist: Path, tmp_path: Path) -> None:
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {WHEEL, SOURCES, BILL} == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    run("make", "release", f"DIST={tmp_path}", DOCKER_HOST="unix:///nowhere")
    assert (tmp_path / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_wheel_holds_every_file_of_the_packages(dist: Path) -> None:
    tracked = run("git", "ls-files", "schemas", "state", "streaming").stdout.split()
    names = set(zipfile.ZipFile(dist / WHEEL).namelist())
    assert set(tracked) <= names
    assert {"schemas/py.typed", "state/py.typed", "streaming/py.typed"} <= names


def test_the_bill_of_materials_is_valid_and_has_every_package_and_jar(dist: Path) -> None:
    # Not on top: its import builds grammars for five seconds, in every process that only collects.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    bill = json.loads((dist / BILL).read_text())
    # To check that an address is one takes this validator a second each: some stand for all, written by the same code.
    short = {**bill, "components": [_with_one_address(each) for each in bill["components"][:2]]}
    short["components"] += [_without_addresses(each) for each in bill["components"][2:]]
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(short)) is None
    assert "serialNumber" not in bill
    purls = {each["purl"]: each for each in bill["components"]}
    jars = {jar.coordinate: jar for jar_set in JarSet for jar in listed(jar_set)}
    for jar in jars.values():
        found = purls[f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}"]
        assert found["hashes"] == [{"alg": "SHA-256", "content": jar.sha256}]
    needed = {name for name in purls if name.startswith("pkg:pypi/")}
    assert len(needed) + len(jars) == len(purls)
    assert {"pkg:pypi/pyspark@4.0.5", "pkg:pypi/deltalake@1.6.6"} <= needed
    assert not any(name.startswith(("pkg:pypi/pytest@", "pkg:pypi/ruff@")) for name in needed)
    refs = {each["bom-ref"] for each in bill["components"]}
    assert {ref for each in bill["dependencies"] for ref in each.get("dependsOn", ())} == refs - {None}


def _with_one_address(component: dict[str, Any]) -> dict[str, Any]:
    return {**component, "externalReferences": component["externalReferences"][:1]}


def _without_addresses(component: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in component.items() if key != "externalReferences"}


@pytest.mark.slow
def test_the_command_of_a_wheel_works_where_there_is_nothing_else(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "--version", folder=tmp_path).stdout == f"backfill {VERSION}\n"
    assert "demo" in run(installed, "--help", folder=tmp_path).stdout
    for name in ("demo", "run", "create", "verify", "produce", "kafka"):
        assert f"backfill {name}" in run(installed, name, "--help", folder=tmp_path).stdout
    places = "import schemas, state, streaming; print(schemas.__file__, state.__file__, streaming.__file__)"
    found = run(installed.with_name("python"), "-c", places, folder=tmp_path).stdout.split()
    assert all(Path(place).is_relative_to(installed.parents[1]) for place in found), found


@pytest.mark.kafka
def test_jars_are_fetched_on_first_use_and_checked(installed: Path, tmp_path: Path) -> None:
    """All but one are there already, so that a test does not fetch 100 MB."""
    cache = tmp_path / "jars"
    cache.mkdir()
    absent, *others = sorted(ensure(JarSet.BROKER), key=lambda path: path.stat().st_size)
    for path in others:
        (cache / path.name).symlink_to(path)
    environment = os.environ | {"BACKFILL_JARS": str(cache), "BACKFILL_LOGS": str(tmp_path)}
    command = [str(installed), "kafka", "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        address = broker.stdout.readline()
        broker.terminate()
        said = broker.stderr.read()
    assert address.startswith("127.0.0.1:"), said
    assert "Fetching 1 jars into" in said
    assert (cache / absent.name).read_bytes() == absent.read_bytes()

    (cache / absent.name).write_bytes(b"something else")
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode != 0
    assert again.stderr.startswith(f"DEPENDENCY_MISMATCH at {cache / absent.name}: found ")

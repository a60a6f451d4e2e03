"""A machine without a fitting Java gets an error of one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java.jars import java, log_options


@pytest.fixture(autouse=True)
def _look_again() -> Iterator[None]:
    java.cache_clear()
    yield
    java.cache_clear()


@pytest.mark.parametrize(
    "printed", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21"', 'java version "22.0.1"']
)
def test_a_java_that_spark_supports_is_taken(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program(tmp_path, printed)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == program


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ('java version "1.8.0_402"', "Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
        ('openjdk version "25" 2025-09-16', "Java 25"),
        ("nonsense", "a java program without a version that can be read"),
    ],
)
def test_another_java_is_named_with_what_to_install(
    printed: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path, printed)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentProblem) as failure:
        java()
    assert (failure.value.code, failure.value.found) == (Code.JAVA_MISSING, found)
    assert "install a Java 17 runtime" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_no_java_at_all_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match="JAVA_MISSING at PATH: found no java program"):
        java()


def _program(home: Path, printed: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    program.chmod(0o755)
    return program


def test_the_log_configuration_of_java_processes_is_a_file_that_names_the_log(tmp_path: Path) -> None:
    named, *_ = log_options(tmp_path / "java.log")
    configuration = Path(named.partition("=file://")[2])
    assert "${sys:backfill.log}" in configuration.read_text(encoding="utf-8")

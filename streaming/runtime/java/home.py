"""Find the Java that Spark and the broker will run on, before either starts.

Spark 4.0 is compiled for Java 17 and tested on 17 and 21. From Java 23 on
`javax.security.auth.Subject.getSubject` raises, and Hadoop 3.4 calls it for every file system that it
opens, so newer ones are refused here, in one line, instead of in a stack trace later.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

from schemas.errors import Code, EnvironmentProblem

OLDEST = 17
NEWEST = 22


def log_options(log: Path) -> list[str]:
    """Options with which a Java process writes its warnings to the file `log`."""
    configuration = Path(__file__).with_name("log4j2.properties")
    return [
        f"-Dlog4j2.configurationFile={configuration.as_uri()}",
        f"-Dbackfill.log={log}",
        "-Dbackfill.log.level=WARN",
    ]


@cache
def java() -> Path:
    """The `java` program that Spark's launcher would take: that of JAVA_HOME, else the first on the PATH.

    Raises:
        EnvironmentProblem: JAVA_MISSING, when there is none, it does not run, or its version is not
        supported.
    """
    home = os.environ.get("JAVA_HOME")
    place = "JAVA_HOME" if home else "PATH"
    found = shutil.which(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise _missing("no java program", place)
    version = _major(found)
    if version is None:
        raise _missing("a java program without a version that can be read", place)
    if not OLDEST <= version <= NEWEST:
        raise _missing(f"Java {version}", place)
    return Path(found)


def _major(program: str) -> int | None:
    return _released(program) or _printed(program)


def _released(program: str) -> int | None:
    """The version in the file `release` of every JDK and runtime, read without a process."""
    with suppress(OSError):
        content = (Path(program).resolve().parent.parent / "release").read_text(encoding="utf-8")
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', content, re.MULTILINE)
        return int(match[1]) if match else None
    return None


def _printed(program: str) -> int | None:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 and older report 1.8, newer ones 17.0.15 or 21.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else None


def _missing(found: str, where: str) -> EnvironmentProblem:
    return EnvironmentProblem(Code.JAVA_MISSING, found=found, where=where, oldest=OLDEST, newest=NEWEST)

"""Java, and the jars of Spark's connectors and of the broker: listed once, fetched once, checked at every start.

`jars.toml` in this folder names every jar by coordinate with its SHA-256, transitive ones included, so two machines run
the same bytes. Apache Ivy, which is part of pyspark, fetches them from Maven Central, each by its exact coordinate:
nothing is resolved at run time.

They go to Spark as `spark.jars`, never as `spark.jars.packages`: the latter puts every jar on the `sys.path` of the
Python workers, and each task pays about a second for re-reading their directories.

Spark 4.0 is compiled for Java 17 and tested on 17 and 21. From Java 23 on `javax.security.auth.Subject.getSubject`
raises, and Hadoop 3.4 calls it for every file system that it opens, so newer ones are refused here, in one line,
instead of in a stack trace later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.paths import APPLICATION, jar_cache

OLDEST = 17
NEWEST = 22

# Maven Central by Ivy's own default, without reading a POM for each jar: the list is complete already.
_SETTINGS = """<ivysettings><settings defaultResolver="central"/><resolvers>
<ibiblio name="central" m2compatible="true" usepoms="false"/>
</resolvers></ivysettings>"""

LIST = Path(__file__).with_name("jars.toml")
"""Written by `make jar-lock`."""


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
    version = _released(found) or _printed(found)
    if version is None:
        raise _missing("a java program without a version that can be read", place)
    if not OLDEST <= version <= NEWEST:
        raise _missing(f"Java {version}", place)
    return Path(found)


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


class JarSet(StrEnum):
    """A complete class path. The two have different versions of some libraries."""

    SPARK = "spark"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar: its Maven coordinate, and the SHA-256 of its bytes in lower-case hex."""

    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """`organisation:name:revision`, as Maven and Ivy write it."""
        return f"{self.organisation}:{self.name}:{self.revision}"

    @property
    def file_name(self) -> str:
        """Name in the cache; both sets share one folder, and the revision keeps them apart."""
        return f"{self.name}-{self.revision}.jar"


def listed(jar_set: str, file: Path = LIST) -> tuple[Jar, ...]:
    """The jars of a set, as `jars.toml` lists them, or another file of this form."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    found = []
    for coordinate, digest in content[jar_set]["sha256"].items():
        organisation, name, revision = coordinate.split(":")
        found.append(Jar(organisation, name, revision, digest))
    return tuple(found)


def ensure(jar_set: JarSet) -> tuple[Path, ...]:
    """Paths of the set's jars on this machine, see `ensure_all`."""
    return ensure_all(listed(jar_set))


def ensure_all(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Paths of the jars on this machine, in their order; absent ones are fetched first.

    Every call digests every file (0.1 s), so a jar that was damaged or exchanged is never run.
    Processes that call this at the same time wait for the one that fetches.

    Raises:
        EnvironmentProblem: JAVA_MISSING, or DEPENDENCY_MISMATCH when a jar can't be had or is not the
        listed one.
    """
    folder = jar_cache()
    if _absent(jars, folder):  # one that is complete may be read-only, as in an image
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # closing the file releases it
            if absent := _absent(jars, folder):
                print(f"Fetching {len(absent)} jars into {folder} ...", file=sys.stderr, flush=True)  # noqa: T201
                _fetch(absent, folder)
    for jar in jars:
        _check(jar, folder / jar.file_name)
    return tuple(folder / jar.file_name for jar in jars)


def _absent(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not (folder / jar.file_name).exists()]


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    # Only a jar with the right digest enters the cache, and it enters whole: os.replace is atomic in one
    # file system.
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as scratch:
        ivy(ivy_file({jar.coordinate: False for jar in jars}), Path(scratch), "[artifact]-[revision].[ext]")
        for jar in jars:
            fetched = Path(scratch) / jar.file_name
            _check(jar, fetched)
            fetched.replace(folder / jar.file_name)


def _check(jar: Jar, path: Path) -> None:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != jar.sha256:
        raise EnvironmentProblem(
            Code.DEPENDENCY_MISMATCH,
            found=f"{jar.coordinate} with SHA-256 {found[:16]}…",
            expected=f"{jar.sha256[:16]}…",
            next_step="delete the file and start again; if it comes back, find what changes it on its way here",
            where=str(path),
        )


def ivy_file(dependencies: Mapping[str, bool]) -> str:
    """An Ivy module that depends on these coordinates, and on their dependencies where the value is True."""
    lines = []
    for coordinate, transitive in dependencies.items():
        organisation, name, revision = map(quoteattr, coordinate.split(":"))
        wanted = "default->default" if transitive else "default->*"
        lines.append(
            f"<dependency org={organisation} name={name} rev={revision} "
            f'transitive="{str(transitive).lower()}" conf="{wanted}"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="local" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def ivy(module: str, folder: Path, pattern: str, settings: str | None = _SETTINGS) -> None:
    """Fetch what `module` (an Ivy file's text) asks for into `folder`, each jar named by Ivy's `pattern`.

    `BACKFILL_IVY_SETTINGS` names an Ivy settings file to use instead, for a company's own mirror.

    Raises:
        EnvironmentProblem: DEPENDENCY_MISMATCH, with the first thing that Ivy complained about.
    """
    program = java()
    with tempfile.TemporaryDirectory(prefix="ivy-") as work:
        (Path(work) / "ivy.xml").write_text(module, encoding="utf-8")
        command = [str(program), "-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"]
        command += ["-ivy", f"{work}/ivy.xml", "-cache", f"{work}/cache"]
        command += ["-retrieve", str(folder / pattern)]
        if own := os.environ.get("BACKFILL_IVY_SETTINGS"):
            command += ["-settings", own]
        elif settings is not None:
            (Path(work) / "settings.xml").write_text(settings, encoding="utf-8")
            command += ["-settings", f"{work}/settings.xml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    complaints = [line.strip() for line in (done.stdout + done.stderr).splitlines() if _is_complaint(line)]
    if done.returncode != 0:
        reason = complaints[0] if complaints else f"Ivy ended with status {done.returncode}"
        raise EnvironmentProblem(
            Code.DEPENDENCY_MISMATCH,
            found=f"jars that can't be fetched ({reason})",
            expected="Maven Central, or the repository that BACKFILL_IVY_SETTINGS names, in reach",
            next_step="look at network and proxy, or copy the jars into the folder that BACKFILL_JARS names",
        )


def _is_complaint(line: str) -> bool:
    return any(
        word in line for word in ("UNRESOLVED DEPENDENCY", "FAILED DOWNLOAD", "not found", "Exception")
    )


def spark_home() -> Path:
    """Folder of the installed pyspark package, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentProblem(Code.DEPENDENCY_MISMATCH, found="no pyspark")
    return Path(spec.origin).parent


# A JVM that starts spends most of its time on finding, checking and preparing some 20,000 classes. With an archive of
# Java's application class-data sharing (Java 17, JEP 350) it maps them into memory: from `backfill run` to the first
# barrier it is 12 s instead of 17 on two cores, and 9 s of CPU less. The embedded broker, with half as many classes, is
# there in two thirds of its time. An archive belongs to exact files, so it lies with the installation and has a name of
# their digest; the JVM compares them again, and ignores an archive that does not fit. `backfill prepare` records it.


def class_archive(jars: Sequence[Path]) -> Path:
    """The path of the archive for Spark with these jars; it may not exist. Raises: EnvironmentProblem(JAVA_MISSING)."""
    return _archive("classes", [*sorted((spark_home() / "jars").glob("*.jar")), *jars])


def broker_archive(jars: Sequence[Path]) -> Path:
    """The path of the archive for the embedded broker; otherwise as `class_archive`."""
    return _archive("broker", jars)


def _archive(kind: str, jars: Sequence[Path]) -> Path:
    digest = hashlib.sha256()
    for file in [java().resolve(), *jars]:
        found = file.stat()
        # Whole seconds, as the JVM compares them, and as layers of an image keep them.
        digest.update(f"{file} {found.st_size} {int(found.st_mtime)}\n".encode())
    return Path(sys.prefix) / "share" / APPLICATION / f"{kind}-{digest.hexdigest()[:16]}.jsa"


@contextmanager
def recording(archive: Path) -> Iterator[str]:
    """The option for a JVM that records the archive; only if the JVM exits by itself within the block."""
    unfinished = archive.with_suffix(".unfinished")
    archive.parent.mkdir(parents=True, exist_ok=True)
    yield f"-XX:ArchiveClassesAtExit={unfinished}"
    unfinished.replace(archive)
    for other in archive.parent.glob(f"{archive.name.partition('-')[0]}-*.jsa"):
        if other != archive:  # of jars that are no longer installed
            other.unlink()


def sharing(archive: Path) -> str:
    """The option for a JVM that is to use the archive; harmless where there is none."""
    return f"-XX:SharedArchiveFile={archive}"

"""What a JVM found in the jars, kept for the next one: an archive of Java's application class-data sharing.

A JVM that starts spends most of its time on finding, checking and preparing some 20,000 classes. With an archive it
maps them into memory: from `backfill run` to the first barrier it is 12 s instead of 17 on two cores, and 9 s of CPU
less. The embedded broker, with half as many classes, is there in two thirds of its time.

The archive belongs to exact files, so it lies with the installation and has a name of their digest; the JVM compares
them once more, and does without an archive that does not fit. `backfill prepare` records it. (Java 17: JEP 350.)
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from streaming.runtime.java.home import java
from streaming.runtime.java.jars import spark_home
from streaming.runtime.paths import APPLICATION


def class_archive(jars: Sequence[Path]) -> Path:
    """The path of the archive for Spark with these jars; it may not exist. Raises: EnvironmentProblem(JAVA_MISSING)."""
    return _archive("classes", [*sorted((spark_home() / "jars").glob("*.jar")), *jars])


def broker_archive(jars: Sequence[Path]) -> Path:
    """As `class_archive`, for the embedded broker."""
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

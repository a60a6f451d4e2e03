"""Checks of this machine: Java, jars, space, the page's address, secrets of Spark, the registry's answer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from schemas.errors import EnvironmentProblem
from schemas.settings.http import read_token
from schemas.settings.security import hash_key_of
from streaming.control.service_api import listener_of
from streaming.registry.client import Registry
from streaming.runtime.java.jars import JarSet, ensure, listed
from streaming.runtime.java.jars import java as java_program
from streaming.runtime.paths import jar_cache
from streaming.service.checks.surroundings import Finding, Surroundings

_ENOUGH_BYTES = 5 * 1024**3


def java(_: Surroundings) -> Iterator[Finding]:
    """The program that Spark will run on. Raises: EnvironmentProblem(JAVA_MISSING)."""
    yield Finding.ok("java", str(java_program()))


def jars(_: Surroundings) -> Iterator[Finding]:
    """Spark's: all there, with the listed bytes, or to be fetched at the first start."""
    wanted, cache = listed(JarSet.SPARK), jar_cache()
    absent = sum(not (cache / jar.file_name).exists() for jar in wanted)
    if absent:
        found = f"{absent} of {len(wanted)} are not in {cache} yet"
        yield Finding.warning("jars", found, "backfill prepare, or let the first start fetch them")
        return
    ensure(JarSet.SPARK)
    yield Finding.ok("jars", f"{len(wanted)} in {cache}, as listed")


def disks(found: Surroundings) -> Iterator[Finding]:
    """Space for the state, where it is a folder, and for what Spark sorts on a disk. A start does not ask for it."""
    config = found.declared
    folders = {"temporary files": Path(tempfile.gettempdir())}
    if "://" not in config.state:
        folders = {"state": existing(Path(config.state)), **folders}
    if config.rows_folder is not None:
        folders["rows by key"] = existing(Path(config.rows_folder))
    for what, folder in folders.items():
        free = shutil.disk_usage(folder).free
        text = f"{free / 1024**3:,.1f} GiB free in {folder}, for {what}"
        if free >= _ENOUGH_BYTES:
            yield Finding.ok("disk", text)
        else:
            way = {"state": "state", "rows by key": "rows_folder"}.get(what, "TMPDIR")
            yield Finding.warning("disk", text, f"make room, or name a folder on another disk as {way}")


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def page(found: Surroundings) -> Iterator[Finding]:
    """Its token, and its address. Raises: ConfigError, EnvironmentProblem(ADDRESS_UNUSABLE)."""
    http = found.declared.http
    read_token(http)
    if http.listen is not None:
        listener_of(http).close()
        yield Finding.ok("http.listen", f"{http.listen} is free")


def spark_secrets(found: Surroundings) -> Iterator[Finding]:
    """Spark's secrets that the configuration names. Raises: ConfigError."""
    found.declared.spark.secrets()
    yield from ()


def hash_keys(found: Surroundings) -> Iterator[Finding]:
    """The keys of jobs that hash columns. Raises: ConfigError."""
    for job in found.declared.jobs:
        if hash_key_of(job):
            yield Finding.ok("hash keys", f"job {job.name}")


def registry(found: Surroundings) -> Iterator[Finding]:
    """Check that it answers and lets this user in; a state that has read records has their schemas."""
    config = found.declared.registry
    if config.url is None:
        return
    try:
        Registry(config).schema(1)
    except EnvironmentProblem as problem:
        text = f"{problem.code}: found {problem.found}; a state keeps the schemas that it has met"
        yield Finding.warning("registry", text, problem.next_step)
        return
    yield Finding.ok("registry", "answers")

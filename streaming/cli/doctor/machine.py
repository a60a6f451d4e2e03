"""Checks of this machine: Java, jars, the state and the space for it, the registry's answer."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from schemas.settings.config import ServiceConfig
from streaming.cli.doctor.findings import Diagnosis, Grade

_LEAST_BYTES, _ENOUGH_BYTES = 256 * 1024**2, 5 * 1024**3


def java() -> Diagnosis:
    """The program that Spark will run on."""
    from streaming.runtime.java import home

    return Diagnosis.by("java", home.java)


def jars() -> Diagnosis:
    """Spark's: all there, with the listed bytes, or to be fetched at the first start."""
    from streaming.runtime.java.jars import JarSet, ensure, listed
    from streaming.runtime.paths import jar_cache

    wanted, cache = listed(JarSet.SPARK), jar_cache()
    absent = sum(not (cache / jar.file_name).exists() for jar in wanted)
    if absent:
        found = f"{absent} of {len(wanted)} are not in {cache} yet"
        return Diagnosis("jars", Grade.WARNING, found, "backfill prepare, or let the first start fetch them")
    return Diagnosis.by("jars", lambda: ensure(JarSet.SPARK), f"{len(wanted)} in {cache}, as listed")


def state(config: ServiceConfig) -> Diagnosis:
    """Check that it can be written, without making it."""
    if "://" in config.state:
        return _store(config.state)
    folder = Path(config.state)
    above = _existing(folder)
    if not folder.exists():
        if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            return Diagnosis.ok("state", f"{folder}, made at the first start")
        return Diagnosis(
            "state",
            Grade.FAILED,
            f"{above} can't be written",
            "give this user the right, or name another",
        )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        found = f"{folder} can't be written ({error.strerror})"
        return Diagnosis(
            "state", Grade.FAILED, found, "give the folder to this user, or name another as state"
        )
    return Diagnosis.ok("state", str(folder))


def _store(uri: str) -> Diagnosis:
    from state.storage import Storage

    try:
        seen = Storage(uri).exists()
    except (OSError, ValueError) as error:
        # Its message may quote credentials of the URI.
        found = f"a store that does not answer ({type(error).__name__})"
        return Diagnosis("state", Grade.FAILED, found, "look at the address, the credentials and the network")
    return Diagnosis.ok("state", "the store answers" + ("" if seen else "; made at the first start"))


def disks(config: ServiceConfig) -> Iterator[Diagnosis]:
    """Space for the state, where it is a folder, and for what Spark sorts on a disk."""
    folders = {"temporary files": Path(tempfile.gettempdir())}
    if "://" not in config.state:
        folders = {"state": _existing(Path(config.state)), **folders}
    if config.rows_folder is not None:
        folders["rows by key"] = _existing(Path(config.rows_folder))
    for what, folder in folders.items():
        free = shutil.disk_usage(folder).free
        found = f"{free / 1024**3:,.1f} GiB free in {folder}, for {what}"
        if free >= _ENOUGH_BYTES:
            yield Diagnosis.ok("disk", found)
        else:
            verdict = Grade.FAILED if free < _LEAST_BYTES else Grade.WARNING
            way = {"state": "state", "rows by key": "rows_folder"}.get(what, "TMPDIR")
            yield Diagnosis("disk", verdict, found, f"make room, or name a folder on another disk as {way}")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def registry(config: ServiceConfig) -> Diagnosis | None:
    """Check that it answers and lets this user in; None where none is configured."""
    if config.registry.url is None:
        return None
    from streaming.registry.client import Registry

    return Diagnosis.by("registry", lambda: Registry(config.registry).schema(1), "answers")

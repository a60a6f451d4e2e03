"""The keys by which jobs hash columns: read from their files where rows are encoded or judged, and kept nowhere."""

from __future__ import annotations

from pathlib import Path

from schemas.job import JobDefinition
from schemas.settings.security import Secret


def hash_key_of(job: JobDefinition) -> bytes:
    """The key, empty for a job that hashes nothing. Raises: ConfigError, as `Secret.read_bytes`."""
    file = job.hash_key_file
    return b"" if file is None else Secret(f"hash_key_file of job {job.name}", Path(file)).read_bytes()

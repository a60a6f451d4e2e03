"""A Spark session without a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from streaming.runtime.java.spark_jvm import started_jvm
from streaming.runtime.session import session_in
from streaming.runtime.spark_settings import SparkSettings


@contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[SparkSession]:
    """A session for the length of the block; afterwards its JVM is gone. Raises: as `started_jvm`, `session_in`."""
    with started_jvm(settings or SparkSettings()) as jvm, session_in(jvm) as session:
        yield session

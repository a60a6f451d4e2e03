"""The process that Spark forks its Python workers from (`spark.python.daemon.module`).

Each Python task calls `importlib.invalidate_caches()`, and for a zip or jar on `sys.path` this means to
read its whole directory again in pure Python: 0.3-0.4 s a task for `pyspark.zip`, `py4j.zip` and
`spark-core.jar` alone. The workers find pyspark in the environment that they run in, so these entries are
dropped before the first worker is forked.

What a lane imports is imported here as well, once for all workers and in memory that they share.
"""

from __future__ import annotations

import sys


def drop_archives() -> None:
    """Take zips and jars off `sys.path`, and forget the importers that were made for them."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [known for known in sys.path_importer_cache if known.endswith((".zip", ".jar"))]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    drop_archives()
    from pyspark.daemon import manager

    import streaming.lane.run
    import streaming.sink.kinds  # noqa: F401

    manager()  # type: ignore[no-untyped-call]

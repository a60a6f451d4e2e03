"""The process that Spark forks its Python workers from (`spark.python.daemon.module`).

It is Spark's own daemon, with three costs taken away that each Python task would have:

- `importlib.invalidate_caches()` re-reads the directory of every zip and jar on `sys.path` in pure Python, 0.3 to
  0.4 s a task for `pyspark.zip`, `py4j.zip` and `spark-core.jar` alone. The workers find pyspark in the environment
  that they run in, so these entries are dropped before the first worker is forked.
- After each task a worker collects garbage: 40 ms of CPU, nearly all of it for imported modules. Objects from before
  the first fork are excluded. So a module that imports what tasks need, and then calls `serve`, has it once for all
  workers, in memory that they share.
- The JVM's socket has Nagle's algorithm on (Spark 4.0), so the last bytes of a task wait until the worker has
  acknowledged those before, which Linux may delay by 40 ms. The workers acknowledge at once.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable
from typing import TypeAlias

Work: TypeAlias = Callable[[socket.socket, bool], int]


def drop_archives() -> None:
    """Take zips and jars off `sys.path`, and forget the importers that were made for them."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [known for known in sys.path_importer_cache if known.endswith((".zip", ".jar"))]:
        del sys.path_importer_cache[entry]


def without_delay(work: Work) -> Work:
    """Wrap a task so that data on its socket is acknowledged at once, where the system can do that."""

    def prompt(connection: socket.socket, authenticated: bool) -> int:
        # Linux leaves this state by itself, so it is set before each task.
        if hasattr(socket, "TCP_QUICKACK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return work(connection, authenticated)

    return prompt


def keep_for_good() -> None:
    """Exclude all present objects from later garbage collections."""
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Fork workers, for as long as the JVM wants some."""
    drop_archives()
    from pyspark import daemon

    daemon.worker = without_delay(daemon.worker)
    keep_for_good()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve()

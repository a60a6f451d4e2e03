"""The process that the workers of lanes are forked from, with the imports of lanes, once for all of them."""

from __future__ import annotations

from streaming.runtime.worker_daemon import drop_archives, serve

if __name__ == "__main__":
    drop_archives()

    import streaming.lane.run
    import streaming.sink.kinds  # noqa: F401

    serve()

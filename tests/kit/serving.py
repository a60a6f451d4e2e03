"""A server of Python's own that answers while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def serving(http: ThreadingHTTPServer) -> Iterator[None]:
    """In a thread of its own; afterwards thread and port are free."""
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        http.shutdown()
        thread.join()
        http.server_close()

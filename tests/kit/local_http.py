"""A server of Python's own on the loopback, for what benches and tests need beside Kafka."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """A connection without room is tried again after one second, then three, seven: too late on a busy machine."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves, or does not trust the certificate, is no error of the server."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], *, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve while the block runs, and give its address (without a path); afterwards thread and port are free.

    A client that connects and is then silent keeps no other waiting.
    """
    server = _Server(("127.0.0.1", port), handler)
    if tls is not None:
        # The handshake is made at the first read, on the connection's own thread: made at once, it holds the thread
        # that accepts.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

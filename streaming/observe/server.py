"""The HTTP server of a running service: uvicorn in a thread, for as long as a context is open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.http import HttpConfig
from streaming.observe.connections import BoundedConnection

_KEEP_ALIVE_S = 5
_END_WITHIN_S = 3


@contextmanager
def served(app: ASGIApp, config: HttpConfig) -> Iterator[str]:
    """Serve until the block ends; gives the address, with the port that was found if any would do.

    Raises: EnvironmentProblem(ADDRESS_UNUSABLE) when the address can't be listened at.
    """
    listener = _listen(config)
    port = listener.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http=BoundedConnection,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_END_WITHIN_S,
            ssl_certfile=config.certificate_file,
            ssl_keyfile=config.key_file,
        )
    )
    thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
    thread.start()
    try:
        yield f"{config.scheme}://{_shown(config.host)}:{port}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _listen(config: HttpConfig) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise EnvironmentProblem(
            Code.ADDRESS_UNUSABLE,
            where="http.listen",
            found=f"{config.listen}: {error.strerror or type(error).__name__}",
        ) from None
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host

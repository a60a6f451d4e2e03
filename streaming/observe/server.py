"""The HTTP server of a running service: uvicorn in a thread, for as long as a context is open.

Connections that bring no request do not keep others out, however many there are. uvicorn has no time limit for a
request's head, and its limit of connections refuses the latest one, which may be a probe. Here a head has
`HEAD_WITHIN_S`, and where `MOST_WAITING` connections wait for one, a new one closes the oldest of them. Requests under
way are bounded by `streaming.observe.middleware.Bounded`, which lets probes pass.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from schemas.settings.http import HttpConfig
from streaming.control.service_api import listener_of

HEAD_WITHIN_S = 5.0
MOST_WAITING = 100
_KEEP_ALIVE_S = 5
_END_WITHIN_S = 3


class BoundedConnection(H11Protocol):
    """One connection. Its head is due within `HEAD_WITHIN_S` of the connection, or of the head's first byte."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._head_due: asyncio.TimerHandle | None = None
        self._waits_since_s = 0.0

    @property
    def _waits(self) -> bool:
        """True if no request of it is under way."""
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None until the first request, which uvicorn's type omits
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Expect a head; close the connection that has waited longest where too many wait."""
        super().connection_made(transport)
        self._waits_since_s = self.loop.time()
        self._expect_head()
        waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each._waits]
        if len(waiting) > MOST_WAITING:
            min(waiting, key=lambda each: each._waits_since_s).transport.close()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; the time for a head is not longer for one that comes byte by byte."""
        super().data_received(data)
        if not self._waits:
            self._forget_head()
        elif self._head_due is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        """Called by uvicorn: the next head may come, within the time that a connection is kept for."""
        self._waits_since_s = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect no head any more."""
        self._forget_head()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_due = self.loop.call_later(HEAD_WITHIN_S, self._end)

    def _forget_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _end(self) -> None:
        self._head_due = None
        if self._waits:
            self.transport.close()


@contextmanager
def served(app: ASGIApp, config: HttpConfig) -> Iterator[str]:
    """Serve until the block ends; gives the address, with the port that was found if any would do.

    Raises: EnvironmentProblem(ADDRESS_UNUSABLE) when the address can't be listened at.
    """
    listener = listener_of(config)
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
        yield f"{config.scheme}://{config.shown_host}:{port}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()

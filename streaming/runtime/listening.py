"""The socket of an HTTP server that is configured."""

from __future__ import annotations

import socket

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.http import HttpConfig


def listener_of(config: HttpConfig) -> socket.socket:
    """Listen at the configured address. Raises: EnvironmentProblem(ADDRESS_UNUSABLE)."""
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
    except (OSError, OverflowError) as error:  # the latter for a port beyond 65535
        reason = getattr(error, "strerror", None) or str(error)
        raise EnvironmentProblem(
            Code.ADDRESS_UNUSABLE, where="http.listen", found=f"{config.listen}: {reason}"
        ) from None
    return listener

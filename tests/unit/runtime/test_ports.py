"""The port of a server that starts later is kept for it."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from streaming.broker.embedded import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a port is kept on Linux alone")

_BIND = "import socket, sys; socket.socket().bind(('127.0.0.1', int(sys.argv[1])))"


def test_no_other_process_gets_a_free_port_before_its_server_listens() -> None:
    command = [sys.executable, "-c", _BIND, str(free_port())]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "Address already in use" in found.stderr


def test_a_server_may_listen_on_it_and_do_so_again() -> None:
    port = free_port()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()

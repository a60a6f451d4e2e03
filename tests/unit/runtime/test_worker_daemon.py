"""The daemon's differences from Spark's own: the state of a worker's socket, and `sys.path`."""

from __future__ import annotations

import socket
import sys

import pytest

from streaming.runtime.worker_daemon import drop_archives, without_delay

CONVERSATION = 50


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no such state")
def test_a_task_begins_on_a_socket_that_acknowledges_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()

    def is_prompt() -> bool:
        return bool(near.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    with near, far:
        for _ in range(CONVERSATION):  # from which Linux concludes that acknowledgements may wait for answers
            far.sendall(b"?")
            assert near.recv(1) == b"?"
            near.sendall(b"!")
            assert far.recv(1) == b"!"
        assert not is_prompt()
        seen: list[tuple[bool, bool]] = []

        def work(connection: socket.socket, authenticated: bool) -> int:
            seen.append((is_prompt(), authenticated))
            return 3

        assert without_delay(work)(near, True) == 3
    assert seen == [(True, True)]


def test_archives_leave_the_path_with_what_python_remembers_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/lib", "/a/pyspark.zip", "/b/spark-core.jar"])
    monkeypatch.setattr(sys, "path_importer_cache", {"/lib": None, "/a/pyspark.zip": None})
    drop_archives()
    assert (sys.path, list(sys.path_importer_cache)) == (["/lib"], ["/lib"])

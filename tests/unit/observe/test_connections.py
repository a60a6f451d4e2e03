"""Probes are answered beside any number of other connections, and a request that does not come ends its connection."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from schemas.settings.http import HttpConfig
from streaming.observe import middleware, server
from streaming.observe.middleware import ApiAuth
from streaming.observe.server import MOST_WAITING, served
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from tests.kit.api_requests import idle_api
from tests.kit.reports import SOURCE, job, report

WAIT_S = 20


@pytest.fixture
def cache() -> StatusCache:
    vitals = Vitals("up", 1_000, late_s=600.0, injects=False)
    cache = StatusCache("up", "orders", "me", 4, vitals, SOURCE)
    cache.note(report([job("copy")]))
    vitals.batch_done()
    vitals.streams()
    return cache


@pytest.fixture
def address(cache: StatusCache) -> Iterator[tuple[str, int]]:
    door = ApiAuth(None, is_local=True)
    app = idle_api(cache, door)
    with served(app, HttpConfig.model_validate({"listen": "127.0.0.1:0"})) as address:
        host, port = address.removeprefix("http://").split(":")
        yield host, int(port)


def asked(address: tuple[str, int], path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=WAIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127", b"GET /healthz HTTP/1.1\r\n\r\n"]
)
def test_probes_are_answered_beside_any_number_of_connections(address: tuple[str, int], sent: bytes) -> None:
    """Clients that send nothing or half a head, and some that keep a connection behind an answer."""
    with ExitStack() as opened:
        for _ in range(3 * MOST_WAITING):
            held = opened.enter_context(socket.create_connection(address, WAIT_S))
            held.sendall(sent)
        assert [asked(address, path) for path in ("/healthz", "/readyz", "/healthz")] == [200] * 3


@pytest.mark.parametrize("first", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nG"])
def test_a_head_that_does_not_come_ends_its_connection(
    address: tuple[str, int], first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_WITHIN_S", 0.2)
    with socket.create_connection(address, WAIT_S) as slow:
        slow.sendall(first)
        received = bytearray()
        while more := slow.recv(4_096):  # it ends when the server closes
            received += more
        assert (b"alive" in received) == (len(first) > 1)


def test_a_head_has_no_longer_where_it_comes_byte_by_byte(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_WITHIN_S", 0.5)
    ended = threading.Event()
    with socket.create_connection(address, WAIT_S) as slow:
        slow.settimeout(0.05)
        sent = 0
        while not ended.is_set():
            try:
                slow.sendall(b"G")
                sent += 1
                if slow.recv(1) == b"":
                    ended.set()
            except TimeoutError:
                continue
            except OSError:
                ended.set()
        assert sent < WAIT_S / 0.05


def test_a_kept_connection_is_served_again(address: tuple[str, int]) -> None:
    client = HTTPConnection(*address, timeout=WAIT_S)
    for _ in range(3):
        client.request("GET", "/healthz")
        assert client.getresponse().read() == b"alive\n"
    client.close()


def test_beyond_many_requests_at_once_only_probes_are_served(
    address: tuple[str, int], cache: StatusCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is in a thread, of which there are fewer."""
    monkeypatch.setattr(middleware, "MOST_REQUESTS", 60)
    go_on, begun = threading.Event(), threading.Semaphore(0)
    status = cache.status

    def slow(*parts: object) -> object:
        begun.release()
        go_on.wait(WAIT_S)
        return status()

    monkeypatch.setattr(cache, "status", slow)
    answers: list[int] = []
    clients = [
        threading.Thread(target=lambda: answers.append(asked(address, "/api/v1/status"))) for _ in range(61)
    ]
    for each in clients:
        each.start()
    for _ in range(40):  # as many threads as there are
        assert begun.acquire(timeout=WAIT_S)
    clients[-1].join(0)
    assert [asked(address, path) for path in ("/healthz", "/readyz")] == [200, 200]
    go_on.set()
    for each in clients:
        each.join(WAIT_S)
    assert sorted(answers) == [200] * 60 + [503]

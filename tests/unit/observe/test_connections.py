"""Connections to the page and the API: many at once, silent ones, by each of its names, and over TLS."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.settings.config import check
from schemas.settings.http import HttpConfig
from streaming.control.service_api import opened, read_condition
from streaming.observe import middleware, server
from streaming.observe.middleware import ApiAuth
from streaming.observe.server import MOST_WAITING, served
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from tests.kit.api_requests import idle_api
from tests.kit.reports import SOURCE, TABLE, job, report
from tests.kit.secure import Certificates, private

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


_TOKEN = "a token of the test"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def running(certificates: Certificates, tmp_path: Path) -> Iterator[HttpConfig]:
    """A server with a certificate, and the section of the configuration that leads to it."""
    certificate, key = certificates.issue("page", "page.example")
    token = private(tmp_path / "token", _TOKEN)
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    cache = StatusCache("up", "orders", "me", 4, vitals, SOURCE)
    cache.note(report([job("copy")]))
    vitals.batch_done()
    door = ApiAuth(_TOKEN, is_local=False)
    app = idle_api(cache, door)
    declared = {
        "listen": "127.0.0.1:0",
        "certificate_file": str(certificate),
        "key_file": str(key),
        "token_file": str(token),
    }
    with served(app, HttpConfig.model_validate(declared)) as address:
        assert address.startswith("https://127.0.0.1:")
        listen = address.removeprefix("https://")
        yield HttpConfig.model_validate(declared | {"listen": listen})


def test_who_believes_the_authority_is_served_and_nobody_in_the_clear(
    running: HttpConfig, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    context.check_hostname = False
    with urllib.request.urlopen(f"https://{running.listen}/healthz", timeout=10, context=context) as answer:
        assert answer.read() == b"alive\n"
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://{running.listen}/healthz", timeout=10)


def test_a_command_asks_only_who_has_the_very_certificate(
    running: HttpConfig, certificates: Certificates
) -> None:
    answer = read_condition(running)
    assert answer is not None
    assert (answer.condition, answer.ready) == ("serving", True)
    other, _ = certificates.issue("other", "page.example")
    assert read_condition(running.model_copy(update={"certificate_file": str(other)})) is None


def declared(**http: Any) -> dict[str, Any]:
    section = {"listen": "127.0.0.1:8443", **http}
    return {"upstream": "orders", "state": "state", "table": TABLE.to_dict(), "http": section}


def test_a_certificate_and_its_key_are_tried_with_the_configuration(
    certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = certificates.issue("page")
    _, other_key = certificates.issue("other")
    given = {"certificate_file": str(certificate.relative_to(tmp_path)), "key_file": str(key)}
    path = tmp_path / "config.yaml"
    assert check(declared(**given), path=path).http.certificate_file == str(certificate)
    with pytest.raises(ConfigError, match="go together"):
        check(declared(certificate_file=str(certificate)), path=path)
    with pytest.raises(ConfigError, match="that don't go together"):
        check(declared(**given | {"key_file": str(other_key)}), path=path)
    _, locked = certificates.issue("locked", password="of the test")
    with pytest.raises(ConfigError, match="that don't go together"):
        check(declared(**given | {"key_file": str(locked)}), path=path)
    key.chmod(0o644)
    with pytest.raises(ConfigError) as failure:
        check(declared(**given), path=path)
    assert failure.value.code is Code.SECRET_FILE_MODE
    assert json.dumps(str(key)) not in str(failure.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "0.0.0.0", "[::]"])  # noqa: S104  (a port of a moment)
def test_an_address_is_asked_by_its_own_name_by_those_of_this_machine_and_by_the_given_ones(
    host: str, tmp_path: Path
) -> None:
    token = private(tmp_path / "token", _TOKEN)
    config = HttpConfig.model_validate(
        {"listen": f"{host}:0", "token_file": str(token), "hosts": ["backfill.example", "*.example.org"]}
    )
    vitals = Vitals("up", 1_000, late_s=30.0, injects=False)
    cache = StatusCache("up", "orders", "me", 4, vitals, SOURCE)
    app = idle_api(cache, ApiAuth(_TOKEN, is_local=False), config.names)
    with served(app, config) as address:
        found = config.model_copy(update={"listen": address.removeprefix("http://")})
        answer = read_condition(found)
        assert answer is not None
        assert answer.condition == "starting"

        def asked_by(name: str) -> int:
            with pytest.raises(urllib.error.HTTPError) as caught:
                opened(found, "/readyz", {"Host": name}).close()
            return caught.value.code

        names = [host, "localhost", "backfill.example", "a.example.org"]
        assert [asked_by(f"{name}:{found.port}") for name in names] == [503] * 4
        assert [asked_by(name) for name in ("elsewhere.example", "example.org", "[::2]")] == [400] * 3


@pytest.mark.parametrize(
    "name", ["", "backfill.example:8080", "a*.example", "https://backfill.example", "::1"]
)
def test_a_name_that_no_request_can_have_is_an_error_of_the_configuration(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http\.hosts\.1"):
        check(declared(hosts=["backfill_1.example", name]), path=tmp_path / "config.yaml")

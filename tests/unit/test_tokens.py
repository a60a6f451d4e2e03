"""Tokens of a real token server over HTTP: kept while they are good, and every answer that is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.errors import Code, ConfigError, EnvironmentProblem
from schemas.settings.registry import RegistryConfig
from schemas.settings.security import OAuth, Secret
from streaming.kafka import security as tokens
from streaming.kafka.security import token_for
from streaming.registry.client import Registry
from tests.kit.registry import FakeRegistry
from tests.kit.secure import Certificates, private
from tests.kit.token_server import CLIENT, SECRET, TokenServer, token_server


def forget_tokens() -> None:
    """Ask again for every one, as when a token server does not know what it gave."""
    tokens._tokens.clear()


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget_tokens()


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server(None) as running:
        yield running


def client(server: TokenServer, folder: Path, *, section: str = "kafka.oauth", secret: str = SECRET) -> OAuth:
    reference = Secret(f"{section}.client_secret_file", file=private(folder / "client-secret", secret + "\n"))
    return OAuth(server.url, CLIENT, reference, section=section)


def test_a_token_is_kept_while_it_is_good(server: TokenServer, tmp_path: Path) -> None:
    oauth = client(server, tmp_path)
    with ThreadPoolExecutor(8) as pool:
        texts = {token.text for token in pool.map(lambda _: token_for(oauth), range(16))}
    assert texts == set(server.given)
    assert len(server.given) == 1
    assert server.given[0] not in repr(token_for(oauth))


def test_the_next_one_is_asked_for_before_it_ends(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oauth, at_s = client(server, tmp_path), [1_000_000.0]
    monkeypatch.setattr("streaming.kafka.security.time.time", lambda: at_s[0])
    first = token_for(oauth)
    assert first.expires_s == at_s[0] + 3_600
    at_s[0] += 2_879
    assert token_for(oauth) == first
    at_s[0] += 2
    second = token_for(oauth)
    assert second.text == server.given[1]
    server.status = 503
    at_s[0] += 3_599
    assert token_for(oauth) == second  # good to its end while the server is away
    at_s[0] += 2
    with pytest.raises(EnvironmentProblem):
        token_for(oauth)


@pytest.mark.parametrize(("section", "away", "refused"), [
    ("kafka.oauth", Code.BROKER_UNREACHABLE, Code.AUTH_FAILED),
    ("registry.oauth", Code.REGISTRY_UNREACHABLE, Code.REGISTRY_REFUSED),
])  # fmt: skip
def test_what_is_no_token_is_named(
    server: TokenServer, tmp_path: Path, section: str, away: Code, refused: Code
) -> None:
    oauth = client(server, tmp_path, section=section)
    long_life = {"access_token": "a.b.c", "expires_in": 60}
    answers: list[tuple[int | None, object, Code]] = [
        (400, None, refused),
        (401, None, refused),
        (302, None, refused),
        (429, None, away),
        (500, None, away),
        (None, [], refused),
        (None, {}, refused),
        (None, {**long_life, "access_token": 7}, refused),
        (None, {**long_life, "access_token": "a\nb"}, refused),
        (None, {**long_life, "token_type": "mac"}, refused),
        (None, {**long_life, "expires_in": 0}, refused),
        (None, {**long_life, "expires_in": "soon"}, refused),
        (None, {**long_life, "expires_in": float("nan")}, refused),
    ]
    for server.status, body, code in answers:
        server.body = json.dumps(body).encode()
        server.location = f"{server.url}/elsewhere" if server.status == 302 else None
        asked = len(server.asked)
        with pytest.raises(EnvironmentProblem) as caught:
            token_for(oauth)
        assert (caught.value.code, caught.value.where) == (code, f"{section}.token_url"), body
        assert "details" not in str(caught.value)
        assert len(server.asked) == asked + 1  # followed nowhere
    server.status, server.body = None, b"\xff"
    with pytest.raises(EnvironmentProblem, match="without an access_token"):
        token_for(oauth)


def test_a_secret_that_is_gone_is_named_and_one_that_was_replaced_holds(
    server: TokenServer, tmp_path: Path
) -> None:
    oauth = client(server, tmp_path, secret="hunter2")
    with pytest.raises(EnvironmentProblem, match="status 401"):
        token_for(oauth)
    private(tmp_path / "client-secret", SECRET)
    assert token_for(oauth).text == server.given[0]
    forget_tokens()
    (tmp_path / "client-secret").unlink()
    with pytest.raises(ConfigError, match="client_secret_file"):
        token_for(oauth)


def test_only_the_named_authorities_are_believed(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "own")
    with token_server(certificates) as server:
        oauth = client(server, tmp_path)
        with pytest.raises(EnvironmentProblem, match="SSLCertVerificationError"):
            token_for(oauth)
        believed = OAuth(server.url, CLIENT, oauth.client_secret, ca_file=certificates.ca_file)
        assert token_for(believed).text == server.given[0]


def test_the_registry_gets_a_token_with_each_question(server: TokenServer, tmp_path: Path) -> None:
    secret = private(tmp_path / "client-secret", SECRET)
    oauth = {"token_url": server.url, "client_id": CLIENT, "client_secret_file": str(secret)}
    with FakeRegistry().serving() as registry:
        asked = Registry(RegistryConfig.model_validate({"url": registry.url, "oauth": oauth}))
        server.body = b'{"access_token": "first", "expires_in": 3600}'
        registry.authorization = "Bearer first"
        number = asked.register("orders-value", '"string"')
        assert registry.schemas[number]
        registry.authorization = "Bearer second"
        with pytest.raises(EnvironmentProblem) as caught:
            asked.newest("orders-value")
        assert caught.value.code is Code.REGISTRY_REFUSED
        server.body = b'{"access_token": "second", "expires_in": 3600}'
        forget_tokens()
        assert asked.newest("orders-value") is not None
        server.status = 401
        forget_tokens()
        with pytest.raises(EnvironmentProblem) as caught:
            asked.newest("refused")
        assert (caught.value.code, caught.value.where) == (Code.REGISTRY_REFUSED, "registry.oauth.token_url")
        server.status = 503
        with pytest.raises(EnvironmentProblem) as caught:
            asked.newest("away")
        assert caught.value.code is Code.REGISTRY_UNREACHABLE


def test_who_waits_for_another_client_s_token_waits_for_no_one_else(
    server: TokenServer, tmp_path: Path
) -> None:
    """One token server that hangs holds up its own clients alone."""
    slow, fast = client(server, tmp_path), None
    with token_server(None) as other:
        fast = client(other, tmp_path, section="registry.oauth")
        begun, go_on = threading.Event(), threading.Event()
        answer = server.answer

        def hang(authorization: str, body: str) -> tuple[int, bytes]:
            begun.set()
            go_on.wait(30)
            return answer(authorization, body)

        server.answer = hang  # type: ignore[method-assign]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(token_for, slow)
            assert begun.wait(30)
            assert token_for(fast).text == other.given[0]
            assert not waiting.done()
            go_on.set()
            assert waiting.result(30).text == server.given[0]

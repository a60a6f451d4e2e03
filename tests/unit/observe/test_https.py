"""The page and the API on real addresses, in the clear and over TLS, and the command that asks them."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.settings.config import check
from schemas.settings.http import HttpConfig
from streaming.control.service_api import opened, read_condition
from streaming.observe.middleware import ApiAuth
from streaming.observe.server import served
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from tests.kit.api_requests import idle_api
from tests.kit.reports import SOURCE, TABLE, job, report
from tests.kit.secure import Certificates, private

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

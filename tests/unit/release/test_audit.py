"""`make audit` asks about everything that is in the bill of materials, and passes only what was answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.kit.local_http import serving

ROOT = Path(__file__).parents[3]
JAR = "org.apache.kafka:kafka-clients"

pytestmark = pytest.mark.slow


@dataclass
class Osv:
    """The part of OSV's API that is asked: `known` are the names of packages with an advisory, on a second page."""

    known: frozenset[str] = frozenset()
    asked: dict[str, set[str]] = field(default_factory=dict)

    def result(self, query: dict[str, Any]) -> dict[str, Any]:
        package = query["package"]
        self.asked.setdefault(package["ecosystem"], set()).add(f"{package['name']}@{query['version']}")
        if package["name"] not in self.known:
            return {}
        if "page_token" not in query:
            return {"next_page_token": "more"}
        return {"vulns": [{"id": f"X-{package['name']}", "modified": "2026-01-01T00:00:00Z"}]}

    def advisory(self, number: str) -> dict[str, Any]:
        events = [{"introduced": "0"}, {"fixed": "99.1"}]
        package = {"ecosystem": "Maven" if ":" in number else "PyPI", "name": number.removeprefix("X-")}
        return {
            "id": number,
            "modified": "2026-01-01T00:00:00Z",
            "aliases": ["CVE-2026-1"],
            "summary": "made up",
            "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
        }

    @contextmanager
    def serving(self) -> Iterator[str]:
        osv = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.answer({"results": [osv.result(query) for query in body["queries"]]})

            def do_GET(self) -> None:
                self.answer(osv.advisory(unquote(self.path.rpartition("/")[2])))

            def answer(self, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
                """Nothing."""

        with serving(Handler) as url:
            yield url


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_component_of_the_bill_is_asked_about_and_nothing_else() -> None:
    osv = Osv()
    with osv.serving() as url:
        done = make("audit", f"OSV={url}")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = {
        f"pkg:{kind}/{each.replace(':', '/')}"
        for kind, ecosystem in (("pypi", "PyPI"), ("maven", "Maven"))
        for each in osv.asked[ecosystem]
    }
    bill = json.loads(make("sbom").stdout)
    assert asked == {each["purl"].partition("?")[0] for each in bill["components"]}


@pytest.mark.parametrize("known", ["certifi", JAR])
def test_an_advisory_about_a_package_or_a_jar_fails_it_and_is_named(known: str) -> None:
    with Osv(frozenset({known})).serving() as url:
        done = make("audit", f"OSV={url}")
    assert done.returncode != 0
    assert known in done.stdout
    assert "CVE-2026-1" in done.stdout
    assert "99.1" in done.stdout


def test_nothing_passes_where_nobody_answers() -> None:
    with Osv().serving() as url:
        pass
    done = make("audit", f"OSV={url}")
    assert done.returncode != 0
    assert "Found 0" not in done.stdout

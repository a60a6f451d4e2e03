"""Questions to OSV about the jars of a release; `make audit` has `uv audit` ask about the Python packages before.

    python -m tests.release.audit [address of OSV's API, or of another server that has it]

The exit status is 1 where an advisory is about a jar. Without an answer it is an error: nothing passes unasked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2

from streaming.runtime.java.jars import Jar, JarSet, listed

OSV = "https://api.osv.dev"
"""https://google.github.io/osv.dev/api/"""


class OsvClient:
    """Questions about versions; which of them an advisory is about is for the server to say."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=url.rstrip("/"), timeout=30)

    def advisories(self, jars: Sequence[Jar]) -> Iterator[tuple[Jar, dict[str, Any]]]:
        """Each jar with each advisory about it. Raises: httpx2.HTTPError without an answer."""
        queries = [(jar, self._query(jar)) for jar in jars]
        while queries:
            answer = self._http.post("/v1/querybatch", json={"queries": [query for _, query in queries]})
            results = answer.raise_for_status().json()["results"]
            further = []
            for (jar, query), result in zip(queries, results, strict=True):
                for found in result.get("vulns", ()):
                    yield jar, self._http.get(f"/v1/vulns/{found['id']}").raise_for_status().json()
                if token := result.get("next_page_token"):
                    further.append((jar, query | {"page_token": token}))
            queries = further

    @staticmethod
    def _query(jar: Jar) -> dict[str, Any]:
        return {"package": {"ecosystem": "Maven", "name": _name(jar)}, "version": jar.revision}


def _name(jar: Jar) -> str:
    return f"{jar.organisation}:{jar.name}"


def line(jar: Jar, advisory: dict[str, Any]) -> str:
    """The jar, all names of the advisory, and the versions that are without the fault."""
    fixed = [
        event["fixed"]
        for affected in advisory["affected"]
        if affected["package"]["name"] == _name(jar)
        for versions in affected.get("ranges", ())
        for event in versions["events"]
        if "fixed" in event
    ]
    names = ", ".join((advisory["id"], *advisory.get("aliases", ())))
    return f"{_name(jar)} {jar.revision}: {names}; " + (
        f"fixed in {', '.join(fixed)}" if fixed else "no version without it is known"
    )


def main(url: str = OSV) -> int:
    """Ask about all jars of both sets, print what is known, and return the exit status."""
    jars = list({jar.coordinate: jar for jar_set in JarSet for jar in listed(jar_set)}.values())
    found = [line(*each) for each in OsvClient(url).advisories(jars)]
    sys.stdout.write(
        "".join(f"{each}\n" for each in found) + f"Found {len(found)} advisories about {len(jars)} jars\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Maintainer's command: the software bill of materials of a release, CycloneDX 1.5 in JSON, on standard output.

    uv export --frozen --no-dev --format cyclonedx1.5 | python -m tests.release.sbom

What `uv.lock` names comes from uv; the jars come from `jars.toml`. Both have digests, so the bill says which bytes a
release runs. pyspark is one component here: the jars within it are those of its own release. The same lock files give
the same bill to the byte: what uv writes anew each time, a serial number and a time, is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from streaming.runtime.java.jars import Jar, JarSet, listed

_ANEW = ("serialNumber",)


def bill(python: Mapping[str, Any], jars: Iterable[Jar]) -> dict[str, Any]:
    """The bill of `python` (a CycloneDX document of the Python packages) and of the jars, each once."""
    distinct = {jar.coordinate: jar for jar in jars}
    head = {key: value for key, value in python.items() if key not in _ANEW}
    metadata = {key: value for key, value in head["metadata"].items() if key != "timestamp"}
    root = metadata["component"]["bom-ref"]
    needs = {each["ref"]: each.get("dependsOn", []) for each in head["dependencies"]}
    # Which jar brings which is not in the list, so all of them are what the program itself depends on.
    needs[root] = [*needs.get(root, []), *sorted(distinct)]
    return head | {
        "metadata": metadata,
        "components": [*head["components"], *(_component(distinct[name]) for name in sorted(distinct))],
        "dependencies": [{"ref": ref, "dependsOn": to} if to else {"ref": ref} for ref, to in needs.items()],
    }


def _component(jar: Jar) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": jar.coordinate,
        "group": jar.organisation,
        "name": jar.name,
        "version": jar.revision,
        "purl": f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}",
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
    }


def main() -> None:
    """Read uv's document from standard input and write the whole bill."""
    jars = [jar for jar_set in JarSet for jar in listed(jar_set)]
    json.dump(bill(json.load(sys.stdin), jars), sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

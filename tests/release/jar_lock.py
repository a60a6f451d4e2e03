"""Maintainer's command: resolve the roots of `jars.toml` again and write their jars with digests.

    python -m tests.release.jar_lock [another file of the same form]

Of the set for Spark, whatever ships with pyspark in any version is left out: two versions of one library
on Spark's class path make the winner a matter of luck, and the one that Spark was tested with has to win.
`without` names what has to go for another reason. The list is only as good as the place that it was
fetched from: look at the difference before committing it.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from streaming.runtime.java.jars import LIST, JarSet, ivy, ivy_file, spark_home

_SEPARATOR = "__"


def main(file: Path = LIST) -> None:
    """Write the file anew; the comments above the first table and the roots stay as they are."""
    text = file.read_text(encoding="utf-8")
    preamble = text[: text.index("\n[") + 1]
    tables = tomllib.loads(text).items()
    file.write_text(preamble + "\n".join(_table(name, table) for name, table in tables), encoding="utf-8")


def _table(name: str, table: dict[str, Any]) -> str:
    roots, without = table["roots"], table["without"]
    shipped = _shipped_with_spark() if name == JarSet.SPARK else frozenset()
    with tempfile.TemporaryDirectory() as folder:
        pattern = _SEPARATOR.join(("[organisation]", "[module]", "[revision]")) + ".[ext]"
        ivy(ivy_file(dict.fromkeys(roots, True)), Path(folder), pattern, settings=None)
        found = [
            (path.stem.split(_SEPARATOR), path.read_bytes()) for path in sorted(Path(folder).glob("*.jar"))
        ]
    kept = [
        f'"{organisation}:{module}:{revision}" = "{hashlib.sha256(content).hexdigest()}"'
        for (organisation, module, revision), content in found
        if module not in shipped and module not in without
    ]
    sys.stderr.write(f"{name}: {len(kept)} of {len(found)} jars kept\n")
    head = [f"[{name}]", f"roots = {_array(roots)}", f"without = {_array(without)}", "", f"[{name}.sha256]"]
    return "\n".join([*head, *kept, ""])


def _shipped_with_spark() -> frozenset[str]:
    return frozenset(re.sub(r"-\d.*$", "", jar.stem) for jar in (spark_home() / "jars").glob("*.jar"))


def _array(values: list[str]) -> str:
    return "[" + "".join(f'\n    "{value}",' for value in values) + ("\n]" if values else "]")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

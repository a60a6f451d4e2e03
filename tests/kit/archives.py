"""Archives of other people's programs as they are published: each fetched once, and checked at every use."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from streaming.runtime.java.jars import ivy
from streaming.runtime.paths import jar_cache


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of Maven Central: its coordinate, what its name ends with, and the SHA-256 of its bytes in hex."""

    coordinate: str
    """`organisation:name:revision`."""
    sha256: str
    kind: str = "tar.gz"
    classifier: str | None = None

    def path(self) -> Path:
        """Its place on this machine. Raises: EnvironmentProblem when it can't be fetched."""
        _, name, revision = self.coordinate.split(":")
        suffix = f"-{self.classifier}" if self.classifier else ""
        path = jar_cache() / f"{name}-{revision}{suffix}.{self.kind}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetch-") as scratch:
                ivy(self._module(), Path(scratch), "[artifact]-[revision].[ext]")
                [fetched] = Path(scratch).iterdir()
                self._check(fetched)
                fetched.replace(path)
        self._check(path)
        return path

    def _check(self, path: Path) -> None:
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
        assert found == self.sha256, f"{path} is not the archive that is listed"

    def _module(self) -> str:
        organisation, name, revision = self.coordinate.split(":")
        classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
        return (
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
            '<info organisation="local" module="kit"/><configurations><conf name="default"/></configurations>'
            f'<dependencies><dependency org="{organisation}" name="{name}" rev="{revision}" transitive="false" '
            f'conf="default-&gt;*"><artifact name="{name}" type="{self.kind}" ext="{self.kind}"{classifier}/>'
            "</dependency></dependencies></ivy-module>"
        )

    def unpack(self, folder: Path) -> None:
        """Its files below `folder`, which is made. Of a jar those of the one archive in it."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "tar.gz":
            with tarfile.open(self.path()) as content:
                content.extractall(folder, filter="data")
            return
        with zipfile.ZipFile(self.path()) as jar:
            [inner] = [name for name in jar.namelist() if name.endswith(".txz")]
            with jar.open(inner) as packed, tarfile.open(fileobj=lzma.open(packed)) as content:
                content.extractall(
                    folder, filter="tar"
                )  # its links are absolute to nothing, its modes matter

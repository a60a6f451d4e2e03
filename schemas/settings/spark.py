"""The configuration's section `spark`: its master, and the security between its processes.

Its settings are those of a cluster; all others are the service's. Secrets come from files or variables, never from the
settings, which stand on command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.faults import Faults, brief
from schemas.settings.security import Printable, Secret, Section, Variable

_SPARK_SETTING = re.compile(
    r"spark\.(executor\.(?!extra)|cores\.|driver\.(host|port|bindAddress)$|blockManager\.|network\.|kubernetes\.|yarn\."
    r"|authenticate(\.|$)|ssl\.|io\.encryption\.)"
)
_SPARK_SECRET = re.compile(r"(?i)spark\.(authenticate\.secret|ssl\..*password)$")
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def _spark_settings(declared: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for name in declared:
        if _SPARK_SECRET.match(name):
            raise ValueError(
                f"{brief(name)} is a secret: spark.authenticate_secret_file or spark.ssl_password_file name its file, "
                "and the same with _env a variable"
            )
        if not _SPARK_SETTING.match(name):
            raise ValueError(
                f"{brief(name)} is not for executors, cores, the network, its security or a cluster's manager"
            )
    return declared


class SparkConfig(Section):
    """Master, memory and settings of Spark."""

    master: str | None = Field(
        None, description="Spark master, as in `spark://host:7077`. By default this machine, with every core."
    )
    driver_memory: str = Field(
        "1g", pattern=r"^[1-9][0-9]{0,5}[mg]$", description="Heap of the driver's JVM, as in `2g`."
    )
    settings: Annotated[dict[str, str | int | bool], AfterValidator(_spark_settings)] = Field(
        {},
        description="Spark's own settings for a cluster: those that begin with `spark.executor.`, `spark.cores.`, "
        "`spark.driver.host`, `spark.driver.port`, `spark.driver.bindAddress`, `spark.blockManager.`, "
        "`spark.network.`, `spark.authenticate`, `spark.ssl.`, `spark.io.encryption.`, `spark.kubernetes.` or "
        "`spark.yarn.`. The others are the service's.",
    )
    python: Printable | None = Field(
        None,
        min_length=1,
        description="Python of the executors, as in `python3.11`. By default the service's own, at the same path.",
    )
    packages_file: Printable | None = Field(
        None,
        description="Archive (`.tar.gz`, `.tgz`, `.tar` or `.zip`) with the Python packages, for executors that do not "
        "have them; the service sends it to each.",
    )
    authenticate_secret_file: Printable | None = Field(
        None,
        repr=False,
        description="File with the secret of `spark.authenticate`, mode `0600`; master and workers have the same.",
    )
    authenticate_secret_env: Variable | None = Field(
        None, repr=False, description="Environment variable with it, instead of the file."
    )
    ssl_password_file: Printable | None = Field(
        None,
        repr=False,
        description="File with the password of the stores and the key in `spark.ssl.rpc.`, mode `0600`.",
    )
    ssl_password_env: Variable | None = Field(
        None, repr=False, description="Environment variable with it, instead of the file."
    )

    def secrets(self) -> tuple[Secret | None, Secret | None]:
        """The secret of `spark.authenticate`, and the password of `spark.ssl`."""
        return self.secret("spark.authenticate_secret"), self.secret("spark.ssl_password")

    @property
    def authenticates(self) -> bool:
        """True if driver and executors authenticate each other by a secret."""
        return self.settings.get("spark.authenticate") in (True, "true")


def check_spark(declared: SparkConfig, *, folder: Path, faults: Faults) -> SparkConfig:
    """The section with its files below `folder`, its secrets tried once."""
    resolved = declared.below(folder)
    for name in ("authenticate_secret", "ssl_password"):
        if getattr(declared, f"{name}_file") is not None and getattr(declared, f"{name}_env") is not None:
            faults.add(f"both spark.{name}_file and spark.{name}_env")
    for secret in resolved.secrets():
        if secret is not None:
            faults.find_by(secret.read)
    kind = (declared.master or "local").split(":")[0].split("[")[0]
    for reason in _incompatible_with_executors(resolved, has_executors=kind != "local"):
        faults.add(reason)
    if kind in ("spark", "local-cluster") and declared.authenticates and resolved.secrets()[0] is None:
        faults.add(
            "neither 'spark.authenticate_secret_file' nor 'spark.authenticate_secret_env', for spark.authenticate"
        )
    return resolved


def _incompatible_with_executors(spark: SparkConfig, *, has_executors: bool) -> Iterator[str]:
    if not has_executors:
        names = [name for name in ("python", "packages_file") if getattr(spark, name) is not None]
        yield from (f"spark.{name} without a spark.master that has executors" for name in names)
    elif spark.packages_file is not None:
        if not spark.packages_file.endswith(_ARCHIVES):
            yield f"{brief(spark.packages_file)} as spark.packages_file, which is none of {', '.join(_ARCHIVES)}"
        elif not Path(spark.packages_file).is_file():
            yield f"no file {brief(spark.packages_file)}, which spark.packages_file names"

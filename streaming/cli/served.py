"""The service that a command is about: its configuration, its state, and the way to ask it for something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from schemas.config import ServiceConfig, load
from schemas.errors import Code, ConfigError
from schemas.records import Mutation
from state.storage import Storage
from streaming.core.jobs import apply
from streaming.runtime.kafka import KafkaSettings
from streaming.steering.sight import Onlooker
from streaming.steering.wishes import Granted, Steering, refused

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="BACKFILL_CONFIG",
        help="The service's configuration, YAML or JSON.",
        dir_okay=False,
    ),
]
DEFAULT_CONFIG = Path("config.yaml")
PatienceOption = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the service.", min=0.1)]
NoWaitOption = Annotated[
    bool, typer.Option("--no-wait", help="Send the wish, and don't wait for its barrier.")
]
JobArgument = Annotated[str, typer.Argument(help="Name of the job.")]
DEFAULT_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Served:
    """A service that runs, or has run, with a configuration."""

    config: ServiceConfig
    onlooker: Onlooker

    @classmethod
    def of(cls, path: Path) -> Served:
        """Raises: ConfigError as `load`; StateError(STATE_PATH_INVALID) where no service has ever run."""
        config = load(path)
        return cls(config, Onlooker(Storage(str(config.state)), config.table))

    @property
    def kafka(self) -> KafkaSettings:
        """Raises: ConfigError(USAGE) when only the service knows its broker, being an embedded one."""
        if self.config.kafka.bootstrap is None:
            raise ConfigError(
                Code.USAGE,
                where="kafka.bootstrap",
                found="no broker in the configuration: the service has an embedded one on a port of its own",
                expected="an address that other processes know",
                next_step="start a broker with `backfill kafka`, and name it in the configuration",
            )
        return KafkaSettings.of(self.config.kafka)

    @contextmanager
    def steering(self, patience_s: float) -> Iterator[Steering]:
        """The way to send wishes."""
        with Steering(self.kafka, self.config.upstream, self.onlooker, patience_s=patience_s) as steering:
            yield steering

    def check(self, mutation: Mutation) -> None:
        """Raises: ConfigError for a mutation that the service would refuse as things are now."""
        sight = self.onlooker.look()
        states = tuple(job.state for job in sight.jobs)
        outcome = apply(
            mutation, sight.epoch, states, lanes=sight.lanes, start=sight.epoch, table=self.config.table
        )
        for report in outcome.reports:
            if report.refused is not None:
                raise refused(report)


def steer(path: Path, mutation: Mutation, *, wait: bool, patience_s: float) -> Granted | None:
    """Check a mutation, send it and, if wanted, wait until it took effect. None without waiting."""
    served = Served.of(path)
    served.check(mutation)
    with served.steering(patience_s) as steering:
        if wait:
            return steering.ask(mutation)
        steering.send(mutation)
        return None


def tell(granted: Granted | None) -> None:
    """One line on what became of a wish."""
    if granted is None:
        typer.echo("sent; it takes effect at the end of the batch that holds its barrier")
    else:
        typer.echo(
            f"{granted.report.text}: since barrier {granted.barrier.curr}, after {granted.elapsed_s:.1f} s"
        )

"""The service that a command is about: its configuration, its state, and the way to ask it for something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from schemas.config import ServiceConfig, load
from schemas.errors import Code, ConfigError
from schemas.records import Mutation
from state.storage import Storage
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.places import CONFIG_VARIABLE
from streaming.steering.sight import Onlooker
from streaming.steering.wishes import Granted, Steering, refuse

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar=CONFIG_VARIABLE,
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
JobOrAllArgument = Annotated[str | None, typer.Argument(help="Name of the job.")]
AllOption = Annotated[bool, typer.Option("--all", help="All jobs, in place of one.")]
DEFAULT_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Served:
    """A service that runs, or has run, with a configuration."""

    config: ServiceConfig
    storage: Storage
    onlooker: Onlooker

    @classmethod
    def of(cls, path: Path) -> Served:
        """Raises: ConfigError as `load`; StateError(STATE_PATH_INVALID) where no service has ever run."""
        config = load(path)
        storage = Storage(str(config.state))
        return cls(config, storage, Onlooker(storage, config.table))

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

    def steering(self, patience_s: float) -> Steering:
        """The way to send wishes; a context."""
        return Steering(self.kafka, self.config.upstream, self.onlooker, patience_s=patience_s)

    def check(self, mutation: Mutation) -> None:
        """Raises: ConfigError for a mutation that the service would refuse as things are now."""
        sight = self.onlooker.look()
        states = [job.state for job in sight.jobs]
        refuse(mutation, sight.epoch, states, lanes=sight.lanes, table=self.config.table)


def require_one(job: str | None, every: bool) -> None:
    """Raises: ConfigError(USAGE) unless it is either a job or all of them."""
    if (job is None) != every:
        raise ConfigError(
            Code.USAGE,
            found="no job" if job is None else "a job and --all",
            expected="one of them",
            next_step="name a job, or say --all",
        )


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

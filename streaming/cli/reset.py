"""`backfill reset`: what belongs to a state, and the commands that delete it. Nothing is deleted here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from schemas.settings.config import ServiceConfig
from schemas.topics import DEAD_LETTERS_SUFFIX
from state.replica import Replica
from state.storage import Storage
from streaming.cli.configuration import ConfigArgument, ConfigOption, JsonOption, required_config, usage
from streaming.cli.jobs.served import known_jobs, view_at_hand
from streaming.lane.before.folder import rows_name, rows_root
from streaming.protocol.lanes.attempts import transactional_id
from streaming.registry.client import subjects
from streaming.service.left_out_columns import load
from streaming.source.barriers.injecting.control_topic import injector_id


@dataclass(frozen=True, slots=True)
class Belongings:
    """The belongings of a state, there or not: names of folders, topics, groups and subjects."""

    folders: tuple[str, ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    subjects: tuple[str, ...]

    @classmethod
    def of(cls, config: ServiceConfig) -> Belongings:
        """Of a configuration, with the jobs that its state knows. Raises: StateError for tables that can't be read."""
        jobs = list(known_jobs(config).values())
        upstream = config.topics
        topics = [upstream.data + DEAD_LETTERS_SUFFIX, upstream.control]
        if upstream.barriers is not None:
            topics.append(upstream.barriers)
        topics += [topic for job in jobs for topic in job.topics]
        return cls(
            folders=tuple(_folders(config)),
            topics=tuple(dict.fromkeys(topics)),
            groups=(upstream.lag_group, *((injector_id(upstream),) if config.barriers.injects else ())),
            subjects=tuple(each for job in jobs for each in subjects(job.output, job.format.framed).values()),
        )

    def commands(self, config: ServiceConfig) -> Iterator[str]:
        """The commands that delete all of it, for Kafka's tools, a shell and curl; the service has to be stopped."""
        server = f"--bootstrap-server {shlex.quote(config.kafka.bootstrap or 'HOST:PORT')}"
        for topic in self.topics:
            yield f"kafka-topics.sh {server} --delete --if-exists --topic {shlex.quote(topic)}"
        for group in self.groups:
            yield f"kafka-consumer-groups.sh {server} --delete --group {shlex.quote(group)}"
        registry = config.registry.urls[0].rstrip("/") if config.registry.urls else "REGISTRY"
        for subject in self.subjects:
            for query in ("", "?permanent=true"):
                yield f"curl -X DELETE {shlex.quote(f'{registry}/subjects/{subject}{query}')}"
        for folder in self.folders:
            remove = "aws s3 rm --recursive" if folder.startswith("s3") else "rm -r"
            yield f"{remove} {shlex.quote(folder)}"


def _folders(config: ServiceConfig) -> Iterator[str]:
    if view_at_hand(config) is None:
        return
    storage = Storage(str(config.state))
    yield storage.root
    rows = rows_root(config.rows_folder) / rows_name(transactional_id(Replica(storage, config.table)))
    if rows.exists():
        yield str(rows)


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    shows: Annotated[
        bool, typer.Option("--print", help="List what there is, and the commands that delete it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List what belongs to a state, and print the commands that delete it, for a new beginning.

    Nothing is deleted. Stop the service before you give the commands; the upstream topic stays.
    """
    if not shows:
        raise usage("no --print", "`backfill reset --print`: this command deletes nothing by itself")
    loaded = load(required_config(config, file))
    found = Belongings.of(loaded)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "commands": list(found.commands(loaded))}))
        return
    for name, values in asdict(found).items():
        for number, value in enumerate(values):
            typer.echo(f"{name if number == 0 else '':<10}{value}")
    typer.echo("\nWith the service stopped, these commands delete it:\n")
    for line in found.commands(loaded):
        typer.echo(line)

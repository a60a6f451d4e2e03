"""`backfill produce` and `barriers`: what they write to an upstream topic, test events, or barriers alone."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from schemas.formats.protocol import Format
from schemas.settings.limits import parse_duration
from streaming.cli.configuration import ConfigArgument, ConfigOption, JsonOption, optional_config, usage
from streaming.cli.topics.target import Broker, TableOption, Target, TopicOption, topics_of, upstream_target
from streaming.events.forms import FORMATS, EventForm, TopicSchemas, events_of, form_of, invented
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, SentChanges, produce_rows, resume
from streaming.kafka.topics import create_topic, partitions_of
from streaming.registry.client import Registry
from streaming.runtime import logs
from streaming.service.left_out_columns import load
from streaming.service.presence import instance_name
from streaming.source.barriers.injecting.claim import ALONE
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import BarrierPace, target_of

_REFRESH_S, _CHECK_S = 0.1, 0.2
_DEFAULT_INTERVAL_MS, _MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 1_000, 100, 3_600_000
_log = structlog.get_logger(__name__)


class _SpeedColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.finished_speed or task.speed or 0:,.0f}/s")


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    topic: TopicOption = None,
    *,
    broker: Broker,
    table: TableOption = None,
    rows: Annotated[
        int, typer.Option(min=0, help="New rows to insert first, as fast as possible.")
    ] = 100_000,
    live: Annotated[float, typer.Option(min=0, help="Seconds of live changes after that.")] = 0,
    rate: Annotated[float, typer.Option(min=0, help="Live changes per second.")] = 500,
    updates_share: Annotated[float, typer.Option(help="Share of updates in the live changes.")] = 0.6,
    deletes_share: Annotated[float, typer.Option(help="Share of deletes; the rest are inserts.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 1,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the topic, if it is not there.")] = 4,
    form: Annotated[
        EventForm | None,
        typer.Option(
            "--format", help="Of a topic without a configuration; else that of its upstream counts."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Insert rows into an upstream topic, then change them at a steady rate.

    A later run with the same table and seed goes on where this one ended: every change is legal, and nothing
    but this command may write changes to the topic. Ctrl-C ends the live changes early. Of rows without identity
    (append-json) an update comes as a further row with the key of the one before, a delete as a null value.
    """
    shares = ChangeMix(updates_share, deletes_share)
    source = optional_config(config, file)
    own = FORMATS[form or EventForm.CHANGE]
    target = upstream_target(load(source) if source else None, broker, topic, table, form=own)
    _check(form, target.format)
    register = TopicSchemas(Registry(target.registry), target.topic) if target.registry else None
    made = invented(target.table)
    generator = ChangeGenerator(made, seed, events_of(target.format, made, register))
    console = Console(stderr=True)
    if partitions_of(target.kafka, target.topic) is None:
        create_topic(target.kafka, target.topic, partitions)
        console.print(
            f"{target.topic}: new, with {partitions} partitions and no barriers yet; `backfill run` with this upstream "
            "injects them, or `backfill barriers`",
            soft_wrap=True,
            highlight=False,
        )
    with console.status(f"reading what {target.topic} holds"):
        resume(target.kafka, target.topic, generator)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _SpeedColumn())
    begin = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        inserted = _insert(target, generator, rows, progress)
        changed = _change(target, generator, rate, live, shares, progress) if live else SentChanges()
    sent = SentChanges(inserted.inserts + changed.inserts, changed.updates, changed.deletes)
    _print_summary(target.topic, sent, generator.live, time.monotonic() - begin, as_json=as_json)


def _print_summary(topic: str, sent: SentChanges, rows: int, took_s: float, *, as_json: bool) -> None:
    """Print the numbers of written events; `rows` are those that are there now."""
    if as_json:
        counts = {"inserts": sent.inserts, "updates": sent.updates, "deletes": sent.deletes}
        typer.echo(json.dumps({"topic": topic, **counts, "rows": rows}))
        return
    typer.echo(
        f"{topic}: {sent.inserts} inserts, {sent.updates} updates, {sent.deletes} deletes in {took_s:.1f} s; "
        f"{rows} rows there now"
    )


def _check(form: EventForm | None, format_: Format) -> None:
    """Raises: ConfigError(USAGE) if an option asks for other events than the upstream has."""
    if form is not None and form != form_of(format_):
        known = form_of(format_) or "of another format"
        raise usage(
            f"--format {form} for an upstream that is {known}", "what the configuration says, or --topic"
        )


def _insert(target: Target, generator: ChangeGenerator, rows: int, progress: Progress) -> SentChanges:
    bar = progress.add_task("rows", total=rows)
    sender = ChangeSender(target.kafka, target.topic)
    produce_rows(sender, generator, rows, on_sent=lambda count: progress.advance(bar, count))
    return sender.sent


def _change(
    target: Target,
    generator: ChangeGenerator,
    rate: float,
    live_s: float,
    shares: ChangeMix,
    progress: Progress,
) -> SentChanges:
    bar = progress.add_task("live changes", total=int(rate * live_s))
    changes, end = LiveLoad(target.kafka, target.topic, generator, rate, shares), time.monotonic() + live_s
    changes.start()
    try:
        while time.monotonic() < end and not changes.wait(min(_REFRESH_S, max(0, end - time.monotonic()))):
            progress.update(bar, completed=changes.sent.total)
    except KeyboardInterrupt:
        pass  # the usual way to end early; what was sent is still flushed and reported
    sent = changes.stop()
    progress.update(bar, completed=sent.total)
    return sent


def barriers(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    topic: TopicOption = None,
    *,
    broker: Broker,
    interval: Annotated[
        str | None, typer.Option(help="Time between two barriers, 100ms to 1h; by default 1s.")
    ] = None,
    barrier_topic: Annotated[
        str | None, typer.Option(help="Write them to this topic, beside the data, and nothing to TOPIC.")
    ] = None,
    control_topic: Annotated[
        str | None, typer.Option(help="Take requests from this topic; by default TOPIC.control.")
    ] = None,
) -> None:
    """Write barriers for a topic until SIGTERM or Ctrl-C, and take requests from its control topic.

    It goes on after the last barrier there is. Another injector of these barriers is refused while this one lives.
    """
    logs.configure()
    path = optional_config(config, file)
    loaded = load(path) if path else None
    default_ms = loaded.barrier_interval_ms if loaded else _DEFAULT_INTERVAL_MS
    topics = topics_of(loaded, topic, barriers=barrier_topic, control=control_topic)
    interval_ms = _interval_ms(interval) if interval else default_ms
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    settings = broker.settings(loaded)
    # Started again it goes on; another one is refused while this one lives.
    owner = f"{ALONE} {instance_name()}"
    pace = BarrierPace.of(loaded.source.read_limit if loaded else None, interval_ms)
    with BarrierInjector(settings, target_of(topics, pace), interval_ms, owner=owner) as injector:
        _log.info("injecting_barriers", upstream=topics.data, interval_ms=interval_ms)
        while not ended.wait(_CHECK_S):
            injector.check()
    last = injector.last_barrier
    _log.info("stopped", upstream=topics.data, last_barrier=last.curr if last else None)


def _interval_ms(text: str) -> int:
    try:
        interval_ms = parse_duration(text)
    except ValueError:
        interval_ms = 0
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise usage(repr(text), "a time from 100ms to 1h with its unit, as in 1s or 500ms", "--interval")
    return interval_ms

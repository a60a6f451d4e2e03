"""`backfill barriers`: the injector alone, for an upstream whose barriers its owner embeds."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import structlog
import typer

from schemas.settings.limits import parse_duration
from streaming.cli.configuration import ConfigArgument, ConfigOption, optional_config, usage
from streaming.cli.topics.target import Broker, TopicOption, topics_of
from streaming.runtime import logs
from streaming.service.left_out_columns import load
from streaming.service.presence import instance_name
from streaming.source.barriers.injecting.claim import ALONE
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import BarrierPace, target_of

_CHECK_S = 0.2
_DEFAULT_INTERVAL_MS, _MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 1_000, 100, 3_600_000
_log = structlog.get_logger(__name__)


def command(
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
    owner = (
        f"{ALONE} {instance_name()}"  # started again it goes on; another one is refused while this one lives
    )
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

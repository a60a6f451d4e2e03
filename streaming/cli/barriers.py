"""`backfill barriers`: the injector alone, for an upstream whose barriers its owner embeds."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import structlog
import typer

from schemas.config import load
from schemas.errors import Code, ConfigError
from schemas.job import parse_duration
from streaming.cli.target import BootstrapOption, Broker, ConfigArgument, KafkaOption, TopicOption, topic_of
from streaming.runtime import logs
from streaming.upstream.injector import BarrierInjector

_CHECK_S = 0.2
_DEFAULT_INTERVAL_MS, _MIN_INTERVAL_MS, _MAX_INTERVAL_MS = 1_000, 100, 3_600_000
_log = structlog.get_logger(__name__)


def command(
    config: ConfigArgument = None,
    topic: TopicOption = None,
    bootstrap: BootstrapOption = None,
    kafka: KafkaOption = None,
    interval: Annotated[
        str | None, typer.Option(help="Time between two barriers, 100ms to 1h; by default 1s.")
    ] = None,
) -> None:
    """Inject barriers into a topic until SIGTERM or Ctrl-C, and take wishes from its control topic.

    It goes on after the last barrier in the topic. A second injector of the same topic ends the first.
    """
    logs.configure()
    loaded = load(config) if config else None
    default_ms = loaded.barrier_interval_ms if loaded else _DEFAULT_INTERVAL_MS
    upstream, interval_ms = topic_of(loaded, topic), _interval_ms(interval) if interval else default_ms
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    settings = Broker(bootstrap, kafka).settings(loaded)
    with BarrierInjector(settings, upstream, interval_ms) as injector:
        _log.info("injecting_barriers", upstream=upstream, interval_ms=interval_ms)
        while not ended.wait(_CHECK_S):
            injector.check()
    last = injector.last_barrier
    _log.info("stopped", upstream=upstream, last_barrier=last.curr if last else None)


def _interval_ms(text: str) -> int:
    try:
        interval_ms = parse_duration(text)
    except ValueError:
        interval_ms = 0
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        raise ConfigError(
            Code.USAGE,
            where="--interval",
            found=repr(text),
            expected="a time from 100ms to 1h with its unit",
            next_step="write it as in 1s or 500ms",
        )
    return interval_ms

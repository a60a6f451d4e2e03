"""Checks a service's surroundings, and starts Spark for it.

So an error that can be found without Spark ends a start before Java comes up. Spark takes the longest then, so its JVM
is started next. The service, whose imports alone take more than a second, comes up meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas.records import RecordId
from schemas.settings.config import ServiceConfig
from streaming.kafka.clients import KafkaSettings
from streaming.runtime.java.spark_jvm import started_jvm
from streaming.runtime.spark_settings import SparkSettings
from streaming.service.checks.listed import BEFORE_JAVA, require
from streaming.service.checks.surroundings import Surroundings

if TYPE_CHECKING:
    from streaming.protocol.batches import OnPart
    from streaming.protocol.micro_batches import OnBatch
    from streaming.service.initial.copying import OnCopied
    from streaming.service.service import Service

log = structlog.get_logger()


@dataclass(kw_only=True)
class ServiceOptions:
    """Options of one run of a service.

    `on_batch` is called after each batch from the stream's thread, and must be quick; `on_part` after each part of a
    long interval, `on_copied` after parts of the table that the state starts from. `on_serving` is called by the thread
    of `Service.run` when start-up is over: from then on an exception in that thread would leave a batch half done, and
    `stop` is the way to end. `take_over`: from a successor that lives, too, with `refuses_living` only from a dead
    owner (`presence`). `accept_log_reset`: once for each log and partition. `paused`: nothing is read for jobs until
    they are resumed.
    """

    on_batch: OnBatch = lambda report: None
    on_part: OnPart = lambda plan: None
    on_copied: OnCopied = lambda progress: None
    on_serving: Callable[[], None] = lambda: None
    exit_when_complete: bool = False
    rebuild: bool = False
    skip_records: frozenset[RecordId] = frozenset()
    take_over: bool = False
    refuses_living: bool = False
    accept_log_reset: bool = False
    paused: bool = False


@contextmanager
def hosted_service(
    config: ServiceConfig, kafka: KafkaSettings, options: ServiceOptions, *, record_classes: bool = False
) -> Iterator[Service]:
    """A service ready to `run` on the broker at `kafka`. Afterwards Spark is gone.

    Raises: BackfillError when a check refuses the start, before Spark's JVM is started, or when that does not come up.
    """
    with ExitStack() as stack:
        log.info("starting", step="checks")
        found = Surroundings(
            config,
            kafka,
            options.skip_records,
            rebuild=options.rebuild,
            exit_when_complete=options.exit_when_complete,
            repairs=True,
        )
        require(found, *BEFORE_JAVA)
        log.info("starting", step="Java")
        jvm = stack.enter_context(started_jvm(_spark_settings(config, record_classes)))
        log.info("starting", step="Spark", beside=True)
        from streaming.runtime.session import session_starting

        spark = stack.enter_context(session_starting(jvm))
        from streaming.service.service import Service

        yield Service(config, kafka, spark, **vars(options))


def _spark_settings(config: ServiceConfig, record_classes: bool) -> SparkSettings:
    authenticate_secret, ssl_password = config.spark.secrets()
    settings = SparkSettings(
        master=config.spark.master,
        memory=config.spark.driver_memory,
        extra={
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in config.spark.settings.items()
        },
        encrypt_spills=config.kafka.security != "plaintext",
        record_classes=record_classes,
        worker_daemon="streaming.service.worker_daemon",
        python=config.spark.python,
        packages=None if config.spark.packages_file is None else Path(config.spark.packages_file),
        authenticate_secret=authenticate_secret,
        ssl_password=ssl_password,
    )
    if (
        config.kafka.security != "plaintext"
        and not settings.is_one_machine
        and not config.spark.authenticates
    ):
        log.warning(
            "cluster_not_authenticated",
            master=config.spark.master,
            reason="Kafka's secrets go in the clear to any process that joins the driver as an executor",
            next_step="spark.authenticate and spark.network.crypto.enabled in spark.settings, see docs/security.md",
        )
    return settings

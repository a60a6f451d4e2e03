"""A command that only asks is over soon: it imports no more than it needs. Held by what is imported, not by time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind
from state.journal import Journal
from state.progress_table import ProgressRow, ProgressTable
from state.replica import Replica
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState
from state.values.progress import Completed, InProgress
from tests.kit.tables import table

TABLE = table()
SPARK = {"pyspark", "py4j", "fastapi", "starlette", "uvicorn", "prometheus_client", "pandas"}
KAFKA = {"confluent_kafka", "cryptography"}
UNASKED = {"numpy", "structlog"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a service that has run: a job half way, in all four tables."""
    storage = Storage(str(tmp_path / "state"))
    storage.prepare()
    job = JobDefinition.declare({"name": "copy", "output": "copy", "filter": "id > 3"}, TABLE)
    barrier = Barrier(2 << 16, 1 << 16, BarrierKind.CHECKPOINT, 1, 0)
    state = JobState(job, start=1 << 16, opened=True)
    journal = Journal(storage, TABLE)
    journal.take_over("this test", "{}")
    journal.write_plan(
        BatchPlan(
            None,
            (AlignedBarrier(barrier, (7,)),),
            (0,),
            ReplicaVersion(0, 0, 0),
            2,
            (JobPlan(state),),
        )
    )
    progress = ProgressTable(storage, TABLE)
    progress.commit(
        [ProgressRow("copy", 0, Completed(None, 0)), ProgressRow("copy", 1, InProgress((5,), 3))], 2 << 16
    )
    Replica(storage, TABLE)
    path = tmp_path / "config.yaml"
    path.write_text(
        json.dumps(
            {
                "kafka": {"bootstrap": "127.0.0.1:1"},
                "upstream": "orders",
                "state": "state",
                "table": TABLE.to_dict(),
            }
        )
    )
    return path


def imported(*commands: list[str]) -> tuple[str, set[str]]:
    """Output of commands, one after another in one process, and the packages that are loaded at their end."""
    program = (
        "import json, sys\n"
        "from streaming.cli.app import main\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['backfill', *arguments]\n"
        "    assert main() in (0, 13), main()  # 13: nothing serves this state\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


@pytest.mark.slow
def test_a_command_that_only_asks_needs_neither_spark_nor_kafka_nor_numpy(config: Path) -> None:
    asking = (["list"], ["list", "--json"], ["status", "--json"], ["status", "copy"])
    said, modules = imported(*([*arguments, "-c", str(config)] for arguments in asking))
    assert said.count("copy") >= len(asking)
    assert not modules & (SPARK | KAFKA | UNASKED)


def test_the_help_of_a_command_that_steers_needs_no_spark() -> None:
    names = ("create", "pause", "drop", "plan", "verify", "consume", "produce")
    said, modules = imported(*([name, "--help"] for name in names))
    assert all(f"backfill {name} " in said for name in names)
    assert not modules & SPARK


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_as_everywhere(config: Path) -> None:
    program = "import sys; from streaming.cli.app import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "status", "-c", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        asking.stdout.close()
        assert asking.stderr is not None
        assert asking.stderr.read() == b""
        assert asking.wait() == 128 + signal.SIGPIPE

"""A state in an object store that speaks S3: who owns it, which stores are refused, and a service on it.

What its tables do there is in tests/unit/state, marked `any_storage`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
from pyarrow import fs

from schemas.errors import Code, Fenced, StateError
from state.journal import Journal
from state.object_store import open_store
from state.storage import Storage
from streaming.kafka.clients import KafkaSettings
from tests.kit.kill_scenario import KillScenario
from tests.kit.object_store import new_bucket, object_store, versitygw
from tests.kit.tables import table

pytestmark = pytest.mark.slow
TABLE = table({"id": "bigint"}, key=["id"], vnode_count=4)
TAKE_OVERS, MANY_TAKE_OVERS = 20, 200


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with object_store() as variables:
        yield variables


@pytest.fixture
def root(store: dict[str, str]) -> Iterator[str]:
    with new_bucket(store) as root:
        yield root


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """A root in a store that answers many requests at once."""
    objects = tmp_path / "objects"
    objects.mkdir()
    with versitygw(objects) as variables, new_bucket(variables) as root:
        yield root


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def take_overs(root: str, count: int, owner: str, together: Barrier) -> list[bool]:
    """Results of taking over some new states, which both processes make, and then take over, at one moment."""
    won: list[bool] = []
    try:
        for number in range(count):
            together.wait(60)
            journal = Journal(Storage(f"{root}/{number}"), TABLE)
            together.wait(60)
            won.append(_takes_over(journal, f"{owner} {number}"))
    except BrokenBarrierError:
        return won  # the other one says why
    except BaseException:
        together.abort()
        raise
    return won


def _takes_over(journal: Journal, owner: str) -> bool:
    try:
        journal.take_over(owner, "{}")
    except Fenced:
        return False
    return True


@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("root", TAKE_OVERS),
        ("folder", TAKE_OVERS),
        pytest.param("gateway", MANY_TAKE_OVERS, marks=pytest.mark.faults),
    ],
)
def test_of_two_that_take_over_at_one_moment_exactly_one_gets_the_state(
    place: str, count: int, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(place)
    spawned = multiprocessing.get_context("spawn")
    with spawned.Manager() as manager, ProcessPoolExecutor(2, spawned) as pool:
        together = manager.Barrier(2)
        rivals = [pool.submit(take_overs, root, count, owner, together) for owner in ("first", "second")]
        first, second = (rival.result() for rival in rivals)
    assert [one + other for one, other in zip(first, second, strict=True)] == [1] * count


def test_a_store_that_ignores_the_condition_of_a_put_is_refused() -> None:
    with object_store("--blind") as variables, new_bucket(variables) as root:
        with pytest.raises(StateError, match="both landed") as refused:
            Storage(root).prepare()
        assert refused.value.code is Code.STATE_PATH_INVALID


@pytest.mark.parametrize("place", ["root", "gateway", "folder"])
def test_a_state_begins_where_nothing_is_and_the_probe_leaves_nothing(
    place: str, request: pytest.FixtureRequest
) -> None:
    storage = Storage(request.getfixturevalue(place))
    storage.prepare()
    left = storage.filesystem.get_file_info(fs.FileSelector(storage.path(), allow_not_found=True))
    assert not left


def test_a_bucket_that_is_not_there_is_refused(root: str) -> None:
    with pytest.raises(StateError) as refused:
        Storage(root.replace("bucket-", "nobody-")).prepare()
    assert refused.value.code is Code.STATE_PATH_INVALID


def test_a_new_state_leaves_nothing_of_what_it_tried(root: str) -> None:
    storage = Storage(root)
    storage.prepare()
    storage.prepare()
    everything = fs.FileSelector(storage.path(), recursive=True, allow_not_found=True)
    assert storage.filesystem.get_file_info(everything) == []


def test_a_file_is_asked_for_when_it_is_written_and_not_before(root: str) -> None:
    """So a small one is one request, not three."""
    filesystem = Storage(root).filesystem
    stream = filesystem.open_output_stream("nobody-made-this-bucket/x")
    with pytest.raises(OSError, match="bucket"):
        stream.close()


def test_an_address_without_an_endpoint_is_one_of_amazon_s(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    filesystem, path = open_store("s3://key:secret@bucket/state?region=eu-central-1")
    assert (type(filesystem), path, filesystem.region) == (fs.S3FileSystem, "bucket/state", "eu-central-1")


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.faults
def test_a_service_is_killed_and_goes_on(bootstrap: str, root: str, tmp_path: Path) -> None:
    tried = KillScenario(
        KafkaSettings(bootstrap), tmp_path, rows=300, rate_limit=None, live_rate=20, config={"state": root}
    )
    try:
        with tried.live():
            tried.falls("replicated@3:kill")
            tried.completes()
        assert tried.judge().snapshot_rows > 0
    finally:
        tried.leave_nothing()

"""The folder of a lane's rows is this user's alone; what it can't hold is an error that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest

from schemas.errors import Code, EnvironmentProblem
from streaming.lane.before import store as row_store
from streaming.lane.before.folder import explained, own_folder
from streaming.lane.before.normal import Written
from streaming.lane.before.store import LocalStore, local_store
from tests.kit.small_disk import resize, small_tmpfs
from tests.kit.tables import table

TABLE = table({"id": "string", "v": "string"})
NO_KEYS = pa.array([], pa.binary())
NAME = "backfill-11111111-1111-1111-1111-111111111111-rows"


def rows(count: int, width: int = 100) -> Written:
    names = pa.array([f"{number:06}" for number in range(count)])
    return Written(names.cast(pa.binary()), (names, pa.array(["v" * width] * count)), NO_KEYS)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def usual_umask() -> None:
    os.umask(0o022)


@pytest.mark.usefixtures("usual_umask")
def test_folders_and_files_are_the_users_alone(tmp_path: Path) -> None:
    root = tmp_path / "made" / "with it"
    with closing(local_store(f"{NAME}/0-8", TABLE, str(root))) as store:
        store.write(rows(1), after=None, epoch=5)
        lane = root / NAME / "0-8"
        assert [mode(folder) for folder in (root, root / NAME, lane)] == [0o700] * 3
        files = {path.name: mode(path) for path in lane.iterdir()}
        assert files == {"data.mdb": 0o600, "lock.mdb": 0o600, "making.lock": 0o600}


def test_a_folder_that_others_could_read_is_closed_and_keeps_its_rows(tmp_path: Path) -> None:
    """Folders as earlier versions made them."""
    with closing(local_store(f"{NAME}/0-8", TABLE, str(tmp_path))) as store:
        store.write(rows(1), after=None, epoch=5)
    for folder in (tmp_path / NAME, tmp_path / NAME / "0-8"):
        folder.chmod(0o755)
    with closing(local_store(f"{NAME}/0-8", TABLE, str(tmp_path))) as store:
        assert store.epoch == 5
    assert [mode(tmp_path / NAME), mode(tmp_path / NAME / "0-8")] == [0o700] * 2


@pytest.mark.parametrize("loose", [0o770, 0o707, 0o777])
def test_a_folder_that_others_could_write_to_is_emptied(tmp_path: Path, loose: int) -> None:
    """They may have prepared the rows, or a link in the place of the lock file."""
    victim = tmp_path / "victim"
    victim.write_text("important")
    lane = tmp_path / NAME / "0-8"
    with closing(local_store(f"{NAME}/0-8", TABLE, str(tmp_path))) as store:
        store.write(rows(1), after=None, epoch=5)
    (lane / "making.lock").unlink()
    (lane / "making.lock").symlink_to(victim)
    lane.parent.chmod(loose)
    with closing(local_store(f"{NAME}/0-8", TABLE, str(tmp_path))) as store:
        assert store.epoch is None
    assert victim.read_text() == "important"


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("important")
    own_folder(tmp_path / "rows")
    (tmp_path / "rows" / "making.lock").symlink_to(victim)
    with pytest.raises(EnvironmentProblem) as caught:
        LocalStore(tmp_path / "rows", TABLE)
    assert caught.value.code is Code.ROWS_FOLDER_UNUSABLE
    assert victim.read_text() == "important"


def a_link(folder: Path) -> None:
    folder.parent.joinpath("elsewhere").mkdir()
    folder.symlink_to("elsewhere")


def a_file(folder: Path) -> None:
    folder.touch()


@pytest.mark.parametrize("below", [".", "0-8"], ids=["the state's", "the lane's"])
@pytest.mark.parametrize("prepare", [a_link, a_file])
def test_what_is_no_folder_is_refused(tmp_path: Path, prepare: Callable[[Path], None], below: str) -> None:
    if below == "0-8":
        (tmp_path / NAME).mkdir(mode=0o700)
    prepare((tmp_path / NAME / below).absolute())
    with pytest.raises(EnvironmentProblem) as caught:
        local_store(f"{NAME}/0-8", TABLE, str(tmp_path))
    error = caught.value
    assert (error.code, error.where) == (Code.ROWS_FOLDER_FOREIGN, str(tmp_path / NAME / below))
    assert error.found == f"{'a link' if prepare is a_link else 'a file'} of user {os.geteuid()}"
    assert "rows_folder" in error.next_step
    assert not list(tmp_path.glob("elsewhere/*"))


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).mkdir(mode=0o777)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(EnvironmentProblem) as caught:
        local_store(f"{NAME}/0-8", TABLE, str(tmp_path))
    assert caught.value.code is Code.ROWS_FOLDER_FOREIGN
    assert caught.value.found == f"a folder of user {owner}"
    assert not list((tmp_path / NAME).iterdir())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lmdb.DiskError("/rows: No space left on device"), Code.ROWS_DISK_FULL),
        (lmdb.Error("mdb_txn_commit: Disk quota exceeded"), Code.ROWS_DISK_FULL),
        (OSError(28, "No space left on device"), Code.ROWS_DISK_FULL),
        (lmdb.MapFullError("mdb_put"), Code.ROWS_FOLDER_UNUSABLE),
        (lmdb.Error("mdb_env_open: Input/output error"), Code.ROWS_FOLDER_UNUSABLE),
        (PermissionError(13, "Permission denied"), Code.ROWS_FOLDER_UNUSABLE),
    ],
    ids=repr,
)
def test_errors_of_the_disk_name_its_folder(tmp_path: Path, error: Exception, code: Code) -> None:
    with pytest.raises(EnvironmentProblem) as caught, explained(tmp_path / "not there"):
        raise error
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path / "not there"))


def test_a_process_with_little_address_space_has_a_smaller_map(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from tests.unit.lane.test_rows_folder import *\n"
        "import psutil; used = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[2]) << 20),) * 2)\n"
        "with closing(local_store('rows/0-8', TABLE, sys.argv[1])) as store:\n"
        "    store.fill(rows(1_000)); print(len(store))"
    )

    def tried(mib: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(tmp_path / str(mib)), str(mib)]
        (tmp_path / str(mib)).mkdir()
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert tried(4_096).stdout.split() == ["1000"]
    assert "ROWS_FOLDER_UNUSABLE" in tried(200).stderr


def test_a_full_map_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_MAP_BYTES", (1 << 20,))
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        with pytest.raises(EnvironmentProblem) as caught:
            store.fill(rows(100_000))
        assert caught.value.code is Code.ROWS_FOLDER_UNUSABLE
        assert "address space" in caught.value.found


@pytest.mark.faults
def test_a_full_file_system_is_an_error_and_gets_back_what_was_taken(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "small", 6) as small:
        with closing(local_store(f"{NAME}/0-8", TABLE, str(small))) as store:
            with pytest.raises(EnvironmentProblem) as caught, store.alone():
                store.fill(rows(100_000))
            assert (caught.value.code, caught.value.where) == (
                Code.ROWS_DISK_FULL,
                str(small / NAME / "0-8"),
            )
            assert "of 6 MiB" in caught.value.found
        assert os.statvfs(small).f_bfree > os.statvfs(small).f_blocks * 0.9
        with closing(local_store(f"{NAME}/0-8", TABLE, str(small))) as store:
            assert store.write(rows(10_000), after=None, epoch=1)
            with pytest.raises(EnvironmentProblem):
                store.write(rows(10_000, width=2_000), after=1, epoch=2)
            assert store.epoch == 1
            resize(small, 64)
            assert store.write(rows(10_000, width=2_000), after=1, epoch=2)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from state.storage import Storage
from tests.kit.object_store import new_bucket, object_store

FOLDER, STORE = "folder", "object store"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that are marked `any_storage` run on a folder and on an object store."""
    if "storage" in metafunc.fixturenames and metafunc.definition.get_closest_marker("any_storage"):
        kinds = [FOLDER, pytest.param(STORE, marks=pytest.mark.slow)]
        metafunc.parametrize("storage", kinds, indirect=True)


@pytest.fixture(scope="session")
def store() -> Iterator[dict[str, str]]:
    with object_store() as variables:
        yield variables


@pytest.fixture
def folder(tmp_path: Path) -> Storage:
    """For tests that look at its files by themselves."""
    return Storage(str(tmp_path / "state"))


@pytest.fixture
def storage(folder: Storage, request: pytest.FixtureRequest) -> Iterator[Storage]:
    if getattr(request, "param", FOLDER) == FOLDER:
        yield folder
    else:
        with new_bucket(request.getfixturevalue("store")) as root:
            yield Storage(root)

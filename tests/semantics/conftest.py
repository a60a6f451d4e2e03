from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kit.scene import Scene

MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(tmp_path: Path) -> MakeScene:
    """`scene(rows, table=..., lanes=..., columns=..., filter=...)`; see `Scene`."""
    return partial(Scene, tmp_path / "state")

from __future__ import annotations

from pathlib import Path

import pytest

from state.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "state"))

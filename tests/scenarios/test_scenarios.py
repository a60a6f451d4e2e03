"""Every file of this folder, played: what it prints is what it says, and the law holds at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.player import Player
from tests.scenarios.script import ScriptError, differences, parse, render

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path, request: pytest.FixtureRequest) -> None:
    text, name = file.read_text(), f"tests/scenarios/{file.name}"
    try:
        blocks = parse(text)
        printed, violations = Player(blocks).play()
    except ScriptError as error:
        pytest.fail(f"{name}: {error}", pytrace=False)
    found = render(blocks, printed)
    if request.config.getoption("--update", default=False):
        file.write_text(found)
    elif different := differences(name, text, found):
        pytest.fail(different, pytrace=False)
    if violations:
        pytest.fail("\n".join([f"{name}: the law does not hold", *violations]), pytrace=False)

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/scenarios --update` writes what was found into the scenarios."""
    parser.addoption("--update", action="store_true", help="rewrite the expected output of scenarios")

"""The machine's own Chromium, in a zone where it is about noon: a page shows the date of a time before midnight."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def _noon_zone() -> str:
    # The sign of these names is that of the hours that are missing to UTC.
    return f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the length of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], env={**os.environ, "TZ": _noon_zone()}
        )
        yield browser
        browser.close()

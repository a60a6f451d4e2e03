"""`make site`: every page is there, and every link and anchor leads somewhere, or the site does not come."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NOT_FETCHED = re.compile(r"[Ff]ailed to (?:fetch|download)|error sending request")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = ["make", "--no-print-directory", "site", f"SITE={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and _NOT_FETCHED.search(done.stderr):
        pytest.skip(f"what makes the site can't be fetched: {done.stderr[:500]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def article(page: Path) -> str:
    found = re.search(r"<article.*?</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[0]


@pytest.mark.slow
def test_the_site_has_every_page(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    made = {page.stem for page in site.glob("*.html")}
    assert pages | {"404", "index", "changes"} == made  # the README, and the changelog


def test_nothing_is_loaded_from_other_servers(site: Path) -> None:
    for page in site.glob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]*(?:src|href)=\"(https?:[^\"]*)", page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name


def test_markdown_is_read_as_the_repository_shows_it(site: Path) -> None:
    """Items within items, and no marks of Markdown that were taken for text."""
    assert "by number:<ul>" in article(site / "contract.html")
    for page in site.glob("*.html"):
        if page.stem == "404":
            continue
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", article(page), flags=re.DOTALL)
        assert re.findall(r"^(?:<p>)?(?:[-*] |\||```).*|.*\]\(.*", prose, re.MULTILINE) == [], page.name

"""The status page in a real browser, over a real service: it shows a running backfill, pauses it, goes on with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from streaming.observe.wiring import observed
from tests.kit.chromium import chromium, needs_chromium
from tests.kit.real import Run, SetUp

TOKEN = "a token of the page"
WITHIN_MS = 60_000
PAUSED = re.compile(r"^paused at \d\d:\d\d:\d\d$")
SECOND = re.compile(r"^\W*second ")
UP_TO_DATE = re.compile(r"^1 output, up to date \(.* s behind\)\.$")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a dozen looks, each of which may take a minute
    needs_chromium,
]


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def opened(browser: Browser, address: str, *, width: int = 1100, scheme: str = "light") -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.set_default_timeout(WITHIN_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.complaints = complaints  # type: ignore[attr-defined]
    page.goto(address)
    return page


def create(page: Page, name: str, output: str) -> None:
    """A job without one of the columns, checked first."""
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Output topic").fill(output)
    page.get_by_role("checkbox", name="note").uncheck()
    page.get_by_label("Output topic").press("Enter")
    expect(page.locator("#new-job-plan")).to_contain_text("Nothing is in its way", timeout=WITHIN_MS)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("#new-job-plan")).to_contain_text("sent", timeout=WITHIN_MS)
    page.get_by_role("button", name="Close").click()


class Counted(NamedTuple):
    sent: int
    since: float
    job: str


def counts(page: Page, address: str) -> list[Counted]:
    jobs = page.request.get(f"{address}/api/v1/status").json()["jobs"]
    return [Counted(job["sent"], job["sent_since"], job["name"]) for job in jobs]


def test_the_page_shows_a_backfill_halts_it_and_goes_on(set_up: SetUp, browser: Browser) -> None:
    stage = set_up({"name": "copy", "rate_limit": 20})
    for number in range(600):
        stage.upstream.put((number, "EU", None, None))
    listening: dict[str, Any] = {"listen": "127.0.0.1:0"}
    over: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms", "http": listening}
    with stage.running(**over) as run, observed(run.service, TOKEN) as address:
        assert address is not None
        run.until(lambda: len(run.reports) > 2)
        page = opened(browser, address)
        sentence, job = page.locator("#sentence"), page.get_by_role("row", name="copy").first
        expect(page.locator("#condition")).to_have_text("serving", timeout=WITHIN_MS)
        expect(sentence).to_contain_text("1 output, copy ", timeout=WITHIN_MS)
        page.get_by_role("button", name="copy", exact=True).click()
        expect(page.locator("[data-lanes] .cell")).to_have_count(stage.upstream.table.vnode_count)
        expect(page.get_by_text(re.compile("offsets? at .* read by no consumer group"))).to_be_visible()
        page.locator("summary", has_text="Upstream").click()
        expect(page.locator("#partitions tbody tr")).to_have_count(stage.upstream.partitions)
        job.get_by_role("button", name="Pause").click()
        page.get_by_label("Token").fill("another")
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#login-why")).to_contain_text("not the service's token", timeout=WITHIN_MS)
        page.complaints.clear()  # type: ignore[attr-defined]  # of that answer
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_label("Token").press("Enter")
        expect(job.get_by_role("status")).to_have_text(PAUSED, timeout=WITHIN_MS)
        expect(sentence).to_contain_text("copy paused at", timeout=WITHIN_MS)
        expect(page.locator("#newest li").first).to_contain_text("requested: pause copy")
        assert run.reports[-1].outcome.jobs[0].paused
        page.reload()
        job.get_by_role("button", name="Resume").click()
        expect(job.get_by_role("status")).to_contain_text("resumed at", timeout=WITHIN_MS)
        page.get_by_role("button", name="copy", exact=True).click()
        page.locator("[data-limit]").fill("")
        page.get_by_role("button", name="Set limit").click()
        run.until(lambda: run.is_complete("copy"))
        expect(job).to_contain_text("live", timeout=WITHIN_MS)
        expect(sentence).to_have_text(UP_TO_DATE, timeout=WITHIN_MS)
        expect(page.locator("#newest li").first).to_contain_text("copy is complete")
        second = f"{stage.upstream.name}-second"
        create(page, "second", second)
        run.until(lambda: run.is_complete("second"))
        row = page.get_by_role("row", name=SECOND)
        expect(row).to_contain_text(second, timeout=WITHIN_MS)
        assert page.complaints == []  # type: ignore[attr-defined]
        narrow = opened(browser, address, width=360, scheme="dark")
        expect(narrow.locator("#sentence")).to_contain_text("2 outputs", timeout=WITHIN_MS)
        assert narrow.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert min(counted := counts(page, address)).sent >= 600
    service = stage.service(**over)
    service.owner = "the next process"
    with observed(service, TOKEN) as address:
        run = Run(service)
        assert address is not None
        page = opened(browser, address)
        expect(page.locator(".hour")).to_contain_text("the process before was stopped", timeout=WITHIN_MS)
        expect(page.locator("#sentence")).to_contain_text("2 outputs, all", timeout=WITHIN_MS)
        assert counts(page, address) == counted
        run.stop()
    assert stage.verify().clean

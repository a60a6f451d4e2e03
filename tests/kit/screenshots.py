"""`make screenshots`: the pictures of the status page in docs/images, of a real service in the machine's own Chromium.

One job that is complete, one that is paused on its way, 300 changes a second, and the form for a new job.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from tests.kit.chromium import CHROMIUM, chromium
from tests.kit.process import Process

TABLE = {
    "name": "orders",
    "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"},
    "primary_key": ["id"],
}
ROWS, CHANGES_PER_S = 50_000, 300
TOKEN = "of the screenshots"
FILTER = "amount >= 100 AND region IN ('EU', 'US')"
_WITHIN_MS = 300_000


def main(folder: Path) -> int:
    if CHROMIUM is None:
        sys.stderr.write(
            "There is no Chromium on this machine: install it, or look at the page by yourself.\n"
        )
        return 1
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as work:
        kafka = KafkaSettings(broker.bootstrap)
        create_topic(kafka, "orders", 4)
        generator = ChangeGenerator(declare(TABLE))
        produce_rows(ChangeSender(kafka, "orders"), generator, ROWS)
        changes = LiveLoad(kafka, "orders", generator, CHANGES_PER_S, ChangeMix(updates=0.5, deletes=0.2))
        service = Process.start(_configuration(Path(work), kafka), PAGE_TOKEN=TOKEN)
        try:
            with changes:
                service.await_event("page")
                address = service.events("page")[0]["address"]
                with chromium() as browser:
                    _take(browser, address, folder)
        finally:
            service.kill()
    return 0


def _configuration(work: Path, kafka: KafkaSettings) -> Path:
    declared = {
        "kafka": {"bootstrap": kafka.bootstrap},
        "upstream": "orders",
        "state": "state",
        "table": TABLE,
        "http": {"listen": "127.0.0.1:0", "token_env": "PAGE_TOKEN"},
        "jobs": [
            {"name": "everything", "output": "everything", "rate_limit": 500},
            {"name": "big-orders", "output": "big-orders", "filter": FILTER, "rate_limit": 10_000},
        ],
    }
    file = work / "config.json"
    file.write_text(json.dumps(declared), encoding="utf-8")
    return file


def _take(browser: Browser, address: str, folder: Path) -> None:
    light = _opened(browser, address, 1_180, "light")
    complete = light.get_by_role("row", name="big-orders").first
    expect(complete).to_contain_text("live", timeout=_WITHIN_MS)
    light.get_by_role("button", name="Pause").first.click()
    light.get_by_label("Token").fill(TOKEN)
    light.get_by_label("Token").press("Enter")
    paused = light.get_by_role("row", name="everything").first
    expect(paused.get_by_role("status")).to_contain_text("paused at", timeout=_WITHIN_MS)
    light.screenshot(path=folder / "page-light.png", full_page=True)
    light.get_by_role("button", name="New job").click()
    light.get_by_label("Name", exact=True).fill("small-orders")
    light.get_by_label("Filter").fill("amount < 100")
    light.get_by_role("button", name="Check").click()
    expect(light.locator("#new-job-plan")).to_contain_text("Nothing is in its way", timeout=_WITHIN_MS)
    light.screenshot(path=folder / "page-new-job.png")
    for name, width, scheme in (("page-dark", 1_180, "dark"), ("page-narrow", 390, "light")):
        page = _opened(browser, address, width, scheme)
        expect(page.locator("#jobs tbody")).to_have_count(2, timeout=_WITHIN_MS)
        if scheme == "dark":
            page.get_by_role("button", name="everything", exact=True).click()
            expect(page.locator("[data-lanes] .cell").first).to_be_visible(timeout=_WITHIN_MS)
        page.screenshot(path=folder / f"{name}.png", full_page=True)


def _opened(browser: Browser, address: str, width: int, scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    page.goto(address)
    return page


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")))

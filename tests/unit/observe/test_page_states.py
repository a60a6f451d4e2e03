"""The status page in every state of a service: its sentence, its cause, its jobs, on a narrow and a usual screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.chromium import needs_chromium
from tests.kit.page_states import STATES

WITHIN_MS = 60_000
_TIME = r"\d\d:\d\d:\d\d"
_LONGEST_PX = 2_300
"""At 390 px, with three jobs and what is amiss unfolded."""

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
]


@dataclass(frozen=True, slots=True)
class Seen:
    """The condition, the sentence as a pattern, the text of what is wrong (None: nothing is), and the strip's name."""

    condition: str
    sentence: str
    wrong: str | None
    strip: str
    event: str
    unfolded: tuple[str, ...] = ()


SEEN = {
    "empty": Seen("serving", r"No outputs yet\.", None, "serving 50 min", "serving"),
    "building": Seen(
        "starting",
        r"Copying the table: 132,000 of 300,000 rows \(44 %\)\. ",
        "Not ready: no batch has ended yet",
        "starting 40 s",
        "this process started",
    ),
    "under way": Seen(
        "serving",
        r"4 outputs, 3 up to date \(0\.\d s behind\), third 44 %, done about \d\d:\d\d\.",
        None,
        "not running 2 min",
        "serving",
    ),
    "five serving": Seen(
        "serving", r"5 outputs, all up to date \(0\.\d s behind\)\.", None, "serving 50 min", "serving"
    ),
    "ended": Seen(
        "serving",
        r"3 outputs, 2 up to date \(0\.\d s behind\), 1 ended complete\.",
        None,
        "serving 50 min",
        "serving",
    ),
    "paused": Seen(
        "serving",
        r"3 outputs, 2 up to date \(12 s behind\), third paused at 44 %\.",
        None,
        "serving",
        "requested: pause third",
    ),
    "suspended": Seen(
        "suspended",
        rf"3 outputs, 2 complete as of {_TIME} \(5 min 0 s behind\), third 44 %, at a standstill\.",
        "UNKNOWN_OP at up-2@207978: found 9 bytes; expected a Change.",
        "suspended 5 min",
        "suspended: UNKNOWN_OP",
    ),
    "broker away": Seen(
        "degraded",
        rf"3 outputs, 2 complete as of {_TIME} \(18 s behind\), third 44 %, at a standstill\.",
        "BROKER_UNREACHABLE: found no answer; expected one. Next: start it.",
        "degraded 18 s",
        "degraded: BROKER_UNREACHABLE",
    ),
    "disk low": Seen(
        "serving",
        r"3 outputs, all up to date \(0\.\d s behind\)\.",
        "The state's disk has 700.0 MiB left. Next: make room on it",
        "serving",
        "serving",
        ("State",),
    ),
    "restarted": Seen(
        "starting",
        rf"Starting: looking for an unfinished batch\. 3 outputs, all complete as of {_TIME} \(15 s behind\)\.",
        "5 times in a row since",
        "not running 12 s",
        "this process started",
    ),
    "stopped": Seen(
        "no answer",
        rf"3 outputs, all complete as of {_TIME} \(0\.\d s behind\)\.",
        "Next: see whether its process runs, and how its log ends.",
        "no answer",
        "stopping",
    ),
}


def check(page: Page, seen: Seen) -> None:
    expect(page.locator("#condition")).to_have_text(seen.condition, timeout=WITHIN_MS)
    expect(page.locator("#sentence")).to_have_text(re.compile(f"^{seen.sentence}$"), timeout=WITHIN_MS)
    expect(page.get_by_role("img", name=re.compile(seen.strip))).to_be_visible(timeout=WITHIN_MS)
    expect(page.locator("#newest li").first).to_contain_text(seen.event)
    wrong = page.get_by_role("region", name="What is wrong")
    if seen.wrong is None:
        expect(wrong).to_be_hidden()
    else:
        expect(wrong).to_contain_text(seen.wrong)
    for fold in ("Upstream", "State", "Service"):
        details = page.locator("details", has=page.get_by_role("heading", name=fold))
        assert (details.get_attribute("open") is not None) == (fold in seen.unfolded), fold


@pytest.mark.parametrize("state", STATES)
def test_every_state_says_what_is_so_and_fits_narrow_and_usual_screens(browser: Browser, state: str) -> None:
    fed, seen = STATES[state](), SEEN[state]
    before = SEEN[state] if state != "stopped" else None
    with fed.served() as address:
        pages = [browser.new_page(viewport={"width": width, "height": 900}) for width in (390, 1_200)]
        for page in pages:
            page.goto(address)
            if before is not None:
                check(page, before)
            else:
                expect(page.locator("#condition")).to_have_text("stopping", timeout=WITHIN_MS)
    for page in pages:
        if state == "stopped":
            check(page, seen)
            expect(page.locator("#as-of")).to_contain_text("All figures are as of")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate("document.documentElement.scrollHeight") < _LONGEST_PX
        page.close()


def test_the_row_of_a_job_has_its_figures_and_opens_by_click_and_by_keyboard(browser: Browser) -> None:
    with STATES["under way"]().served() as address:
        page = browser.new_page(viewport={"width": 1_200, "height": 900})
        page.goto(address)
        third, live = page.get_by_role("row", name="third"), page.get_by_role("row", name="big-orders").first
        expect(third).to_contain_text("44.0 %", timeout=WITHIN_MS)
        expect(third).to_contain_text("220 rows/s")
        expect(third).to_contain_text(re.compile(r"about \d\d:\d\d"))
        expect(live).to_contain_text(re.compile(rf"0\.\d s\s*worst 1\d s at {_TIME}"))
        expect(live).to_contain_text(re.compile(rf"since {_TIME}"))
        expect(live).to_contain_text("debezium json")
        details = page.get_by_text("arrangement: from the replica, by vnode")
        live.get_by_text("debezium json").click()
        expect(details).to_be_visible(timeout=WITHIN_MS)
        read = "151,234 offsets.*read by warehouse 12,345 behind, not running; search-index at its end"
        expect(page.get_by_text(re.compile(read))).to_be_visible(timeout=WITHIN_MS)
        page.get_by_role("button", name="big-orders", exact=True).press("Enter")
        expect(details).to_be_hidden()
        expect(page.locator("#latency-note")).to_contain_text("dashed: the budget of 2.0 s")
        expect(page.locator("#latency .axis")).to_contain_text(re.compile(rf"highest 5\.5 s at {_TIME}"))
        page.close()


def test_the_form_for_a_new_job_says_where_it_goes_and_what_a_format_is_for(browser: Browser) -> None:
    with STATES["empty"]().served() as address:
        page = browser.new_page()
        page.goto(address)
        page.get_by_role("button", name="New job").click(timeout=WITHIN_MS)
        page.get_by_label("Name", exact=True).fill("fourth")
        expect(page.get_by_label("Output topic")).to_have_attribute("placeholder", "fourth")
        expect(page.locator("#output-why")).to_contain_text("its barriers are in fourth.barriers")
        expect(page.locator("#format-why")).to_contain_text("the row as it is now, by its key")
        page.get_by_label("Format").select_option("change")
        expect(page.locator("#output-why")).to_contain_text("among its records")
        expect(page.locator("#format-why")).to_contain_text("For readers that follow barriers")
        page.close()

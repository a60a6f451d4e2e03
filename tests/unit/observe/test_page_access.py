"""The status page for those who have a keyboard and no mouse, who hear it, or who are tired: in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from streaming.observe.models import DiskStatus
from tests.kit.chromium import needs_chromium
from tests.kit.fed_page import AWAY, DISK, QUIET, TOKEN, FedPage

WITHIN_MS = 60_000
FOCUSED = """() => {
  const it = document.activeElement, style = getComputedStyle(it);
  const name = it.ariaLabel ?? it.textContent;
  const isSeen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return it === document.body ? null : [name, isSeen];
}"""
PALE = r"""() => {
  const parsed = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = (each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map((each) => linear(each / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const color = parsed(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const it = node.parentElement;
    if (!node.textContent.trim() || !it.checkVisibility() || it.closest(".unseen, :disabled, script")) continue;
    const [one, other] = [light(parsed(getComputedStyle(it).color)), light(behind(it))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    found.push([ratio, node.textContent.trim()]);
  }
  return found.sort(([one], [other]) => one - other);
}"""
COUNT_NEWS = """() => {
  window.news = [];
  new MutationObserver(() => window.news.push(document.getElementById("announced").textContent))
    .observe(document.getElementById("announced"), { childList: true, characterData: true, subtree: true });
}"""
FOLDS = ("Upstream", "State", "Service")
_ROLES = "button|textbox|checkbox|combobox|spinbutton|link|img|progressbar|region"
NAMED, NAMELESS = (
    re.compile(rf"^ *- '?(?:{_ROLES}){end}", re.MULTILINE) for end in (r' "\w', r'(?! "\w).*$')
)
FAILING = replace(
    QUIET[0], failures=3, error="SPARK_FAILED", again_in_s=4.0, next_step="see that workers have memory"
)

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
]


@pytest.fixture
def fed() -> FedPage:
    page = FedPage()
    page.batch()
    return page


def opened(
    browser: Browser, address: str, *, width: int = 1100, scheme: str = "light", condition: str = "serving"
) -> Page:
    """The page, once it shows the status and the parts of its jobs."""
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page.set_default_timeout(WITHIN_MS)
    page.goto(address)
    expect(page.locator("#condition")).to_have_text(condition, timeout=WITHIN_MS)
    expect(page.locator("#jobs [data-row]").first).to_be_visible(timeout=WITHIN_MS)
    return page


def unfold(page: Page, name: str) -> None:
    """The details of a job, with its parts."""
    page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator("[data-lanes] .cell").first).to_be_visible(timeout=WITHIN_MS)


def stops(page: Page) -> list[tuple[str, bool]]:
    """Elements that Tab comes to, from the top to the end of the page, and whether they are seen."""
    found: list[tuple[str, bool]] = []
    for _ in range(50):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at is None or (found and at[0].strip() == found[0][0]):
            break
        found.append((at[0].strip(), at[1]))
    return found


def test_tab_comes_to_everything_in_the_order_of_the_page(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
        page.get_by_role("button", name="copy", exact=True).focus()
        page.keyboard.press("Enter")
        page.locator("body").click(position={"x": 1, "y": 1})
        found = [
            (name.partition(" ")[0] if name.startswith(FOLDS) else name, seen) for name, seen in stops(page)
        ]
        of_copy = ["copy", "Pause copy", "limit of copy, rows per second", "Set limit of copy", "Drop copy"]
        assert [name for name, _ in found] == ["New job", *of_copy, "large", *FOLDS, "metrics", "API"]
        assert all(is_seen for _, is_seen in found)
        assert page.evaluate("[...document.querySelectorAll('[tabindex]')].every((it) => it.tabIndex === 0)")
        page.close()


def test_every_control_and_chart_has_a_name(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
        unfold(page, "copy")
        for fold in FOLDS:
            page.locator("summary", has_text=fold).click()
        found = page.locator("main").aria_snapshot()
        page.get_by_role("button", name="New job").click()
        found += page.locator("#new-job").aria_snapshot()
        assert len(NAMED.findall(found)) > 25
        assert NAMELESS.findall(found) == []
        chart = re.compile(
            r"seconds from injection to the outputs: now .* s, lowest .* s, highest .* s at .*"
        )
        expect(page.locator("#latency svg")).to_have_accessible_name(chart)
        page.close()


def test_a_suspended_table_says_why_and_is_led_on_by_a_button(browser: Browser, fed: FedPage) -> None:
    fed.suspend()
    with fed.served() as address:
        page = opened(browser, address, condition="suspended")
        expect(page.locator("#verdict")).to_contain_text("5 times in a row: UNKNOWN_OP at up-2@207978")
        commands = page.locator("#commands code").all_text_contents()
        assert commands[0] == "backfill resume --table orders --skip-record 2@207978"
        page.get_by_role("button", name=f"Copy {commands[0]}").click()
        copied = page.get_by_role("button", name=f"Copy {commands[0]}")
        expect(copied).to_have_text(re.compile("Copied|Selected"), timeout=WITHIN_MS)
        assert page.locator("#jobs tbody").count() == 2
        expect(page.get_by_role("button", name="Pause copy")).to_be_hidden()
        expect(page.get_by_role("button", name="New job")).to_be_hidden()
        page.get_by_role("button", name="Leave record 2@207978 out").click()
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("#ways-on")).to_be_hidden(timeout=WITHIN_MS)
        assert [way.skip_records for way in fed.ways] == [["2@207978"]]
        page.close()


def test_a_button_that_was_pressed_keeps_the_focus(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
        page.get_by_role("button", name="Pause copy").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Resume copy")).to_be_focused(timeout=WITHIN_MS)
        said = page.get_by_role("row", name="copy").first.get_by_role("status")
        expect(said).to_have_text(re.compile(r"^paused at \d\d:\d\d:\d\d$"), timeout=WITHIN_MS)
        expect(page.locator("#newest li").first).to_contain_text("requested: pause copy")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Pause copy")).to_be_focused(timeout=WITHIN_MS)
        page.close()


def test_a_screen_reader_announces_news_and_not_of_every_second(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
        page.evaluate(COUNT_NEWS)
        fed.now_s = 40.0
        expect(page.locator("#verdict")).to_contain_text("for 40 s", timeout=WITHIN_MS)
        fed.now_s = 50.0
        expect(page.locator("#verdict")).to_contain_text("for 50 s", timeout=WITHIN_MS)
        expect(page.locator("#announced")).to_have_role("status")
        (news,) = page.evaluate("window.news")
        assert re.fullmatch(
            r"Not ready: NO_BARRIERS at up: found .*; expected .*\. Next: see in the log .*\.", news
        )
        fed.cache.vitals.interrupted(AWAY)
        text = "Not ready: BROKER_UNREACHABLE: found no answer; expected one."
        expect(page.locator("#verdict")).to_have_text(text, timeout=WITHIN_MS)
        expect(page.locator("#next-step")).to_have_text("Next: start it.")
        assert len(page.evaluate("window.news")) == 2
        page.close()


def test_what_is_amiss_beside_the_batches_stands_at_the_top(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
        expect(page.get_by_role("region", name="What is wrong")).to_be_hidden()
        for fold in ("Upstream", "State"):
            page.locator("summary", has_text=fold).click()
        state = page.locator("#state-facts")
        expect(state).to_contain_text("12 min")
        expect(state).to_contain_text("none is due")
        expect(state).to_contain_text("rows by key4.0 GiB")
        expect(page.locator("#source")).to_contain_text("in the topic, by this service, every 1.0 s")
        expect(page.locator("#source")).to_contain_text("to read lag1,200 records")
        expect(page.locator("#source")).to_contain_text("unread kept for5 d 18 h")
        expect(page.locator("#troubles")).to_be_hidden()
        fed.maintenance = (replace(QUIET[0], running_s=8.0), *QUIET[1:])
        expect(state).to_contain_text("under way for 8.0 s", timeout=WITHIN_MS)
        fed.maintenance, fed.disk = (FAILING, *QUIET[1:]), replace_disk(free_bytes=5 << 20, is_low=True)
        shown = page.locator("#troubles li")
        first = "The compaction fails: SPARK_FAILED, 3 in a row, again in 4.0 s. Next: see that workers have memory."
        expect(shown.first).to_have_text(first, timeout=WITHIN_MS)
        expect(shown.last).to_contain_text("has 5.0 MiB left. Next: make room")
        expect(page.locator("#announced")).to_contain_text("The compaction fails")
        page.get_by_role("button", name="large", exact=True).click()
        details = page.locator("#jobs tbody").last.locator("[data-terms]")
        expect(details).to_contain_text("arrangement: from the replica")
        expect(details).to_contain_text("large-orders, 4 partitions, debezium json")
        expect(details).to_contain_text("in large-orders.barriers")
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_easy_to_read_and_fits_a_narrow_screen(browser: Browser, fed: FedPage, scheme: str) -> None:
    fed.maintenance, fed.disk = (FAILING, *QUIET[1:]), replace_disk(free_bytes=5 << 20, is_low=True)
    with fed.served() as address:
        page = opened(browser, address, width=360, scheme=scheme)
        unfold(page, "copy")
        page.locator("summary", has_text="Service").click()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        seen = [page.evaluate(PALE)]
        fed.now_s = 40.0
        expect(page.locator("#verdict")).to_contain_text("Not ready", timeout=WITHIN_MS)
        seen.append(page.evaluate(PALE))
        page.get_by_role("button", name="New job").click()
        seen.append(page.evaluate(PALE))
        assert all(len(texts) > 80 for texts in seen)
        assert [text for texts in seen for text in texts if text[0] < 4.5] == []
        page.close()


def test_figures_of_a_service_that_is_away_are_said_to_be_old(browser: Browser, fed: FedPage) -> None:
    with fed.served() as address:
        page = opened(browser, address)
    expect(page.locator("#condition")).to_have_text("no answer", timeout=WITHIN_MS)
    expect(page.locator("#as-of")).to_have_text(re.compile(r"All figures are as of \d\d:\d\d:\d\d, .* ago\."))
    expect(page.locator("#strip")).to_have_accessible_name(re.compile("no answer"))
    expect(page.locator("#announced")).to_contain_text("Next: see whether its process runs")
    page.close()


def replace_disk(**over: object) -> DiskStatus:
    return DISK.model_copy(update=over)

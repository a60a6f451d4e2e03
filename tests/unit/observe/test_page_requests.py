"""Requests of the status page in a real browser: workers, fields that are no columns, and jobs of another shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from schemas.formats.row_names import FieldsSeen
from schemas.job import JobDefinition
from schemas.kinds.columns import FormerNames
from schemas.records import Add, Alter, Lanes
from tests.kit.chromium import needs_chromium
from tests.kit.fed_page import TOKEN, FedPage
from tests.kit.reports import TABLE

WITHIN_MS = 60_000

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
]


@pytest.fixture
def fed() -> FedPage:
    page = FedPage()
    page.batch()
    page.cache.vitals.fields = FieldsSeen(undeclared=("discount", "größe"))
    return page


@pytest.fixture
def page(fed: FedPage, browser: Browser) -> Iterator[Page]:
    with fed.served() as address:
        page = browser.new_page()
        page.add_init_script(f'sessionStorage.setItem("token", "{TOKEN}")')
        page.goto(address)
        expect(page.locator("#condition")).to_have_text("serving", timeout=WITHIN_MS)
        yield page
        page.close()


def test_workers_are_set(fed: FedPage, page: Page) -> None:
    page.locator("#service-fold summary").click()
    page.get_by_label("workers (lanes)").fill("3")
    page.get_by_role("button", name="Set workers").click()
    expect(page.locator("#lanes-answer")).to_have_text("sent: 3 workers behind the next barrier")
    assert fed.mutations == [Lanes(3)]


def test_fields_become_columns_or_are_ignored(fed: FedPage, page: Page) -> None:
    c = replace(TABLE.columns[-1], read_as=(FormerNames(1, ()),))
    fed.cache.columns = lambda: (*TABLE.columns[:-1], c)
    page.locator("#upstream-fold summary").click()
    expect(page.locator("#upstream-fold")).to_contain_text(f"incomplete columns{c.name}")
    page.get_by_label("Type of the new column").select_option("int")
    page.get_by_role("button", name="Add column").click()
    expect(page.locator("#undeclared-answer")).to_contain_text("column discount comes")
    page.get_by_label("Field that is no column").select_option("größe")
    expect(page.get_by_role("button", name="Add column")).to_be_disabled()
    page.get_by_role("button", name="Ignore").click()
    expect(page.locator("#undeclared-answer")).to_contain_text("field größe is ignored")
    assert fed.mutations == [
        Alter('[{"add":{"discount":"int"},"accept_missing":true}]'),
        Alter('[{"ignore":"gr\\u00f6\\u00dfe"}]'),
    ]


def test_a_job_of_another_shape_is_created(fed: FedPage, page: Page) -> None:
    fed.cache.columns = lambda: TABLE.columns
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Name", exact=True).fill("eu")
    page.get_by_text("Names, masks, key and headers").click()
    page.get_by_label("Name of region in the output").fill("place")
    page.get_by_label("Value of region in the output").select_option("hashed")
    page.get_by_label("Value of amount in the output").select_option("null")
    page.get_by_label("Key of the records").fill("region, id")
    page.get_by_label("File with the key for hashes").fill("/etc/hash.key")
    page.get_by_label("Headers passed on").fill("trace-id")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#new-job-plan")).to_contain_text("Nothing is in its way", timeout=WITHIN_MS)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("#new-job-plan")).to_contain_text("sent", timeout=WITHIN_MS)
    [added] = fed.mutations
    assert isinstance(added, Add)
    wanted: dict[str, object] = {
        "name": "eu",
        "output": "eu",
        "format": "upsert",
        "key": ["region", "id"],
        "headers": ["trace-id"],
    }
    wanted |= {
        "columns": ["id", {"place": "hash(region)"}, {"amount": None}],
        "hash_key_file": "/etc/hash.key",
    }
    assert JobDefinition.from_json(added.job, TABLE) == JobDefinition.declare(wanted, TABLE)

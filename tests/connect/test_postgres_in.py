"""A table of PostgreSQL through Debezium's connector: an output adds up to what a SELECT says, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas.errors import Code, InputError
from tests.connect.conftest import Circle
from tests.kit.connect import orders
from tests.kit.folded import folded

pytestmark = [pytest.mark.connect, pytest.mark.timeout(1_200)]
CircleOf = Callable[..., Circle]
COPY = {"name": "copy", "rate_limit": 2_000}
SOME = {
    "name": "some",
    "filter": orders.FILTER,
    "columns": list(orders.NARROW),
    "format": "debezium",
    "encoding": "json-schema",
}
FRAMES = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
FORMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plain": ({"time": "microseconds"}, {"time.precision.mode": "microseconds"}),
    "schemas": ({"time": "adaptive"}, FRAMES),
    "text": (
        {"time": "isostring", "decimal": "string"},
        {"time.precision.mode": "isostring", "decimal.handling.mode": "string"},
    ),
}
STEPS = 400


def is_what_the_database_has(circle: Circle, narrow: Sequence[str] = orders.NARROW) -> None:
    """Both outputs at their last barrier, and the table as it is now; of the second these columns."""
    postgres, database = circle.postgres, circle.database
    whole = orders.selected(postgres, database, circle.stage.upstream.table.column_names)
    assert orders.comparable(folded(circle.stage)) == whole
    some = orders.selected(postgres, database, narrow, orders.FILTER)
    assert orders.comparable(folded(circle.stage, number=1)) == some
    assert 0 < len(some) < len(whole)


@pytest.mark.parametrize("form", FORMS)
def test_outputs_add_up_to_what_the_database_has(circle_of: CircleOf, form: str) -> None:
    upstream, settings = FORMS[form]
    read_as = {"format": "debezium", "decimal": "precise", **upstream}
    # A time of day is text then, and a number else.
    without = ("clock",) if form == "text" else ()
    circle = circle_of(read_as, settings, COPY, SOME, seed=len(form), without=without)
    stage, writers = circle.stage, circle.writers
    writers.write(STEPS)
    circle.source.begin()
    writers.write(STEPS)
    circle.barrier()
    with stage.running() as run:
        while not (run.is_complete("copy") and run.is_complete("some")):
            writers.write(STEPS // 4)
            run.reach(circle.barrier())
        is_what_the_database_has(circle)
        for identity in ("FULL", "DEFAULT"):
            circle.identity(identity)
            writers.write(STEPS)
            run.reach(circle.barrier())
            is_what_the_database_has(circle)
    assert stage.verify(0).clean
    assert stage.verify(1).clean


def test_whole_rows_before_are_those_that_the_database_logs(circle_of: CircleOf) -> None:
    upstream, settings = FORMS["plain"]
    read_as = {"format": "debezium", "decimal": "precise", "before": "full", **upstream}
    circle = circle_of(read_as, settings, COPY, SOME, seed=11)
    circle.identity("FULL")
    circle.writers.write(STEPS)
    circle.source.begin()
    circle.writers.write(STEPS)
    circle.barrier()
    with circle.stage.running() as run:
        while not (run.is_complete("copy") and run.is_complete("some")):
            circle.writers.write(STEPS // 4)
            run.reach(circle.barrier())
        circle.writers.write(STEPS)
        run.reach(circle.barrier())
        is_what_the_database_has(circle)
    assert circle.stage.verify(0).clean
    assert circle.stage.verify(1).clean


def test_a_key_that_changes_beside_a_large_value_needs_the_row_before(circle_of: CircleOf) -> None:
    upstream, settings = FORMS["plain"]
    circle = circle_of({"format": "debezium", "decimal": "precise", **upstream}, settings, COPY)
    circle.execute("INSERT INTO orders (region, id, body) VALUES ('EU', 1, repeat('x', 9000))")
    circle.source.begin()
    circle.identity("FULL")
    circle.execute("UPDATE orders SET id = 2")
    circle.barrier()
    with circle.stage.running() as run:
        run.reach(circle.barrier())
        circle.identity("DEFAULT")
        circle.execute("UPDATE orders SET id = 3")
        circle.barrier()
        error = run.end()
        run.error = None
    assert isinstance(error, InputError)
    assert error.code is Code.TOAST_UNAVAILABLE
    assert "column body" in str(error)

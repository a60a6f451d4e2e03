"""The API is what its description says: requests of every kind, drawn from the description itself."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Err, Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from state.values.progress import Completed
from tests.kit.reports import job, report
from tests.kit.values import examples
from tests.unit.observe.test_api import WITH_TOKEN, application


def _described() -> FastAPI:
    app, cache, _, _ = application(clock=lambda: 0.0)
    cache.note(report([job("copy")], {"copy": {0: Completed((9,), 50)}}, stored={0: 40}))
    cache.vitals.batch_done()
    return app


# What is too large is refused as well as what is wrong.
rejections = {
    "checks": {"negative_data_rejection": {"expected-statuses": ["400", "401", "403", "404", "413", "422"]}}
}
schema = schemathesis.openapi.from_asgi(
    "/api/openapi.json",
    _described(),
    config=schemathesis.Config.from_dict(rejections),
    headers={"Host": "testserver"},
)


def _operation(found: Ok[Any] | Err[Any]) -> Any:
    assert isinstance(found, Ok), found
    return found.ok()


# Not by schemathesis's own parametrize: its tests share one id, of which pytest-xdist runs the first alone.
@pytest.mark.parametrize(
    "operation", list(map(_operation, schema.get_all_operations())), ids=lambda each: each.label
)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_request_makes_it_fail_and_every_answer_is_as_described(
    operation: Any, data: st.DataObject
) -> None:
    case = data.draw(operation.as_strategy())
    # A job's columns and filter follow the table, which no schema can say.
    of_a_job = case.operation.label in ("POST /api/v1/jobs", "POST /api/v1/jobs/plan")
    left_out: list[Any] | None = [positive_data_acceptance] if of_a_job else None
    case.call_and_validate(headers={**WITH_TOKEN, "Host": "testserver"}, excluded_checks=left_out)

"""The option `--skip-record`, and the errors that name it."""

from __future__ import annotations

import pytest

from schemas.errors import Code, InputError
from streaming.cli.configuration import with_option


def test_an_invalid_record_of_the_upstream_names_the_option_that_leaves_it_out() -> None:
    error = InputError(Code.UNKNOWN_OP, where="my-orders-2@29066", found="9 bytes")
    shown = with_option(error, "my-orders")
    assert shown.next_step == "correct the producer; if the service has left it out: --skip-record 2@29066"
    assert (shown.code, shown.where, shown.found) == (error.code, error.where, error.found)


@pytest.mark.parametrize("where", [None, "big-orders-2@29066", "my-orders", "my-orders-2"])
def test_an_error_at_another_place_stays_as_it_is(where: str | None) -> None:
    error = InputError(Code.UNKNOWN_OP, where=where, found="9 bytes")
    assert with_option(error, "my-orders") is error

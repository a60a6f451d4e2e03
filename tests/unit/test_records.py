from __future__ import annotations

import pytest

from schemas.records import Change, Op

HALVES = {Op.INSERT: (False, True), Op.UPDATE: (True, True), Op.DELETE: (True, False)}


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("has_before", [False, True])
@pytest.mark.parametrize("has_after", [False, True])
def test_a_change_is_well_formed_when_it_has_the_halves_of_its_op(
    op: Op, has_before: bool, has_after: bool
) -> None:
    change = Change(op, (1,) if has_before else None, (1,) if has_after else None)
    assert change.is_well_formed() == (HALVES[op] == (has_before, has_after))


def test_the_row_of_a_change_is_the_new_one_if_there_is_one() -> None:
    assert Change(Op.INSERT, None, (1, "new")).row == (1, "new")
    assert Change(Op.UPDATE, (1, "old"), (1, "new")).row == (1, "new")
    assert Change(Op.DELETE, (1, "old"), None).row == (1, "old")


def test_a_change_without_halves_has_no_row() -> None:
    with pytest.raises(ValueError, match="without before and after"):
        _ = Change(Op.DELETE, None, None).row

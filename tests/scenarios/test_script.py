"""Scenario files as such: what is wrong in one is shown with file and line."""

from __future__ import annotations

import pytest

from tests.scenarios.database import ScriptedDatabase
from tests.scenarios.keys import table_of
from tests.scenarios.player import Player
from tests.scenarios.script import ScriptError, differences, parse, render

SHORT = """\
# One row.
table
job copy

insert a1 x
start
step

step
----
copy-0
  barrier 1
  INSERT a1 x
  barrier 2: a complete (1 row), b complete (0 rows)
"""


def found(text: str) -> str:
    blocks = parse(text)
    printed, violations = Player(blocks).play()
    assert not violations
    return render(blocks, printed)


def test_what_is_expected_is_written_again_as_it_was() -> None:
    assert found(SHORT) == SHORT
    assert found(SHORT[: SHORT.index("----")]) == SHORT


def test_a_difference_is_shown_with_file_and_line() -> None:
    wrong = SHORT.replace("INSERT a1 x", "INSERT a1 y")
    shown = differences("a.txt", wrong, found(wrong)).splitlines()
    assert shown[0].startswith("a.txt:13: ")
    assert {"-  INSERT a1 y", "+  INSERT a1 x"} <= set(shown)
    assert not differences("a.txt", SHORT, SHORT)


def test_what_is_missing_at_the_end_is_a_difference() -> None:
    assert differences("a.txt", "step\n", "step\n----\nx\n").startswith("a.txt:2: ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("insert a1 x", "is there already"),
        ("update a2 x", "is absent"),
        ("insert z1 x", "is no key"),
        ("insert a9", "does not take"),
        ("step rows=1", "does not take rows"),
        ("step seconds=x", "is no number"),
        ("restart", "is alive"),
        ("restore", "there is no backup"),
        ("crash before breakfast", "is no place"),
        ("crash before commit progress", "no instance has come to"),
        ("dance", "there is no command"),
        ("insert 'a1", "No closing quotation"),
        ("table vnodes=99", "vnodes are 2 to"),
    ],
)
def test_a_line_that_can_not_be_carried_out_is_named(line: str, reason: str) -> None:
    with pytest.raises(ScriptError, match=f"line 1[0-9].*{reason}"):
        found(SHORT[: SHORT.index("----")] + "\n" + line + "\n")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["step"], "initial comes before the first barrier"),
        (["chunk a1"], "initial comes before the first chunk"),
        (["initial", "initial"], "is read already"),
        (["insert a1 x"], "is there already"),
        (["update a1 y by=t1", "update a1 z"], "is taken by a transaction"),
        (["delete a1 by=t1", "commit t1", "commit t1"], "is not open"),
        (["insert a2 x by=t1", "update a2 y"], "is taken by a transaction"),
        (["move a2 a3"], "is absent"),
        (["initial", "chunk a3", "chunk a2"], "behind the one before"),
        (["initial", "chunk", "chunk"], "behind the one before"),
        (["initial", "select a2", "select a3"], "is on its way"),
        (["initial", "select a2", "chunk a3"], "another chunk"),
        (["chunk z1"], "is no key"),
        (["initial bounds=a3", "chunk a5", "chunk a4"], "behind the one before"),
        (["initial bounds=a3", "select a5", "select a6"], "is on its way"),
        (["initial bounds=a3,a2"], "bounds rise"),
        (["initial bounds=z1"], "is no key"),
        (["bad a1"], "is not for a table that is read"),
    ],
)
def test_a_line_that_a_database_can_not_carry_out_is_named(lines: list[str], reason: str) -> None:
    with pytest.raises(ScriptError, match=reason):
        found("\n".join(["table connector=postgres", "insert a1 x", *lines, ""]))


def test_a_slot_never_goes_back() -> None:
    database = ScriptedDatabase(table_of(2), 1)
    for key, name in ((1, "sent"), (2, "t1")):
        database.change(key, "x", database.transaction(name))
    database.commit("sent")
    database.send()
    database.change(3, "x", database.transaction("t1"))
    database.confirm()
    database.commit("t1")
    database.confirm()
    database.send()
    database.confirm()
    confirmed = [moment.confirmed_lsn for moment in database.timeline.moments]
    assert confirmed == sorted(confirmed)
    assert confirmed[-1] == database.timeline.moments[-1].written_lsn


def test_a_barrier_carries_one_mutation() -> None:
    with pytest.raises(ScriptError, match="one mutation"):
        found(SHORT[: SHORT.index("----")] + "\npause copy\nresume copy\nstep\n")

"""An archive belongs to exact files, and only a whole one gets its name."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from streaming.runtime.java.jars import class_archive, recording


def test_another_jar_or_a_changed_one_asks_for_another_archive(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jar", tmp_path / "other.jar"
    for jar in (one, other):
        jar.write_bytes(b"x")
    before = class_archive([one])
    assert class_archive([one]) == before
    assert class_archive([one, other]) != before
    os.utime(one, ns=(0, 0))
    assert class_archive([one]) != before


def test_what_a_jvm_wrote_that_did_not_come_to_its_end_is_no_archive(tmp_path: Path) -> None:
    archive, broker = (tmp_path / "share" / f"{kind}-1.jsa" for kind in ("classes", "broker"))
    with suppress(KeyError), recording(archive) as option:
        Path(option.partition("=")[2]).write_bytes(b"half")
        raise KeyError
    assert not archive.exists()
    with recording(archive) as option:
        Path(option.partition("=")[2]).write_bytes(b"whole")
    assert archive.read_bytes() == b"whole"
    for further in (broker, archive.with_name("classes-2.jsa")):
        with recording(further) as option:
            Path(option.partition("=")[2]).write_bytes(b"further")
    assert {file.name for file in archive.parent.iterdir()} == {"classes-2.jsa", "broker-1.jsa"}

"""Brokers in folders of one name write log files of their own, and one that starts again goes on in its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.broker.embedded import EmbeddedBroker


def test_folders_of_one_name_have_log_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKFILL_LOGS", str(tmp_path / "logs"))
    (tmp_path / "linked").symlink_to("one")
    folders = [
        tmp_path / "one" / "kafka",
        tmp_path / "other" / "kafka",
        tmp_path / "one" / ".." / "one" / "kafka",
    ]
    one, other, again = (EmbeddedBroker(data=folder).log for folder in folders)
    assert one == again == EmbeddedBroker(data=tmp_path / "linked" / "kafka").log
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "logs"}
    assert all(log.name.startswith("kafka-kafka-") and log.suffix == ".log" for log in (one, other))
    monkeypatch.chdir(tmp_path)
    assert EmbeddedBroker(data=Path("one/kafka")).log == one

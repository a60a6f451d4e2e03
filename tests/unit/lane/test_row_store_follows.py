"""A lane's store comes to the barrier that a batch starts from, whatever has become of it and of the log."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.formats.outputs.records import AvroRowEncoder
from state.maintenance import merge
from state.replica import Replica
from state.storage import Storage
from streaming.lane.before.lookup import Replicated, bring, open_rows_before
from streaming.lane.before.store import LocalStore, decoded
from tests.kit.columns import upserts_of
from tests.kit.tables import vnode_of
from tests.kit.values import examples
from tests.unit.state.test_compaction import TABLE, Changelog

KEYS = AvroRowEncoder(TABLE.key_columns)


def draw(chance: random.Random) -> tuple[str, int, Decimal]:
    return chance.choice("abcdefghijkl"), chance.randrange(5), Decimal(chance.randrange(999)).scaleb(-2)


def replicated(changelog: Changelog, vnodes: range) -> Replicated:
    replica = changelog.replica
    files = replica.files(replica.pin()).of_vnodes(vnodes)
    return Replicated(replica.storage, TABLE, files, vnodes, KEYS)


def rows_of(folder: Path, epoch: int, changelog: Changelog) -> dict[object, object]:
    """The store's row of every key that there ever was."""
    every = sorted(changelog.rows)
    keys = KEYS([pa.array([key[0] for key in every], pa.string())])
    with closing(LocalStore(folder, TABLE)) as store, store.at(epoch) as view:
        assert view is not None
        stored = decoded(view(keys), TABLE)
        assert len(store) == sum(stored.present)
    columns = [column.to_pylist() for column in stored.columns]
    return {key: tuple(column[i] for column in columns) for i, key in enumerate(every) if stored.present[i]}


@pytest.mark.parametrize("seed", range(examples(24)))
def test_it_comes_to_every_barrier(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of log and store since it was at one; merges, as the service chooses them, are frequent."""
    monkeypatch.setattr(merge, "LEAST_FILES", 3)  # a history of dozens of batches has merges then
    chance = random.Random(seed)
    changelog = Changelog(Replica(Storage(str(tmp_path / "state")), TABLE))
    middle = TABLE.vnode_count // 2
    halves = (range(middle), range(middle, TABLE.vnode_count))
    lanes = {tmp_path / f"lane-{number}": half for number, half in enumerate(halves)}
    for _ in range(30):
        some_changes(changelog, chance)
        changelog.barrier()
        if chance.random() < 0.1:
            changelog.compaction()
        if chance.random() < 0.6:
            merge_log(changelog)
        for folder, vnodes in lanes.items():
            misfortune = chance.random()
            if misfortune < 0.5:
                continue  # behind by more than a batch
            if misfortune < 0.55:
                shutil.rmtree(folder, ignore_errors=True)
            elif misfortune < 0.6 and (folder / "data.mdb").exists():
                (folder / "data.mdb").write_bytes(b"torn" * 2_000)
            with closing(LocalStore(folder, TABLE)) as store:
                bring(store, replicated(changelog, vnodes), changelog.epoch)
                assert store.epoch == changelog.epoch
            expected = {key: row for key, row in changelog.rows.items() if vnode_of(TABLE, key) in vnodes}
            assert rows_of(folder, changelog.epoch, changelog) == expected


def some_changes(changelog: Changelog, chance: random.Random) -> None:
    """Few or many, so that log files are of several tiers."""
    for _ in range(chance.choice([0, 1, 1, 1, 8, 30])):
        row = draw(chance)
        if TABLE.key_of(row) in changelog.rows and chance.random() < 0.4:
            changelog.delete(TABLE.key_of(row))
        else:
            changelog.put(row)


def merge_log(changelog: Changelog) -> None:
    """The merges that the service would choose."""
    replica = changelog.replica
    for group in merge.choose_merges(replica.files(replica.pin()).log):
        merged = merge.merge_files(merge.Merge(replica.storage, TABLE, group))
        replica.replace_log_files(merged.files, merged.into)


def test_what_the_log_holds_is_taken_from_it_and_a_state_that_went_back_is_read_anew(tmp_path: Path) -> None:
    changelog, chance = Changelog(Replica(Storage(str(tmp_path / "state")), TABLE)), random.Random(1)
    vnodes = range(TABLE.vnode_count)
    with closing(LocalStore(tmp_path / "rows", TABLE)) as store:
        for _ in range(3):
            changelog.put(draw(chance))
            changelog.barrier()
            made_anew = bring(store, replicated(changelog, vnodes), changelog.epoch)
            assert made_anew is (changelog.epoch == 1)
        older = replicated(changelog, vnodes)
        changelog.put(draw(chance))
        changelog.barrier()
        assert not bring(store, replicated(changelog, vnodes), changelog.epoch)
        assert bring(store, older, changelog.epoch - 1)
        assert store.epoch == changelog.epoch - 1


def test_parts_of_a_batch_see_what_the_parts_before_them_wrote(tmp_path: Path) -> None:
    """Write the rows as one part does: a batch may be cut anywhere."""
    changelog, chance = Changelog(Replica(Storage(str(tmp_path / "state")), TABLE)), random.Random(3)
    for _ in range(6):
        changelog.put(draw(chance))
    changelog.barrier()
    whole = replicated(changelog, range(TABLE.vnode_count))
    records = [(row[0], None if chance.random() < 0.4 else row) for row in (draw(chance) for _ in range(60))]
    found = []
    for size in (60, 7, 1):
        shown: list[tuple[object, ...]] = []
        with (
            closing(LocalStore(tmp_path / "rows", TABLE)) as store,
            open_rows_before(store, whole, changelog.epoch) as rows_before,
        ):
            for start in range(0, len(records), size):
                made, _ = rows_before(upserts_of(TABLE, records[start : start + size]))
                halves = (
                    zip(*(c.to_pylist() for c in half), strict=True) for half in (made.before, made.after)
                )
                shown += zip(made.ops.tolist(), *halves, strict=True)
        found.append(shown)
    assert found[0] == found[1] == found[2]
    assert {op for op, *_ in found[0]} == {0, 1, 2}

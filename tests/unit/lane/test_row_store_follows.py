"""A lane's store comes to the barrier that a batch starts from, whatever has become of it and of the log."""

from __future__ import annotations

import random
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.formats.change_avro import AvroKeys
from state.replica import Replica
from state.storage import Storage
from streaming.lane.before.follow import Replicated, bring
from streaming.lane.before.store import RowStore
from tests.kit.tables import vnode_of
from tests.unit.state.test_compaction import TABLE, Changelog

KEYS = AvroKeys(TABLE.key_columns)


def draw(chance: random.Random) -> tuple[str, int, Decimal]:
    return chance.choice("abcdefghijkl"), chance.randrange(5), Decimal(chance.randrange(999)).scaleb(-2)


def replicated(changelog: Changelog, vnodes: range) -> Replicated:
    replica = changelog.replica
    files = replica.files(replica.pin()).of_vnodes(vnodes)
    return Replicated(replica.storage, TABLE, files, vnodes, KEYS)


def rows_of(folder: Path, epoch: int, changelog: Changelog) -> dict[object, object]:
    """What the store has of every key that there ever was."""
    every = sorted(changelog.rows)
    keys = KEYS([pa.array([key[0] for key in every], pa.string())])
    with RowStore(folder, TABLE) as store, store.at(epoch) as view:
        assert view is not None
        stored = view.look(keys)
        assert len(store) == sum(stored.present)
    columns = [column.to_pylist() for column in stored.columns]
    return {key: tuple(column[i] for column in columns) for i, key in enumerate(every) if stored.present[i]}


@pytest.mark.parametrize("seed", range(6))
def test_it_comes_to_every_barrier(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    changelog = Changelog(Replica(Storage(str(tmp_path / "state")), TABLE))
    middle = TABLE.vnode_count // 2
    halves = (range(middle), range(middle, TABLE.vnode_count))
    lanes = {tmp_path / f"lane-{number}": half for number, half in enumerate(halves)}
    for _ in range(12):
        for _ in range(chance.choice([0, 1, 8])):
            row = draw(chance)
            if TABLE.key_of(row) in changelog.rows and chance.random() < 0.4:
                changelog.delete(TABLE.key_of(row))
            else:
                changelog.put(row)
        changelog.barrier()
        if chance.random() < 0.3:
            changelog.compaction()
        for folder, vnodes in lanes.items():
            misfortune = chance.random()
            if misfortune < 0.2:
                continue  # behind by more than a batch
            if misfortune < 0.3:
                shutil.rmtree(folder, ignore_errors=True)
            elif misfortune < 0.4 and (folder / "data.mdb").exists():
                (folder / "data.mdb").write_bytes(b"torn" * 2_000)
            with RowStore(folder, TABLE) as store:
                bring(store, replicated(changelog, vnodes), changelog.epoch)
                assert store.epoch == changelog.epoch
            expected = {key: row for key, row in changelog.rows.items() if vnode_of(TABLE, key) in vnodes}
            assert rows_of(folder, changelog.epoch, changelog) == expected


def test_what_the_log_holds_is_taken_from_it_and_a_state_that_went_back_is_read_anew(tmp_path: Path) -> None:
    changelog, chance = Changelog(Replica(Storage(str(tmp_path / "state")), TABLE)), random.Random(1)
    vnodes = range(TABLE.vnode_count)
    with RowStore(tmp_path / "rows", TABLE) as store:
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

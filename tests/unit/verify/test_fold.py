"""The fold's list of unread keys: right after any churn, and no longer than what lives."""

from __future__ import annotations

import random

from schemas.records import Change, Op
from schemas.table import declare
from streaming.reading.entries import RowChange
from streaming.verify.findings import Findings
from streaming.verify.fold import UpstreamFold
from streaming.verify.history import PartitionHistory, TopicEntry
from streaming.verify.positions import Positions, Standing
from streaming.verify.records.keys import KeySpace
from tests.kit.avro_codec import KeyCodec
from tests.kit.encoded_histories import ListSource

TABLE = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"], "vnode_count": 2})
KEYS = KeyCodec(TABLE.key_columns)


def test_a_churn_of_unread_keys_leaves_the_live_ones_and_no_others() -> None:
    findings = Findings()
    space = KeySpace(TABLE, 1)
    fold = UpstreamFold(TABLE, space, Positions(space, findings), findings)
    partition = PartitionHistory("up", 0, ListSource([]))
    rng = random.Random(3)
    live: set[int] = set()
    for _ in range(200):
        for _ in range(50):
            number = rng.randrange(10**6) if not live or rng.random() < 0.5 else rng.choice(sorted(live))
            row = (number,)
            change = Change(Op.DELETE, row, None) if number in live else Change(Op.INSERT, None, row)
            live ^= {number}
            before, after = (
                None if each is None else KEYS.encode(each) for each in (change.before, change.after)
            )
            fold.apply(partition, TopicEntry(0, b"", b"", change=RowChange(KEYS.encode(row), before, after)))
        fold.settle()
        assert sum(map(len, fold._unread)) <= 2 * len(live) + 300
    middle = sorted(live)[len(live) // 2]
    below = {key for vnode in range(2) for key in fold.read(vnode, Standing(bound=(middle,)))}
    above = {key for vnode in range(2) for key in fold.read(vnode, Standing(finished=True))}
    assert below == {KEYS.encode((number,)) for number in live if number <= middle}
    assert above == {KEYS.encode((number,)) for number in live if number > middle}
    assert not any(fold._unread)
    assert not findings.kept

"""Conditions on a table that was read from its database, in addition to those on every table.

log         of each key: its row as of the barrier that released it, if it had one, and its changes behind that
plans       what is released never falls; a chunk that was read stays as it is, files too, until it is released
end         every key is released, and no event waits
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from schemas.position import Key
from state.initial.chunks import WAITING_PATH
from state.journal import PATH as JOURNAL_PATH
from state.ledger import files_of
from state.values.chunks import Chunk, KeyRange
from state.values.plan import BatchPlan
from state.values.reading import Reading
from tests.kit.avro_codec import ChangeCodec
from tests.simulation.world import World

Place = tuple[int, int]
_OF_CHUNK = (-1, -1)
"""Where the log has rows of chunks."""
NEVER = 1 << 62
"""Behind every barrier."""


def violations_of_reading(world: World) -> Iterator[str]:
    """Of a world that has settled."""
    if world.setting.changelog.timeline is None:
        return
    plans = plans_of(world)
    for before, plan in pairwise(plans):
        yield from _from_one_to_the_next(before.reading, plan.reading, is_same=plan.start == before.start)
    last = plans[-1].reading
    if last is not None and not last.read.release(last.due).is_done:
        yield f"keys are left at the end: {last.read.release(last.due)}"
    versions = world.durable.files.tables.get(WAITING_PATH, [])
    left = files_of(world.storage, WAITING_PATH, len(versions) - 1) if versions else []
    if left:
        yield f"{sum(file.rows for file in left)} events wait at the end"


def _from_one_to_the_next(before: Reading | None, after: Reading | None, *, is_same: bool) -> Iterator[str]:
    if before is None or (is_same and before == after):
        return
    read = before.read if is_same else before.read.release(before.due)
    if after is None:
        if not read.is_done:
            yield f"a plan forgets what is left to be read: {read}"
        return
    if after.read.released != read.released:
        yield f"released is {after.read.released} after {read.released}"
    known = dict(zip(after.read.chunks, after.files, strict=True))
    lost = [chunk for chunk, files in _left(before, is_same=is_same).items() if known.get(chunk) != files]
    if lost:
        yield f"a plan has lost chunks, or their files: {lost}"


def _left(reading: Reading, *, is_same: bool) -> dict[Chunk, tuple[str, ...]]:
    pairs = list(zip(reading.read.chunks, reading.files, strict=True))
    return dict(pairs if is_same else pairs[reading.due :])


def places_of_released(world: World, after: int) -> Iterator[Place]:
    """Locations of the records that the log has to hold behind a barrier; of rows of chunks only their number."""
    changelog, table = world.setting.changelog, world.setting.table
    codec, releases = ChangeCodec(table.columns), dict(_releases(world))

    def released(key: Key) -> int:
        return next((epoch for keys, epoch in releases.items() if keys.holds(key)), NEVER)

    for epoch in set(releases.values()):
        if epoch > after:
            yield from (_OF_CHUNK for key in changelog.rows_at(epoch) if released(key) == epoch)
    for number, entries in enumerate(changelog.entries):
        closed = 0
        for entry in entries:
            if entry.barrier is not None:
                closed = int(entry.barrier)
            elif closed >= after and (number, entry.offset) not in changelog.faulty:
                key = table.key_of(codec.decode(entry.value or b"").row)
                if closed >= released(key):
                    yield number, entry.offset


def _releases(world: World) -> Iterator[tuple[KeyRange, int]]:
    """Which keys are released at which barrier."""
    for plan in plans_of(world):
        if plan.reading is not None:
            yield from ((chunk.keys, plan.epoch) for chunk in plan.reading.read.chunks[: plan.reading.due])


def plans_of(world: World) -> list[BatchPlan]:
    """All that the journal has ever held, in their order."""
    texts = dict.fromkeys(world.storage.every_row(JOURNAL_PATH, "plan"))
    return [BatchPlan.from_json(text, world.setting.table) for text in texts if text is not None]

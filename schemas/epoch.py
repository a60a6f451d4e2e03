"""Epochs: the numbers that order barriers.

An epoch is the wall clock in milliseconds since 2021-04-01T00:00:00Z, shifted left by 16 bits, and
strictly rising. The low bits stay zero here; they only leave room. (RisingWave,
src/common/src/util/epoch.rs.)
"""

from __future__ import annotations

EPOCH_ZERO_UNIX_MS = 1_617_235_200_000
PHYSICAL_SHIFT_BITS = 16
NO_EPOCH = 0
"""`prev` of the first barrier of a topic."""


def unix_ms_from_epoch(epoch: int) -> int:
    """Milliseconds since 1970 at which `epoch` began; the low 16 bits are dropped."""
    return (epoch >> PHYSICAL_SHIFT_BITS) + EPOCH_ZERO_UNIX_MS


def next_epoch(prev: int, unix_ms: int) -> int:
    """The epoch to use after `prev`: the clock's, or a millisecond past `prev` if the clock fell back.

    A clock that was never set, and says 1970, is one that fell back.
    """
    physical_ms = max(unix_ms - EPOCH_ZERO_UNIX_MS, (prev >> PHYSICAL_SHIFT_BITS) + 1)
    return physical_ms << PHYSICAL_SHIFT_BITS

"""A number for each lane that Spark's hash partitioning sends to the partition of the lane's number.

Repartitioning by the lane number itself makes lanes collide, and by range it samples, which runs the plan twice. Spark
puts a row into partition pmod(Murmur3_x86_32(column, 42), partitions); asking Spark which numbers fit would be a query
of two seconds in a fresh JVM. (Spark: HashPartitioning; common/unsafe, hash/Murmur3_x86_32.hashInt.)
"""

from __future__ import annotations

from itertools import count

_SEED, _BITS = 42, 0xFFFFFFFF
_C1, _C2, _ADD = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_FINAL_1, _FINAL_2 = 0x85EBCA6B, 0xC2B2AE35
_INT_BYTES = 4


def lane_keys(lanes: int) -> list[int]:
    """`lane_keys(n)[lane]` goes to partition `lane` of n."""
    by_lane: dict[int, int] = {}
    for lane_key in count():
        by_lane.setdefault(_murmur3(lane_key) % lanes, lane_key)
        if len(by_lane) == lanes:
            return [by_lane[lane] for lane in range(lanes)]
    raise AssertionError("numbers do not end")


def _murmur3(value: int) -> int:
    """The hash of a 32-bit integer that is not negative; signed, as Java's."""
    mixed = _rotated(value * _C1 & _BITS, 15) * _C2 & _BITS
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + _ADD & _BITS) ^ _INT_BYTES
    hashed = (hashed ^ hashed >> 16) * _FINAL_1 & _BITS
    hashed = (hashed ^ hashed >> 13) * _FINAL_2 & _BITS
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _BITS

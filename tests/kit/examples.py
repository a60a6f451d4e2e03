"""The number of cases that a test of random ones tries: all in `make test`, a part in `make quick`."""

from __future__ import annotations

from hypothesis import settings

QUICK_SHARE = 4


def is_quick() -> bool:
    """True in `make quick`."""
    return settings.get_current_profile_name() == "quick"


def examples(count: int) -> int:
    """The number of cases, of `count`, that this run tries: a quick run tries a fourth of them, two at least."""
    return max(count // QUICK_SHARE, 2) if is_quick() else count

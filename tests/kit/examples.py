"""How many cases a test of random ones tries: all of them in `make test`, more in CI, a part in `make quick`."""

from __future__ import annotations

from hypothesis import settings

QUICK_SHARE = 4


def is_quick() -> bool:
    """Whether this is `make quick`."""
    return settings.get_current_profile_name() == "quick"


def examples(count: int, *, ci: int | None = None) -> int:
    """How many of `count` cases this run tries; `ci` in CI. A quick run tries a fourth of them, two at least."""
    if is_quick():
        return max(count // QUICK_SHARE, 2)
    return ci if ci is not None and settings.get_current_profile_name() == "ci" else count

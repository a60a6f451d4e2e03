"""Which of two versions is newer, as the two registries order them."""

from __future__ import annotations

import re
from functools import total_ordering
from itertools import zip_longest

from packaging.version import InvalidVersion, Version

_QUALIFIERS = ("alpha", "beta", "milestone", "rc", "snapshot", "", "sp")
_SAME = {"a": "alpha", "b": "beta", "m": "milestone", "cr": "rc", "ga": "", "final": "", "release": ""}
_NOTHING = (_QUALIFIERS.index(""), 0, "")
"""What a version that has ended counts as, beside one that goes on."""


@total_ordering
class MavenVersion:
    """A version of a jar, in the order of Maven's `ComparableVersion`, for versions as they are in use.

    Numbers by value and above every word; of words the known qualifiers in their order, others behind them by name.
    Maven's difference between `1-1` and `1.1` is not made.
    """

    def __init__(self, text: str) -> None:
        parts = re.findall(r"\d+|[a-z]+", text.lower())
        self._parts = [self._part(part) for part in parts]

    @staticmethod
    def _part(part: str) -> tuple[int, int, str]:
        if part.isdigit():
            return _NOTHING if int(part) == 0 else (len(_QUALIFIERS) + 1, int(part), "")
        word = _SAME.get(part, part)
        return (_QUALIFIERS.index(word), 0, "") if word in _QUALIFIERS else (len(_QUALIFIERS), 0, word)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MavenVersion) and not self < other and not other < self

    def __hash__(self) -> int:
        kept = list(self._parts)
        while kept and kept[-1] == _NOTHING:
            kept.pop()
        return hash(tuple(kept))

    def __lt__(self, other: MavenVersion) -> bool:
        for mine, theirs in zip_longest(self._parts, other._parts, fillvalue=_NOTHING):
            if mine != theirs:
                return mine < theirs
        return False


def is_before(ecosystem: str, left: str, right: str) -> bool:
    """Whether version `left` is older than `right`, both of one ecosystem: `PyPI` or `Maven`.

    A version of PyPI that breaks PEP 440 is compared as Maven would.
    """
    if ecosystem == "PyPI":
        try:
            return Version(left) < Version(right)
        except InvalidVersion:
            pass
    return MavenVersion(left) < MavenVersion(right)

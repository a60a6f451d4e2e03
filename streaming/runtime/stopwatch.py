"""Where the time of a batch goes, step by step."""

from __future__ import annotations

import time


class Stopwatch:
    """Adds up milliseconds by step."""

    def __init__(self) -> None:
        self.step_ms: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, step: str) -> None:
        """Book the time since the last lap under this step."""
        now = time.perf_counter()
        self.step_ms[step] = self.step_ms.get(step, 0.0) + (now - self._since) * 1_000
        self._since = now

"""`make simulate`: many histories on all cores, or one that is to be looked at.

make simulate SEEDS=100000       seeds 0 to 99,999
make simulate SEED=123           one history: its trace, and what is wrong with it
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from rich.progress import Progress

from tests.simulation.histories import Verdict, play

CHUNK = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _show(play(arguments.seed))
    return _play_all(range(arguments.first, arguments.first + arguments.seeds))


def _show(verdict: Verdict) -> int:
    sys.stdout.write("\n".join(verdict.trace) + f"\ndigest {verdict.digest}\n")
    sys.stdout.write("\n".join(verdict.complaints or ["the law holds"]) + "\n")
    return bool(verdict.complaints)


def failed(verdict: Verdict) -> str:
    """How a failure is told: what is wrong, and the command that shows it again."""
    return "\n  ".join([f"make simulate SEED={verdict.seed}", *verdict.complaints[:3]])


def _play_chunk(seeds: range) -> list[str]:
    return [failed(verdict) for verdict in map(play, seeds) if verdict.complaints]


def _play_all(seeds: range) -> int:
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    failures = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool, Progress() as progress:
        shown = progress.add_task("histories", total=len(seeds))
        for chunk, found in zip(chunks, pool.map(_play_chunk, chunks), strict=True):
            progress.advance(shown, len(chunk))
            failures += len(found)
            for text in found:
                progress.console.print(text, markup=False)
    sys.stdout.write(f"{len(seeds)} histories, {failures} broken\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())

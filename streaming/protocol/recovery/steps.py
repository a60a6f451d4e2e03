"""Steps that bring a state forward (`streaming.protocol.recovery.forward`): which barriers each of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import Code, StateError
from state.values.plan import AlignedBarrier
from streaming.core.planning import choose_barriers


@dataclass(frozen=True, slots=True)
class Step:
    """Up to which barrier the next batch goes; a silent one may stop before."""

    upto: int
    silent: bool

    def barriers(
        self, waiting: Sequence[AlignedBarrier], first_offsets: Sequence[int], most_records: int
    ) -> tuple[AlignedBarrier, ...] | None:
        """Those of the next batch; None as long as they have not all come.

        Raises: StateError(OUTPUT_OUT_OF_STEP) when the upstream goes past `upto` without that barrier.
        """
        within = [aligned for aligned in waiting if aligned.epoch <= self.upto]
        last = within[-1].epoch if within else 0
        if last < self.upto < waiting[-1].epoch:
            raise out_of_step(
                f"outputs that end with barrier {self.upto}",
                "barriers of the upstream: it has none of this epoch",
            )
        if not self.silent:
            return tuple(within) if last == self.upto else None
        return upto_mutation(choose_barriers(within, first_offsets, most_records)) if within else None


def upto_mutation(barriers: Sequence[AlignedBarrier]) -> tuple[AlignedBarrier, ...]:
    """Up to the first one with a mutation, so that it takes effect at that very barrier."""
    for count, aligned in enumerate(barriers, 1):
        if aligned.barrier.mutation is not None:
            return tuple(barriers[:count])
    return tuple(barriers)


def out_of_step(found: str, expected: str, where: str | None = None) -> StateError:
    """The error for outputs and a state that can't be brought together."""
    return StateError(Code.OUTPUT_OUT_OF_STEP, where=where, found=found, expected=expected)

"""One effect at a time: strands of processes, and a policy that says which goes on, which dies and what goes wrong.

The service's own code runs in strands (greenlets). It stops by `step` before each effect on the world outside; the
effect itself is atomic. So a history is the list of choices that a policy made, and the same choices make it again.
What dies stops at a step for good: whatever it had not written is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """Raised in the strands of a process that is no more. No clean-up of theirs has an effect."""


class Process:
    """Strands that live and die together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive, self.paused = True, False
        self.steps = 0
        self.ended_by: BaseException | None = None


class Strand:
    """A line of execution of a process, stopped before an effect (`at`) or until something is so."""

    def __init__(self, process: Process, name: str, work: Callable[[], object], parent: greenlet) -> None:
        self.process, self.name = process, name
        self.at = "start"
        self.until: Callable[[], bool] | None = None
        self.done = False
        self.greenlet = greenlet(lambda: self._run(work), parent)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001  # the end of a process, for the judge
            self.process.ended_by = error
        finally:
            self.done = True

    @property
    def ready(self) -> bool:
        """True if it could go on now."""
        return not (self.done or self.process.paused) and (self.until is None or self.until())


class FaultPolicy(Protocol):
    """Makes every choice of a history."""

    def next(self, ready: Sequence[Strand]) -> Strand:
        """Who goes on."""

    def interruption(self, strand: Strand) -> str:
        """The incident of the strand's process before its effect: `nothing`, `death` or `pause`."""

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        """The outcome of an effect."""


class Scheduler:
    """Runs strands as a policy wants. `trace` has every step that was taken."""

    def __init__(self, policy: FaultPolicy) -> None:
        self.policy = policy
        self.now_ms = 0
        self.trace: list[str] = []
        self.strands: list[Strand] = []
        self._hub = getcurrent()
        self._by_greenlet: dict[greenlet, Strand] = {}

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Strand:
        """A new strand; it goes on when the policy says so."""
        strand = Strand(process, name, work, self._hub)
        self.strands.append(strand)
        self._by_greenlet[strand.greenlet] = strand
        return strand

    def step(self, what: str, until: Callable[[], bool] | None = None) -> None:
        """Stop here until the policy lets this strand go on, and `until` holds. An effect may follow.

        Outside of strands it does nothing, so that a judge can look at the world.
        """
        strand = self._by_greenlet.get(getcurrent())
        if strand is None:
            return
        if strand.process.alive:
            strand.at, strand.until = what, until
            self._hub.switch()
        if not strand.process.alive:
            raise Killed

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        """The policy's outcome of an effect; outside of strands always a harmless one."""
        if getcurrent() not in self._by_greenlet:
            return harmless
        chosen = self.policy.outcome(of, harmless, *others)
        if chosen != harmless:
            self.trace.append(f"{of}: {chosen}")
        return chosen

    def turn(self) -> bool:
        """Let one strand take one step. False if none can."""
        ready = [strand for strand in self.strands if strand.ready]
        if not ready:
            return False
        strand = self.policy.next(ready)
        interruption = self.policy.interruption(strand)
        step = f"{strand.process.name}.{strand.name}: {strand.at}"
        if interruption == "death":
            self.trace.append(f"{step}: dies before it")
            self.kill(strand.process)
        elif interruption == "pause":
            self.trace.append(f"{step}: paused before it")
            strand.process.paused = True
        else:
            self.trace.append(step)
            strand.until = None
            strand.process.steps += 1
            strand.greenlet.switch()
            self._tidy(strand)
        return True

    def _tidy(self, strand: Strand) -> None:
        if strand.done:
            self._forget(strand)
            if strand.process.ended_by is not None and strand.process.alive:
                self.trace.append(f"{strand.process.name} ends: {_described(strand.process.ended_by)}")
                self.kill(strand.process)

    def _forget(self, strand: Strand) -> None:
        self.strands.remove(strand)
        del self._by_greenlet[strand.greenlet]

    def kill(self, process: Process) -> None:
        """End a process wherever its strands are."""
        process.alive = False
        for strand in [strand for strand in self.strands if strand.process is process]:
            if strand.greenlet:  # one that never ran has nothing to unwind
                strand.greenlet.switch()
            self._forget(strand)

    def end(self) -> None:
        """End every process. Strands that are left hanging would never be freed."""
        while self.strands:
            self.kill(self.strands[0].process)

    def digest(self) -> str:
        """Of the history so far: equal for equal histories."""
        return blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()


def _described(error: BaseException) -> str:
    return f"{type(error).__name__} {getattr(error, 'code', error)}"

"""The traces that were seen of a problem, in the order in which they came, and what any policy is worth on each.

Where states are not listed, each trace is replayed step by step, and a policy's own randomness is drawn afresh for each
trace, from a stream begun with the hash of this trace and of all before it: whoever fixed the policy knew neither.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from episafe.errors import InvalidEpisode, reason_of
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import SampledTask
from episafe.storage.json_values import as_text, from_text
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)


class Traces(ABC):
    """What is alike whether states are listed or not.

    Args:
        task: what the learner is told; it must tell `move`.

    Attributes:
        fault: why some move could not be made, of the first that could not; "" if all could. It counts as the worst.
    """

    def __init__(self, task: Any) -> None:
        self.task, self.fault = task, ""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take_in(self, trace: Any) -> None:
        """One more trace."""

    @abstractmethod
    def beginning(self, number: int) -> Self:
        """The first so many traces alone."""

    @abstractmethod
    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Total reward and utilities (n − first, 1 + m) of a policy on each trace from number `first` on.

        What cannot be replayed adds nothing from there on: all are lower bounds.
        """

    def totals_of_all(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """The same for several policies, none a mixture, (P, n − first, 1 + m)."""
        return np.array([self.totals(policy, first) for policy in policies])

    @abstractmethod
    def state(self) -> State:
        """The traces as named arrays."""

    @classmethod
    @abstractmethod
    def restored(cls, saved: Saved, task: Any) -> Self:
        """What `state` gave."""

    def fault_of(self, episode: Any) -> str:
        """Where the episode of the last trace is not what `move` makes of it, in words; "" if nowhere."""
        return "" if episode.states is None else str(self.task.replay_fault(episode))

    def moved(self, h: int, state: Any, action: int, w: Any) -> Any:
        """Next state, reward and utility, given what chance brings; None where nobody can say: it is a `fault`."""
        try:
            return self.task.moved(h, state, action, w)
        except Exception as error:
            self.fault = self.fault or f"at step {h}, state {state!r}, action {action}, chance {w!r}: {error}"
            return None


def _told(trace: tuple[Any, ...]) -> bytes:
    """What chance brought as bytes; as Python writes it where no journal could hold it."""
    try:
        return as_text(list(trace)).encode()
    except InvalidEpisode:
        return repr(trace).encode()


def read_texts(saved: Saved, name: str) -> list[tuple[Any, ...]]:
    """What `text_bytes` wrote into an entry."""
    try:
        return [tuple(row) for row in from_text(saved.octets(name).decode())]
    except UNREADABLE as error:
        saved.refuse(name, f"cannot be read ({error})")


def text_bytes(rows: Sequence[tuple[Any, ...]]) -> NDArray[np.uint8]:
    """Rows of plain values as an entry of a state."""
    return np.frombuffer(as_text([list(row) for row in rows]).encode(), np.uint8)


class SampledTraces(Traces):
    """The traces as they came."""

    def __init__(self, task: SampledTask) -> None:
        super().__init__(task)
        self._traces: list[tuple[Any, ...]] = []
        self._hashes: list[bytes] = []  # of each trace and all before it

    def __len__(self) -> int:
        return len(self._traces)

    def take_in(self, trace: Any) -> None:
        """One more trace."""
        self._append(self.task.read_trace(trace))

    def _append(self, trace: tuple[Any, ...]) -> None:
        before = self._hashes[-1] if self._hashes else b""
        self._traces.append(trace)
        self._hashes.append(hashlib.sha256(before + _told(trace)).digest())

    def beginning(self, number: int) -> "SampledTraces":
        """The first so many traces alone."""
        made = SampledTraces(self.task)
        made._traces, made._hashes = self._traces[:number], self._hashes[:number]
        return made

    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Total reward and utilities (n − first, 1 + m), a policy's own randomness drawn."""
        found = np.zeros((len(self) - first, 1 + self.task.num_constraints))
        for row, number in zip(found, range(first, len(self)), strict=True):
            self._replay(policy, number, row)
        return found

    def totals_of_all(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """The same for several policies, (P, n − first, 1 + m); the `fault` is then of these replays alone."""
        self.fault = ""
        return super().totals_of_all(policies, first)

    def _replay(self, policy: Policy, number: int, total: Array) -> None:
        """Add what a policy has on one trace to `total` (1 + m,)."""
        rng = np.random.default_rng(int.from_bytes(self._hashes[number]))
        _, acting = policy.draw(rng)
        state = self.task.start
        for h, w in enumerate(self._traces[number]):
            try:
                action = acting.act(h, state, rng)
            except Exception as error:  # of a policy of somebody's own: it has nothing from here on
                self.fault = self.fault or f"at step {h}, state {state!r}: {reason_of(error)}"
                return
            moved = self.moved(h, state, action, w)
            if moved is None:
                return
            state, reward, utility = moved
            total[0] += reward
            total[1:] += utility

    def state(self) -> State:
        """The traces as a named array."""
        return under("traces", {"chances": text_bytes(self._traces)})

    @classmethod
    def restored(cls, saved: Saved, task: SampledTask) -> "SampledTraces":
        """What `state` gave."""
        made, saved = cls(task), saved.under("traces")
        for trace in read_texts(saved, "chances"):
            if len(trace) != task.horizon:
                saved.refuse("chances", f"has a trace that is not of {task.horizon} steps")
            made._append(trace)
        return made

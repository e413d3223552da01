"""The traces that were seen of a problem whose states are not listed: what a policy is worth on each.

Each trace is replayed step by step. A policy's own randomness is drawn afresh for each trace, from a stream of its own.
"""

from typing import Any

import numpy as np

from episafe.learning.traces import Traces
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import SampledTask
from episafe.storage.json_values import as_text, from_text
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

OWN_LUCK = 0x7261_6365  # of the streams, so that they are nobody else's


class SampledTraces(Traces):
    """The traces as they came."""

    def __init__(self, task: SampledTask) -> None:
        super().__init__(task)
        self._traces: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._traces)

    def take_in(self, trace: Any) -> None:
        """One more trace."""
        self._traces.append(self.task.read_trace(trace))

    def beginning(self, number: int) -> "SampledTraces":
        """The first so many traces alone."""
        made = SampledTraces(self.task)
        made._traces = self._traces[:number]
        return made

    def totals(self, policy: Policy, first: int = 0) -> Array:
        """Total reward and utilities (n − first, 1 + m), a policy's own randomness drawn."""
        found = np.zeros((len(self) - first, 1 + self.task.num_constraints))
        for row, number in zip(found, range(first, len(self)), strict=True):
            self._replay(policy, number, row)
        return found

    def _replay(self, policy: Policy, number: int, total: Array) -> None:
        """Add what a policy has on one trace to `total` (1 + m,)."""
        rng = np.random.default_rng((OWN_LUCK, number))
        _, acting = policy.draw(rng)
        state = self.task.initial_state
        for h, w in enumerate(self._traces[number]):
            moved = self.moved(h, state, acting.act(h, state, rng), w)
            if moved is None:
                return
            state, reward, utility = moved
            total[0] += reward
            total[1:] += utility

    def state(self) -> State:
        """The traces as a named array."""
        said = np.frombuffer(as_text([list(trace) for trace in self._traces]).encode(), np.uint8)
        return under("traces", {"chances": said})

    @classmethod
    def restored(cls, saved: Saved, task: SampledTask) -> "SampledTraces":
        """What `state` gave."""
        made, saved = cls(task), saved.under("traces")
        try:
            made._traces = [tuple(trace) for trace in from_text(saved.octets("chances").decode())]
            fits = all(len(trace) == task.horizon for trace in made._traces)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            saved.refuse("chances", f"cannot be read ({error})")
        if not fits:
            saved.refuse("chances", f"has a trace that is not of {task.horizon} steps")
        return made

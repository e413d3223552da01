"""The traces that were seen of a problem whose states are not listed: what a policy is worth on each.

Each trace is replayed step by step. A policy's own randomness is drawn afresh for each trace, from a stream of its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import SampledTask
from episafe.storage.json_values import as_text, from_text
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

OWN_LUCK = 0x7261_6365  # of the streams, so that they are nobody else's


class SampledTraces:
    """The traces, in the order in which they came.

    Args:
        task: what the learner is told; it must tell `move`.

    Attributes:
        fault: why some move could not be made, of the first that could not; "" if all could. It counts as the worst.
    """

    def __init__(self, task: SampledTask) -> None:
        self.task, self.fault = task, ""
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
        """Total reward and utilities (n − first, 1 + m) of a policy on each trace from number `first` on.

        What cannot be replayed adds nothing from there on: all are lower bounds.
        """
        found = np.zeros((len(self) - first, 1 + self.task.num_constraints))
        for row, number in zip(found, range(first, len(self)), strict=True):
            self._replay(policy, number, row)
        return found

    def totals_of_all(self, policies: Sequence[Policy], first: int = 0) -> Array:
        """The same for several policies, (P, n − first, 1 + m)."""
        return np.array([self.totals(policy, first) for policy in policies])

    def _replay(self, policy: Policy, number: int, total: Array) -> None:
        """Add what a policy has on one trace to `total` (1 + m,)."""
        task, rng = self.task, np.random.default_rng((OWN_LUCK, number))
        _, acting = policy.draw(rng)
        state = task.initial_state
        for h, w in enumerate(self._traces[number]):
            action = acting.act(h, state, rng)
            try:
                state, reward, utility = task.moved(h, state, action, w)
            except Exception as error:  # nobody can say what would have happened: it counts as the worst
                self.fault = self.fault or f"at step {h}, state {state!r}, action {action}, chance {w!r}: {error}"
                return
            total[0] += reward
            total[1:] += utility

    def fault_of(self, episode: Any) -> str:
        """Where the episode of the last trace is not what `move` makes of it, in words; "" if nowhere."""
        return "" if episode.states is None else self.task.replay_fault(episode)

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

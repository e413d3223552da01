"""Problems without listed states: an empirical model of the states that actions lead to on the traces. Heuristic.

Each trace is followed under all actions at once, so `move` is called only once per state and value of chance.
States beyond the first few hundred count as the nearest of these.
"""

from collections import Counter
from collections.abc import Hashable
from itertools import product
from typing import Any

import numpy as np

from episafe.core.checks import TOLERANCE
from episafe.core.policy import Policy, StatesPolicy
from episafe.core.task import Task
from episafe.core.types import Array, IntArray, State, key_of

MOST_STATES = 600  # that are told apart
MOST_HERE = 150  # states that a trace is followed from at one step
MOST_MOVES = 40_000  # calls of `move` for one trace
COMPARED = 40  # moves by which it is found out whether all steps are the same


class Reached:
    """The states reached on the traces so far, numbered as they are found, and the moves from them."""

    def __init__(self, task: Task) -> None:
        self.task, self._rng = task, np.random.default_rng(0)
        self.known = StatesPolicy([task.initial_state], np.zeros((0, 0, 0)), task.incumbent)  # finds the nearest state
        self._values: dict[Hashable, int] = {}
        # by state and value: next states (A,), reward and utilities (A, 1 + m); None where `move` fails
        self._moves: dict[tuple[int, int], tuple[IntArray, Array] | None] = {}
        self._counts = [Counter[tuple[int, int]]() for _ in range(task.horizon or 0)]  # of (state, value) at each step
        self._same_steps: bool | None = None

    def forget(self) -> None:
        """Forget the traces, not the moves."""
        self._counts = [Counter[tuple[int, int]]() for _ in self._counts]

    def follow(self, trace: tuple[object, ...]) -> None:
        """Add the states that all actions lead to on a trace."""
        if self._same_steps is None:
            self._same_steps = self.task.time_homogeneous or self._steps_agree(trace)
        here, calls = [0], 0
        for h, w in enumerate(trace):
            if w is None or calls > MOST_MOVES:
                return
            name = key_of(w) if self._same_steps else (h, key_of(w))
            value, reached = self._values.setdefault(name, len(self._values)), set[int]()
            for s in here:
                if (s, value) not in self._moves:
                    self._moves[s, value] = self._asked(h, s, w)
                    calls += self.task.num_actions or 0
                moves = self._moves[s, value]
                if moves is not None:
                    self._counts[h][s, value] += 1
                    reached.update(moves[0].tolist())
            here = sorted(reached)
            if len(here) > MOST_HERE:
                here = sorted(self._rng.choice(here, MOST_HERE, replace=False).tolist())

    def _asked(self, h: int, s: int, w: object) -> tuple[IntArray, Array] | None:
        """Return the moves from a state; None if `move` fails there."""
        assert self.task.move is not None
        try:
            made = [self.task.move(h, self.known.states[s], a, w) for a in range(self.task.num_actions or 0)]
        except Exception:  # of a user's function
            return None
        following = np.array([self._number(state) for state, _, _ in made], dtype=np.int64)
        return following, np.array([(reward, *utilities) for _, reward, utilities in made])

    def _number(self, state: State) -> int:
        found = self.known.index.get(key_of(state))
        if found is None and len(self.known.states) >= MOST_STATES:
            found = self.known.nearest(state)
        return self.known.add(state) if found is None else found

    def _steps_agree(self, trace: tuple[object, ...]) -> bool:
        """Return whether `move` is the same at every step, tested on some moves of a trace."""
        move, A, state = self.task.move, self.task.num_actions or 0, self.task.initial_state
        assert move is not None
        first = int(self.task.random_start)
        try:
            for h in range(min(len(trace), COMPARED)):
                if trace[h] is None:
                    return True
                action = int(self._rng.integers(A))
                following, *signals = move(h, state, action, trace[h])
                for other in range(first, len(trace)) if h >= first else ():
                    again, *values = move(other, state, action, trace[h])
                    same = np.abs(np.hstack(values) - np.hstack(signals)).max() <= TOLERANCE
                    if key_of(again) != key_of(following) or not same:
                        return False
                state = following
        except Exception:  # of a user's function
            return False
        return True

    def model(self, shrinkage: float) -> tuple[list[Any], Array, Array, Array]:
        """Return P̂ by steps (S·A, S), mean signals (H, S, A, 1 + m), where there are data (h, s), and the incumbent.

            p̂_h(w|s) ∝ n_h(s, w) + shrinkage·p̄_h(w)

        n_h(s, w) counts the traces with w at step h on which some actions lead to s, and p̄_h is the share of w in all
        of them. The incumbent acts where there are no data.
        """
        import scipy.sparse  # here, because it takes a tenth of the time of all imports

        task, S = self.task, len(self.known.states)
        H, A, m = task.horizon or 0, task.num_actions or 0, task.num_constraints
        steps, signals, known = [], np.zeros((H, S, A, 1 + m)), np.zeros((H, S), dtype=bool)
        for h, counts in enumerate(self._counts):
            at_step = Counter[int]()
            for (_, value), n in counts.items():
                at_step[value] += n
            pairs = [(s, value) for s in sorted({s for s, _ in counts}) for value in at_step]
            total = sum(at_step.values())
            parts = [
                (s, counts[s, value] + shrinkage * at_step[value] / total, *moves)
                for s, value in pairs
                if (moves := self._moves.get((s, value))) is not None
            ]
            for s, weight, _, seen in parts:
                signals[h, s] += weight * seen
                known[h, s] = True
            idle = [(s, 1.0, np.full(A, s), None) for s in np.flatnonzero(~known[h]).tolist()]  # no trace leads there
            numbers, shares, following, _ = zip(*parts, *idle, strict=True)
            states, weights = np.array(numbers), np.array(shares)
            mass = np.bincount(states, weights, S)
            signals[h] /= mass[:, None, None]
            place = (states[:, None] * A + np.arange(A)).ravel(), np.concatenate(following)
            entries = np.repeat(weights / mass[states], A), place
            steps.append(scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=(S * A, S))))
        incumbent = np.zeros((H, S, A))
        for h, s in product(range(H), range(S)):
            if not known[h, s]:
                incumbent[h, s] = self._incumbent(h, s)
        return steps, signals, known, incumbent

    def _incumbent(self, h: int, s: int) -> Array:
        try:
            return self.task.incumbent.probabilities(h, self.known.states[s])
        except Exception:  # of a user's function, in a state that it never met
            return np.full(self.task.num_actions or 0, 1 / (self.task.num_actions or 1))

    def policy(self, table: Array) -> Policy:
        """Return the policy with this table (H, S, A) in the states reached so far."""
        return StatesPolicy(self.known.states[: table.shape[1]], table, self.task.incumbent)

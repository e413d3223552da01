"""What primal-dual agents share: a multiplier that is stepped once a plan, and clipped values on a kernel."""

from collections.abc import Callable
from typing import Self

import numpy as np

from episafe.learning.transition_counts import Confidence, TransitionCounts
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array

Choice = Callable[[int, Array], Array]  # (h, Q (2, S, A)) ↦ π_h (S, A)


class DualCounts(TransitionCounts):
    """The counts and the multiplier λ ≥ 0, 0 at first."""

    def __init__(self, task: Task, confidence: Confidence) -> None:
        super().__init__(task, confidence)
        self.lam = 0.0

    def step(self, size: float, shortfall: float) -> None:
        """λ ← [λ + size·shortfall]₊."""
        self.lam = max(0.0, self.lam + size * shortfall)

    def state(self) -> State:
        """Counts and multiplier as named arrays."""
        return super().state() | under("dual", {"lam": np.float64(self.lam)})

    def restored(self, saved: Saved) -> Self:
        """Those that were stored; these are not changed."""
        made = super().restored(saved)
        made.lam = float(saved.under("dual").numbers("lam", (), least=0))
        return made


def clipped_pass(P: Array, signals: Array, limits: Array, choose: Choice) -> tuple[Array, Array, Array]:
    """Q^g_h = min{g + PV^g_{h+1}, limits_h}, V^g_h = Σ_a π(a|s) Q^g_h, for both signals g and a π chosen by Q.

    Args:
        P: (H, S, A, S).
        signals: reward and utility (2, H, S, A).
        limits: (H,).
        choose: π_h by what is known at step h.

    Returns:
        Q (2, H, S, A), π (H, S, A) and V at step 0, (2, S).
    """
    _, H, S, A = signals.shape
    V, Q, policy = np.zeros((2, S)), np.empty(signals.shape), np.empty((H, S, A))
    for h in reversed(range(H)):
        later = (P[h].reshape(S * A, S) @ V.T).T.reshape(2, S, A)
        Q[:, h] = np.minimum(signals[:, h] + later, limits[h])
        policy[h] = choose(h, Q[:, h])
        V = (policy[h] * Q[:, h]).sum(axis=-1)
    return Q, policy, V

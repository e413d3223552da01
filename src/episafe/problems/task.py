"""What a learner is told of a problem. There is no transition kernel in here, and none can be reached from it."""

from dataclasses import dataclass

import numpy as np

from episafe.arrays import Array
from episafe.problems.policy import Policy


@dataclass(frozen=True, eq=False)
class Task:
    """A finite-horizon problem as the learner knows it: everything but P.

    Attributes:
        horizon: H, steps per episode.
        num_states: S.
        num_actions: A.
        dim: d, the dimension of the features; S·A for one-hot ones.
        reward: r (H, S, A) in [0, 1].
        utility: u (H, S, A) in [0, 1].
        phi: φ (S, A, d) with norms at most 1, or None for one-hot features e_{(s,a)}.
        initial_state: s₁.
        threshold: b; a policy is safe if its expected total utility is at least b.
        safe_policy: the incumbent π_sf.
        slack: ξ > 0 with V^u(π_sf) ≥ b + ξ.
    """

    horizon: int
    num_states: int
    num_actions: int
    dim: int
    reward: Array
    utility: Array
    phi: Array | None
    initial_state: int
    threshold: float
    safe_policy: Policy
    slack: float

    @property
    def one_hot(self) -> bool:
        """Whether φ is one-hot, so that Gram matrices are diagonal counts."""
        return self.phi is None

    def features(self, state: int) -> Array:
        """φ(state, ·), shape (A, d)."""
        if self.phi is not None:
            block: Array = self.phi[state]
            return block
        block = np.zeros((self.num_actions, self.dim))
        block[np.arange(self.num_actions), state * self.num_actions + np.arange(self.num_actions)] = 1.0
        return block

    def reward_at(self, h: int, state: int) -> Array:
        """r_h(state, ·), shape (A,)."""
        row: Array = self.reward[h, state]
        return row

    def utility_at(self, h: int, state: int) -> Array:
        """u_h(state, ·), shape (A,)."""
        row: Array = self.utility[h, state]
        return row

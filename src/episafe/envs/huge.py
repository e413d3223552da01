"""A linear problem on as many states as you like, none of them stored: to measure how cost grows with their number."""

import numpy as np

from episafe.problems.sampled import SampledCMDP
from episafe.types import Array, IntArray


def huge(
    num_states: int, support: int = 20, dim: int = 5, num_actions: int = 3, horizon: int = 4, seed: int = 0
) -> SampledCMDP:
    """A problem on {0, …, num_states − 1} whose features are drawn from a hash of the state.

    Each of the d next-state distributions of a step is uniform on `support` states spread over the whole range, so that
    at most d·support states of a step are ever seen.
    """
    rng = np.random.default_rng(seed)
    targets = rng.integers(num_states, size=(horizon, dim, support))
    drawn = Drawn(num_actions, targets, rng.random((2, horizon, dim)))
    return SampledCMDP(
        features=drawn.features,
        reward=drawn.reward,
        utility=drawn.utility,
        sample=drawn.sample,
        horizon=horizon,
        num_actions=num_actions,
        initial_state=0,
        threshold=0.5,
        safe_policy=drawn.largest_utility,
        slack=0.5,
    )


class Drawn:
    """The functions of the problem: next states `targets` (H, d, support), θ of reward and utility (2, H, d)."""

    def __init__(self, num_actions: int, targets: IntArray, theta: Array) -> None:
        self.num_actions, self.targets, self.theta = num_actions, targets, theta

    def features(self, state: int) -> Array:
        """φ(state, ·), (A, d)."""
        return np.random.default_rng(int(state)).dirichlet(np.full(self.theta.shape[2], 0.3), self.num_actions)

    def reward(self, h: int, state: int) -> Array:
        """r_h(state, ·), (A,)."""
        means: Array = self.features(state) @ self.theta[0, h]
        return means

    def utility(self, h: int, state: int) -> Array:
        """u_h(state, ·), (A,)."""
        means: Array = self.features(state) @ self.theta[1, h]
        return means

    def largest_utility(self, h: int, state: int) -> Array:
        """The policy that takes the action of largest utility, (A,)."""
        row: Array = np.eye(self.num_actions)[np.argmax(self.utility(h, state))]
        return row

    def sample(self, h: int, state: int, action: int, rng: np.random.Generator) -> int:
        """A next state."""
        _, dim, support = self.targets.shape
        i = rng.choice(dim, p=self.features(state)[action])
        return int(self.targets[h, i, rng.integers(support)])

"""A linear problem on as many states as you like, none of them stored: to measure how cost grows with their number."""

import numpy as np

from episafe.problems.sampled import SampledCMDP
from episafe.types import Array


def huge(
    num_states: int, support: int = 20, dim: int = 5, num_actions: int = 3, horizon: int = 4, seed: int = 0
) -> SampledCMDP:
    """A problem on {0, …, num_states − 1} whose features are drawn from a hash of the state.

    Each of the d next-state distributions of a step is uniform on `support` states spread over the whole range, so that
    at most d·support states of a step are ever seen.
    """
    rng = np.random.default_rng(seed)
    targets = rng.integers(num_states, size=(horizon, dim, support))
    theta = rng.random((2, horizon, dim))

    def features(state: int) -> Array:
        return np.random.default_rng(int(state)).dirichlet(np.full(dim, 0.3), num_actions)

    def sample(h: int, state: int, action: int, stream: np.random.Generator) -> int:
        i = stream.choice(dim, p=features(state)[action])
        return int(targets[h, i, stream.integers(support)])

    return SampledCMDP(
        features=features,
        reward=lambda h, s: features(s) @ theta[0, h],
        utility=lambda h, s: features(s) @ theta[1, h],
        sample=sample,
        horizon=horizon,
        num_actions=num_actions,
        initial_state=0,
        threshold=0.5,
        safe_policy=lambda h, s: np.eye(num_actions)[np.argmax(features(s) @ theta[1, h])],
        slack=0.5,
    )

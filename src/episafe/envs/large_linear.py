"""A linear problem on as many states as you like, none of them stored: to measure how cost grows with their number."""

from collections.abc import Callable
from functools import partial

import numpy as np

from episafe.problems.sampled_problem import SampledCMDP
from episafe.types import Array, IntArray


def huge(
    num_states: int, support: int = 20, dim: int = 5, num_actions: int = 3, horizon: int = 4, seed: int = 0
) -> SampledCMDP:
    """A problem on {0, …, num_states − 1} whose features are drawn from a hash of the state.

    Each of the d next-state distributions of a step is uniform on `support` states spread over the whole range, so that
    at most d·support states of a step are ever seen.
    """
    rng = np.random.default_rng(seed)
    targets, theta = rng.integers(num_states, size=(horizon, dim, support)), rng.random((2, horizon, dim))
    features = partial(_features, num_actions, dim)
    reward, utility = (partial(_means, features, theta[g]) for g in (0, 1))
    return SampledCMDP(
        features, reward, utility, partial(_sample, features, targets), horizon, num_actions,
        initial_state=0, threshold=0.5, safe_policy=partial(_largest, utility), slack=0.5,
    )  # fmt: skip


def _features(num_actions: int, dim: int, state: int) -> Array:
    return np.random.default_rng(int(state)).dirichlet(np.full(dim, 0.3), num_actions)


def _means(features: Callable[[int], Array], theta: Array, h: int, state: int) -> Array:
    return features(state) @ theta[h]


def _largest(means: Callable[[int, int], Array], h: int, state: int) -> Array:
    """The policy that takes the action of largest mean, (A,)."""
    found = means(h, state)
    return np.eye(len(found))[np.argmax(found)]


def _sample(
    features: Callable[[int], Array], targets: IntArray, h: int, state: int, action: int, rng: np.random.Generator
) -> int:
    _, dim, support = targets.shape
    i = rng.choice(dim, p=features(state)[action])
    return int(targets[h, i, rng.integers(support)])

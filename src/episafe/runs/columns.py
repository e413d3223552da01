"""The columns of a record while a run fills them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.types import Array, IntArray


class Facts(NamedTuple):
    """One row an episode: `values` (K, 2) V^r and V^u, `bounds` (K, 2) λ and the bound, `sources`, `plan_ids` (K,).

    Sources are numbers here, positions in `runner.SOURCES`.
    """

    values: Array
    bounds: Array
    sources: NDArray[np.int8]
    plan_ids: IntArray


def blank(num_episodes: int) -> Facts:
    """Room for a run."""
    sources, plan_ids = np.empty(num_episodes, dtype=np.int8), np.empty(num_episodes, dtype=np.int64)
    return Facts(np.empty((num_episodes, 2)), np.empty((num_episodes, 2)), sources, plan_ids)


class Coins(NamedTuple):
    """The coin of each episode: `components` (K,), which policy of the plan acted, and `weights` (K, 2).

    A plan that is no mixture has weights (1, 0) and component 0.
    """

    components: IntArray
    weights: Array


def no_coins(num_episodes: int) -> Coins:
    """Room for a run, as if no plan were a mixture."""
    weights = np.zeros((num_episodes, 2))
    weights[:, 0] = 1.0
    return Coins(np.zeros(num_episodes, dtype=np.int64), weights)

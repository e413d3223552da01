"""The columns of a record while a run fills them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.arrays import Array, IntArray


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

"""The arrays of a run that compiled loops write into; `Columns` in record.py has all that a record is made of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.types import Array, IntArray

BY_SOURCE = -1  # in `acting`: the name follows from the source and the plan of the episode


class Facts(NamedTuple):
    """One row an episode: `values` (K, 1 + m) V^r and V^u, `bounds` (K, 1 + m) λ and the bound, `sources`, `plan_ids`
    (K,).

    Sources are numbers here, positions in `types.SOURCES`.
    """

    values: Array
    bounds: Array
    sources: NDArray[np.int8]
    plan_ids: IntArray


class Coins(NamedTuple):
    """The coin of each episode: `components` (K,), which policy of the plan acted, `weights` (K, n), and `acting` (K,),
    the number of its name.

    A plan that is no mixture has weights (1, 0) and component 0.
    """

    components: IntArray
    weights: Array
    acting: NDArray[np.int32]

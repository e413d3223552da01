"""The means that certifiers bet against. Proofs hold for any grid that is fixed before the data (section 2.2)."""

import math

import numpy as np

from episafe.core.task import Constraint
from episafe.core.types import Array

FINENESS = 48  # points of the grid while the distance to the incumbent's utility falls to 1/e
ASSUMED_SLACK = 0.02  # of b: how fine the grid is where the slack is unknown
HEADROOM = 4.0  # times the incumbent's utility: the end of the grid where totals have no known maximum


def grid_of_means(limit: Constraint, least: float, largest: float | None, fineness: float) -> Array:
    """Return the means in increasing order, all above `least`, including b if it is above `least`.

    Below b the distance to the incumbent's utility falls by a constant factor from point to point; above b the
    difference to b grows by one.

    Args:
        limit: b and the slack.
        least: the least total of the candidate.
        largest: the largest total of an episode; None if unknown.
        fineness: points per factor e of the distance.
    """
    b, known = limit.threshold, limit.threshold + (limit.slack or 0.0)
    if largest is None:
        largest = limit.least_total + HEADROOM * (known - limit.least_total)
    range_ = (1 + ASSUMED_SLACK) * (b - least) if limit.slack is None else known - least
    spread = max(least + range_ - b, range_ / 500)
    below = np.zeros(0)
    if least < b:
        falls = max(math.ceil(fineness * math.log(range_ / spread)), 1)
        below = least + (range_ - range_ * (spread / range_) ** (np.arange(1, falls + 1) / falls))
        below[-1] = b
    rises = math.ceil(math.log1p(max(largest - b, spread) / spread * 4) / math.log1p(4 / fineness))
    above = b + spread / 4 * ((1 + 4 / fineness) ** np.arange(1, rises + 1) - 1)
    means = np.concatenate([below, above])
    return means[means > least]

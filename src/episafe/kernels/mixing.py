"""The one segment between two policies, the one nudge against rounding, and the one check that certifies.

A mixture of `low`, whose bound is below b, and `high`, whose bound is at least b, is best where its bound is b itself.
There rounding decides, so the share of `high` is raised until the check passes in float64.
"""

import math
from collections.abc import Callable

from episafe.kernels.compilation import plain_kernel
from episafe.types import Amount, amounts

ROUNDING = 2.0**-52  # shares are raised by 0, 1, 3, 7, 15, … of it: each step is twice the one before


@plain_kernel
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


def admits_all(utility_bounds: Amount, thresholds: Amount) -> bool:
    """`admits` for every constraint, each bound against its own threshold. One bound for several never passes."""
    bounds, limits = amounts(utility_bounds).tolist(), amounts(thresholds).tolist()
    return len(bounds) == len(limits) and all(map(admits, bounds, limits))


@plain_kernel
def mixed(low, high, share):  # type: ignore[no-untyped-def]
    """(1 − share)·low + share·high: the number that certifies, always computed in this one way."""
    return (1.0 - share) * low + share * high


@plain_kernel
def share_reaching(low, high, threshold):  # type: ignore[no-untyped-def]
    """The share of `high` > `low` at which the mixture is at b, up to rounding: (b − low)/(high − low), in [0, 1]."""
    return min(max((threshold - low) / (high - low), 0.0), 1.0)


@plain_kernel
def nudged(low, high, share, threshold):  # type: ignore[no-untyped-def]
    """The smallest share ≥ `share` tried whose mixture passes the check in float64; NaN where `high` itself fails."""
    nudge = 0.0
    while nudge < 2.0:
        tried = min(share + nudge, 1.0)
        if admits(mixed(low, high, tried), threshold):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    return math.nan


def nudged_until(passes: Callable[[float], bool], share: float) -> float:
    """The smallest share ≥ `share` tried that passes; NaN where 1 itself fails. `nudged` is this on a segment."""
    nudge = 0.0
    while nudge < 2.0:
        tried = min(share + nudge, 1.0)
        if passes(tried):
            return tried
        nudge = 2.0 * nudge + ROUNDING
    return math.nan

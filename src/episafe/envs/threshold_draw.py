"""What the paper's environments share: the threshold as a share of the largest utility, and the redraw."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from episafe.envs.options import check_range
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.exact import utility_greedy
from episafe.types import Array

Variant = Literal["released", "text"]
Origin = Mapping[str, str | int | float]

MAX_DRAWS = 1000


def draw_feasible(draw: Callable[[], dict[str, Any]], threshold_scale: float, origin: Origin) -> LinearCMDP:
    """The first drawn problem whose largest utility is positive, with b = threshold_scale · that utility.

    A problem whose largest utility is 0 has no strictly safe policy; it is drawn again from the same stream, and the
    origin says how often. The incumbent is the policy of largest utility.
    """
    check_range("threshold_scale", threshold_scale, 0, 1)
    if threshold_scale in (0, 1):
        raise ValueError(f"threshold_scale must be in (0, 1) so that the incumbent has slack, got {threshold_scale}")
    for redraws in range(MAX_DRAWS):
        arrays = draw()
        largest = _largest_utility(arrays["P"], arrays["utility"], arrays["initial_state"])
        if largest > 0:
            threshold = threshold_scale * largest
            return LinearCMDP(**arrays, threshold=threshold, origin={**origin, "redraws": redraws})
    raise ValueError(f"{MAX_DRAWS} draws gave no problem with positive utility: make utility likelier")


def _largest_utility(P: Array, utility: Array, initial_state: int) -> float:
    return float(utility_greedy(P, utility)[1][initial_state])

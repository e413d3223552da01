"""What the three environments share: the threshold as a share of the largest utility, and the redraw."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from episafe.checks import as_count
from episafe.errors import InvalidProblem
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


def check_sizes(**sizes: Any) -> None:
    """Refuse sizes that are no whole numbers ≥ 1."""
    for name, value in sizes.items():
        try:
            as_count(name, value)
        except InvalidProblem as error:
            raise ValueError(str(error)) from None


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is no number in [low, high]; low itself is refused where it is 0 and high is infinite."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= high or (value == 0 and math.isinf(high)):
        wanted = "a number > 0" if math.isinf(high) else f"a number in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_interval(name: str, value: Any) -> None:
    """Refuse what is no pair low ≤ high of probabilities."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name} must be a pair (low, high) of probabilities, got {value!r}")
    check_range(name, value[0], 0, 1)
    check_range(name, value[1], value[0], 1)


def _largest_utility(P: Array, utility: Array, initial_state: int) -> float:
    return float(utility_greedy(P, utility)[1][initial_state])

"""Confidence radii: C with ‖θ̂_g − θ_g‖_Λ ≤ C for g = r and every u together, in all rounds, with probability 1 − δ.

All are B + R√(x) with ρ = 1 and Λ after n observations:

    determinant   x = ln det Λ + 2 ln(s/δ)          Abbasi-Yadkori et al. 2011, Theorem 2, δ/s for each of s signals
    anytime       x = d' ln(s(1 + n)/δ)              from det Λ ≤ (1 + n/d)^d
    paper         x = d' ln(2sK/δ)                   from s(1 + n) ≤ 2sK, so for n < 2K observations

with s = 1 + m signals, the reward and m utilities, and d' = max{d, 2}: for d = 1 the closed forms of the literature
(d' = d) do not follow from the determinant, since 2 ln(s/δ) ≤ d ln(s/δ) needs d ≥ 2. docs/bandits.md has the argument.
A number in place of a name is a hand-set C.
"""

import math
from typing import Any

from episafe.checks import is_number
from episafe.kernels.bandit_regression import BanditRadius
from episafe.types import Level


def radius(kind: Any, task: Any, num_rounds: int | None, delta: float) -> tuple[BanditRadius, Level]:
    """The radius by name, or set by hand, for a BanditTask, and the level of what is proved with it."""
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta!r}: it is the probability that the bound fails")
    if num_rounds is not None:
        num_rounds = as_rounds(num_rounds)
    if is_number(kind):
        if not (math.isfinite(kind) and kind >= 0):
            raise ValueError(f"a radius set by hand must be a finite number >= 0, got {kind!r}")
        return BanditRadius(float(kind), 0.0, 0.0, 0.0, 0.0, math.inf), "heuristic"
    B, R, d, s = task.norm_bound, task.noise, max(task.dim, 2), 1 + task.num_constraints
    if kind == "determinant":
        return BanditRadius(B, R, 1.0, 0.0, 2 * math.log(s / delta), math.inf), "theorem"
    if kind == "anytime":
        return BanditRadius(B, R, 0.0, d, d * math.log(s / delta), math.inf), "theorem"
    if kind != "paper":
        raise ValueError(f'radius must be "paper", "determinant", "anytime" or a number, got {kind!r}')
    if num_rounds is None:
        raise ValueError('radius "paper" needs num_rounds: give it, or use radius="determinant", which needs none')
    return BanditRadius(B, R, 0.0, 0.0, d * math.log(2 * s * num_rounds / delta), 2 * num_rounds), "theorem"


def as_rounds(value: Any) -> int:
    """K, a whole number ≥ 1; 1e5 is one."""
    if not is_number(value) or not math.isfinite(value) or int(value) != value or value < 1:
        raise ValueError(f"num_rounds must be a whole number >= 1, got {value!r}: it is K, the rounds to be played")
    return int(value)

"""V̲ᵘ(s₁) at several λ in one pass over the visited states: matrix products in place of matrix-vector ones.

The same recursion as `decision.evaluate`, for features only; a test compares them. It proposes: what is deployed is
evaluated once more by `decision.evaluate`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from episafe.kernels import decision
from episafe.kernels.backward_pass import softmax_step
from episafe.kernels.compilation import kernel
from episafe.kernels.lanes import padded
from episafe.kernels.mixing import admits
from episafe.kernels.model_arrays import DenseModel, Scales, Search, Support, Work
from episafe.types import SAFE, SEARCH, ZERO, Array

Admitted = Callable[[Array], NDArray[np.bool_]]
BLOCK = 512  # states whose Q are in the cache together


def decide(
    model: DenseModel, support: Support, work: Work, scales: Scales, search: Search, points: int
) -> tuple[int, float, float]:
    """`decision.decide` with the bracket divided at `points` λ a pass: (source, λ, bound)."""

    def admitted(lams: Array) -> NDArray[np.bool_]:
        return utility_bounds(model, support, work, scales, lams) >= search.threshold

    decision.refresh(model, support.size, work, scales)
    candidates = [search.lam_max]  # ever smaller λ that a pass admitted
    lams = np.linspace(0.0, search.lam_max, points)
    passed = admitted(lams)
    if passed[0]:
        candidates.append(0.0)
    elif passed[-1] or not search.fallback:
        candidates += _ever_smaller(admitted, search, lams, passed)
    for lam in reversed(candidates):
        bound = float(decision.evaluate_at(model, support, work, scales, lam))
        if admits(bound, search.threshold):
            return (SEARCH if lam else ZERO), lam, bound
    return (SAFE, math.nan, bound) if search.fallback else (SEARCH, search.lam_max, bound)


def _ever_smaller(admitted: Admitted, search: Search, lams: Array, passed: NDArray[np.bool_]) -> list[float]:
    """The smallest λ admitted in each pass, until the bracket is as narrow as that of bisection."""
    found, narrow = [], search.lam_max * 2.0**-search.num_halvings
    while passed.any():
        first = int(np.argmax(passed))
        lower, upper = lams[first - 1], lams[first]
        found.append(float(upper))
        if upper - lower <= narrow:
            break
        lams = np.linspace(lower, upper, len(lams) + 2)
        passed = np.concatenate([[False], admitted(lams[1:-1]), [True]])
    return found


def utility_bounds(model: DenseModel, support: Support, work: Work, scales: Scales, lams: Array) -> Array:
    """V̲ᵘ(s₁) of π^λ for each of `lams` (L,), on the bonuses of the last plan."""
    H, A, _, _ = model.phi.shape
    L, last = len(lams), H - 1
    V = np.zeros((L, 3, 0))
    for h in reversed(range(H)):
        n = padded(int(support.size[h]))
        weights = V.reshape(L * 3, -1) @ model.moments[h, :, : V.shape[2]].T @ model.gram_inv[h]  # unused at the last
        V = np.empty((L, 3, n))
        for begin in range(0, n, BLOCK):
            block = slice(begin, min(begin + BLOCK, n))
            Q = np.zeros((L, 4, A, block.stop - begin))
            for a in range(A if h < last else 0):
                Q[:, :3, a] = (weights @ model.phi[h, a, :, block]).reshape(L, 3, -1)
            given = support.reward, support.utility, work.bonus
            terms = tuple(np.ascontiguousarray(g[h : h + 1, :, block]) for g in given)
            V[:, :, block] = softmax_steps(last - h, terms, scales, lams, Q)
    return V[:, 2, 0].copy()


@kernel
def softmax_steps(steps_left, terms, scales, lams, Q):  # type: ignore[no-untyped-def]
    """V (L, 3, n) of `softmax_step` at each λ; reward, utility, bonus (1, A, n), P̂V the first of Q (L, 4, A, n)."""
    L, _, _, n = Q.shape
    norm, V, V_all = np.empty(n), np.empty((1, 3, n)), np.empty((L, 3, n))
    for m in range(L):
        softmax_step(0, n, steps_left, terms, scales, lams[m], (Q[m], norm, V))
        for g in range(3):
            for i in range(n):
                V_all[m, g, i] = V[0, g, i]
    return V_all

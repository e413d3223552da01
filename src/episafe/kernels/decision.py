"""Algorithm 2: plain arrays in, plain arrays out (see model_arrays.py). The slow twin is tests/oracles.py."""

import numpy as np

from episafe.kernels.backward_pass import clear, count_step, feature_bonus, predict, regress, softmax_step, visit_bonus
from episafe.kernels.compilation import by_model, inlined_kernel, lean_kernel
from episafe.kernels.lanes import load, store
from episafe.kernels.mixing import admits
from episafe.kernels.model_arrays import CountModel, DenseModel
from episafe.types import SAFE, SEARCH, ZERO

ABOVE, BELOW, TOP, BOTTOM, HALVE, LAST = range(6)  # stages of the search


def _refresh_dense(model, size, work, scales):  # type: ignore[no-untyped-def]
    for h in range(size.shape[0]):
        feature_bonus(h, size[h], h, model.phi, model.gram_inv, scales, work.bonus)


def _refresh_counts(model, size, work, scales):  # type: ignore[no-untyped-def]
    (H, A, _), (start, column, share) = model.visits.shape, work.rest
    for h in range(H):
        entry = 0
        for a in range(A):
            for i in range(size[h]):
                start[h, a, i] = entry
                work.bonus[h, a, i] = visit_bonus(model.visits[h, a, i], model.ridge)
                t = model.first[h, a, i]
                while t >= 0:
                    column[h, entry] = model.target[h, t]
                    share[h, entry] = model.times[h, t] / (model.visits[h, a, i] + model.ridge)
                    entry += 1
                    t = model.following[h, t]
            start[h, a, size[h]] = entry


@by_model(lean_kernel, {DenseModel: _refresh_dense, CountModel: _refresh_counts})
def refresh(model, size, work, scales):  # type: ignore[no-untyped-def]
    """Compute what the evaluations of one plan share: the bonuses and, for counts, P̂ row by row."""


# Both forms unpack their arrays once: taking them from a tuple in the loop costs as much as the arithmetic.
def _evaluate_dense(model, support, work, scales):  # type: ignore[no-untyped-def]
    phi, gram_inv, moments, (norm, projected, weights) = model.phi, model.gram_inv, model.moments, work.rest
    size, terms = support.size, (support.reward, support.utility, work.bonus)
    V, Q, room = work.V, work.Q, (work.Q, norm, work.V)
    last, lam = size.shape[0] - 1, work.lams[0]
    for h in range(last, -1, -1):
        if h == last:
            clear(Q, size[h])
        else:
            regress(h, size[h + 1], moments, gram_inv, V, projected, weights)
            predict(h, size[h], h, phi, weights, Q)
        softmax_step(h, size[h], last - h, terms, scales, lam, room)
    work.bounds[0] = V[0, 2, 0]


def _evaluate_counts(model, support, work, scales):  # type: ignore[no-untyped-def]
    size, terms = support.size, (support.reward, support.utility, work.bonus)
    V, Q, lams = work.V, work.Q, work.lams
    for h in range(size.shape[0] - 1, -1, -1):
        count_step(h, size[h], work.rest, terms, scales, lams, Q, V)
    store(work.bounds, (0,), load(V, (0, 0, 2, 0)))


@by_model(lean_kernel, {DenseModel: _evaluate_dense, CountModel: _evaluate_counts})
def evaluate(model, support, work, scales):  # type: ignore[no-untyped-def]
    """V̲ᵘ(s₁) of π^λ for each λ of `work.lams`, into `work.bounds`; the values at all slots are left in `work.V`."""


@inlined_kernel
def set_all(lams, lam):  # type: ignore[no-untyped-def]
    """λ in every place."""
    for lane in range(lams.shape[0]):
        lams[lane] = lam


@lean_kernel
def evaluate_at(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    """V̲ᵘ(s₁) of π^λ at one λ, by `evaluate`."""
    set_all(work.lams, lam)
    work.lane[0] = 0
    evaluate(model, support, work, scales)
    return work.bounds[0]


@inlined_kernel
def look_ahead(lams, lam, lower, upper, at_an_end):  # type: ignore[no-untyped-def]
    """The λ to evaluate together: λ alone if there is room for one, else what three halvings may ask for.

    These are the upper end and the seven midpoints of [lower, upper], its halves and its quarters, each the very number
    that bisection comes to; where an end is asked for, the lower end takes the place of the last of them.
    """
    if lams.shape[0] == 1:
        lams[0] = lam
        return
    lams[0], lams[4] = upper, (lower + upper) / 2
    lams[2], lams[6] = (lower + lams[4]) / 2, (lams[4] + upper) / 2
    lams[1], lams[3] = (lower + lams[2]) / 2, (lams[2] + lams[4]) / 2
    lams[5], lams[7] = (lams[4] + lams[6]) / 2, lower if at_an_end else (lams[6] + upper) / 2


@inlined_kernel
def position(lams, lam):  # type: ignore[no-untyped-def]
    """Where λ is among those evaluated last, −1 if it is not."""
    for lane in range(lams.shape[0]):
        if lams[lane] == lam:
            return lane
    return -1


@lean_kernel
def decide(model, support, work, scales, search):  # type: ignore[no-untyped-def]
    """Algorithm 2 for one episode: (source, λ, bound), with the values of the deployed λ left in `work`.

    The λ asked for: C_λ (only with the incumbent as fallback), 0, the midpoints, and last the one found, so that the
    bound returned is that of the deployed policy itself. A warm start begins with the bracket [λ/factor, λ·factor] of
    the λ found last. What was evaluated ahead is not evaluated again.
    """
    refresh(model, support.size, work, scales)
    set_all(work.lams, np.nan)
    cold = TOP if search.fallback else BOTTOM
    stage, lower, upper, halvings = cold, 0.0, search.lam_max, search.num_halvings
    if search.factor > 1.0 and work.found[0] > 0.0:
        stage, lower, upper = ABOVE, work.found[0] / search.factor, min(work.found[0] * search.factor, search.lam_max)
    while True:
        lam = upper
        if stage == HALVE:
            lam = (lower + upper) / 2
        elif stage in (BELOW, BOTTOM):
            lam = lower
        if position(work.lams, lam) < 0:
            look_ahead(work.lams, lam, lower, upper, stage != HALVE)
            evaluate(model, support, work, scales)
        work.lane[0] = position(work.lams, lam)
        bound = work.bounds[work.lane[0]]
        admitted = admits(bound, search.threshold)
        if stage == LAST:
            break
        if stage == TOP:
            if not admitted:  # Alg. 2, incumbent trigger -> V̲ᵘ(π^{C_λ}) < b
                work.found[0] = np.nan
                return SAFE, np.nan, bound
            stage = BOTTOM
        elif stage == BOTTOM:
            if admitted:  # Alg. 2, λ = 0 -> V̲ᵘ(π⁰) ≥ b
                work.found[0] = np.nan
                return ZERO, 0.0, bound
            stage = HALVE
        elif stage == ABOVE and admitted:
            stage = BELOW
        elif stage == BELOW and not admitted:  # then as narrow at the end as bisection of [0, C_λ]
            stage = HALVE
            halvings += int(np.ceil(np.log2((upper - lower) / search.lam_max)))
        elif stage == HALVE:  # Alg. 2, bisection: only admitted λ replace the upper end
            lower, upper = (lower, lam) if admitted else (lam, upper)
            halvings -= 1
        else:  # the λ found last is of no use
            stage, lower, upper = cold, 0.0, search.lam_max
        if stage == HALVE and halvings <= 0:
            stage = LAST
    work.found[0] = upper
    if search.fallback and not admitted:
        return SAFE, np.nan, bound
    return SEARCH, upper, bound

"""The search for λ of Algorithm 2, compiled, and its extension to several limits."""

import numpy as np

from episafe.core.types import SAFE, SEARCH, ZERO
from episafe.kernels.compilation import by_model, inlined_kernel, kernel, lean_kernel
from episafe.kernels.lanes import LANES, fma, largest, load, root, spread, store
from episafe.kernels.softmax_arrays import Counts, Dense
from episafe.kernels.softmax_pass import clipped, predict, row, shaped, softmax_step, value_limits


def _refresh_dense(model, slots, work, scales):  # type: ignore[no-untyped-def]
    phi, gram_inv = model.phi, model.gram_inv
    for p in range(phi.shape[0]):
        for a in range(phi.shape[1]):
            for i in range(0, slots.described[p], LANES):
                square = spread(0.0)
                for k in range(phi.shape[2]):
                    x, half = load(phi, (p, a, k, i)), spread(0.0)
                    for j in range(k):
                        half = fma(gram_inv[p, k, j], load(phi, (p, a, j, i)), half)
                    square = fma(x, fma(gram_inv[p, k, k], x, 2.0 * half), square)
                store(work.bonus, (p, a, i), shaped(root(largest(square, 0.0)), 1.0, scales))


def _refresh_counts(model, slots, work, scales):  # type: ignore[no-untyped-def]
    (R, A, _), (start, column, share) = model.visits.shape, work.rest
    for p in range(R):
        entry = 0
        for a in range(A):
            for i in range(slots.described[p]):
                start[p, a, i] = entry
                n = model.visits[p, a, i] + model.ridge
                work.bonus[p, a, i] = 1.0 / np.sqrt(n)
                t = model.first[p, a, i]
                while t >= 0:
                    column[p, entry], share[p, entry] = model.target[p, t], model.times[p, t] / n
                    entry += 1
                    t = model.following[p, t]
            start[p, a, slots.described[p]] = entry


@by_model({Dense: _refresh_dense, Counts: _refresh_counts})
def refresh(model, slots, work, scales):  # type: ignore[no-untyped-def]
    """Compute what the evaluations of one plan share: the bonuses β = ‖φ‖_{Λ⁻¹} and, for counts, P̂ row by row."""


@lean_kernel
def evaluate(model, slots, work, scales, size, table):  # type: ignore[no-untyped-def]
    """Compute V̲ᵘ(s₁) and V̄ʳ + V̄† of π^λ for each λ of `work.lams`, into `work.bounds`.

    Values at the first `size` (R,) slots are left in `work.V`. π of the first λ is written to `table` (H, S, A) at
    these slots, unless the table is empty.
    """
    V, Q, L, last = work.V, work.Q, work.ts.shape[0], work.V.shape[0] - 2
    for x in range(V.shape[2]):
        V[last + 1, 0, x] = scales.value_after
    for h in range(last, -1, -1):
        n = size[row(h, size)]
        if h == last and scales.value_after == 0.0:  # there is nothing after the last step
            for g in range(Q.shape[0] - 1):
                for a in range(Q.shape[1]):
                    for x in range(0, n * L, LANES):
                        store(Q, (g, a, x), 0.0)
        else:
            predict(model, work, scales, h, n, size[row(h + 1, size)])
        softmax_step(model, slots, work, scales, h, n * L)
        if table.shape[0] > 0:
            for i in range(n):
                for a in range(table.shape[2]):
                    state = slots.state_of[row(h, size), i]
                    table[h, state, a] = Q[Q.shape[0] - 1, a, i * L] * work.norm[i * L]
    for lane in range(L):
        for c in range(work.lam.shape[0]):
            work.bounds[c, lane] = V[0, 2 + c, lane]
        work.bounds[work.lam.shape[0], lane] = V[0, 0, lane] + V[0, 1, lane]


@inlined_kernel
def look_ahead(ts, t, lower, upper, at_an_end, guess):  # type: ignore[no-untyped-def]
    """Choose the t to evaluate together: t alone with one lane, else what the next halvings may ask for.

    These are the upper end and midpoints, exactly as bisection computes them: those that it visits on its way to
    `guess`, if that lies in the bracket; else the seven of [lower, upper], its halves and its quarters. Where an end is
    asked for, the lower end takes the place of one of them.
    """
    if ts.shape[0] == 1:
        ts[0] = t
        return
    if lower < guess and guess < upper:
        ts[0], ts[1] = upper, lower
        for lane in range(2 if at_an_end else 1, ts.shape[0]):
            ts[lane] = (lower + upper) / 2
            if guess <= ts[lane]:
                upper = ts[lane]
            else:
                lower = ts[lane]
        return
    ts[0], ts[4] = upper, (lower + upper) / 2
    ts[2], ts[6] = (lower + ts[4]) / 2, (ts[4] + upper) / 2
    ts[1], ts[3] = (lower + ts[2]) / 2, (ts[2] + ts[4]) / 2
    ts[5], ts[7] = (ts[4] + ts[6]) / 2, lower if at_an_end else (ts[6] + upper) / 2


@inlined_kernel
def position(ts, t):  # type: ignore[no-untyped-def]
    """Return where t is among those evaluated last, −1 if it is not."""
    for lane in range(ts.shape[0]):
        if ts[lane] == t:
            return lane
    return -1


@lean_kernel
def admits(run, t, lower, upper, only, guess):  # type: ignore[no-untyped-def]
    """Return whether V̲ᵘ(s₁) ≥ b for limit `only`, or for all if it is m, at λ = base + t·direction.

    `run`: model, slots, work, scales, search. `lower` and `upper` are the bracket of the search. What was evaluated
    ahead is not evaluated again. No argument is a literal: numba would compile a form for each.
    """
    model, slots, work, scales, search = run
    if position(work.ts, t) < 0:
        look_ahead(work.ts, t, lower, upper, t in (lower, upper), guess)
        for c in range(work.lams.shape[0]):
            for lane in range(LANES):
                work.lams[c, lane] = work.base[c] + work.ts[lane % work.ts.shape[0]] * work.direction[c]
        evaluate(model, slots, work, scales, slots.size, work.none)
    lane, passes = position(work.ts, t), True
    work.lane[0] = lane
    for c in range(work.bound.shape[0]):
        work.lam[c], work.bound[c] = work.lams[c, lane], work.bounds[c, lane]
        if only == work.bound.shape[0] or only == c:
            passes = passes and work.bound[c] >= search.thresholds[c]
    return passes


@lean_kernel
def admits_end(run, t, only, guess):  # type: ignore[no-untyped-def]
    """Return the same at an end of the ray, where t is 0 or C_λ."""
    return admits(run, t, 0.0, run[4].lam_max, only, guess)


@inlined_kernel
def begin_ray(work, lam, free):  # type: ignore[no-untyped-def]
    """Search λ_c of limit c = `free` from 0 on, of all limits together if it is m; the others stay at `lam`."""
    m = work.base.shape[0]
    for c in range(m):
        moves = free in (m, c)
        work.base[c], work.direction[c] = 0.0 if moves else lam[c], 1.0 if moves else 0.0
    for lane in range(work.ts.shape[0]):
        work.ts[lane] = np.nan  # nothing was evaluated on it


@lean_kernel
def bisect(run, only, guess):  # type: ignore[no-untyped-def]
    """Halve [0, C_λ] on the ray, evaluate the upper end that is left, and return whether it passes.

    Only admitted λ replace the upper end (Alg. 2, lines 6 to 10).
    """
    lower, upper = 0.0, run[4].lam_max
    for _ in range(run[4].num_halvings):
        middle = (lower + upper) / 2
        if admits(run, middle, lower, upper, only, guess):
            upper = middle
        else:
            lower = middle
    return admits(run, upper, lower, upper, only, guess)


@lean_kernel
def search_several(run):  # type: ignore[no-untyped-def]
    """Find λ for several limits, on the ray (1, …, 1) and then limit by limit; return whether it passes all checks."""
    work, b, C_lam = run[2], run[4].thresholds, run[4].lam_max
    m, found, most = work.base.shape[0], False, -np.inf
    if admits_end(run, C_lam, m, work.guess[0]):
        found = bisect(run, m, work.guess[0])
        most, work.guess[0] = work.bounds[m, work.lane[0]], work.ts[work.lane[0]]
        remember(work.lam, work.best)
    else:
        remember(work.lam, work.best)  # C_λ·(1, …, 1)
        admits_end(run, 0.0, m, work.guess[0])
    for _ in range(m):
        c = furthest(work.lam, work.bound, b)
        if c < 0:
            break
        begin_ray(work, work.lam, c)
        guess = work.guess[1 + c]
        if not admits_end(run, 0.0, c, guess):
            if not admits_end(run, C_lam, c, guess):
                break
            bisect(run, c, guess)
        work.guess[1 + c], passes = work.lam[c], work.bounds[m, work.lane[0]] > most
        for g in range(m):
            passes = passes and work.bound[g] >= b[g]
        if passes:
            found, most = True, work.bounds[m, work.lane[0]]
            remember(work.lam, work.best)
    begin_ray(work, work.best, -1)
    admits_end(run, 0.0, m, np.nan)
    return found


@inlined_kernel
def remember(lam, best):  # type: ignore[no-untyped-def]
    """Copy λ to `best`."""
    for c in range(lam.shape[0]):
        best[c] = lam[c]


@inlined_kernel
def furthest(lam, bound, thresholds):  # type: ignore[no-untyped-def]
    """Return the limit whose V̲ᵘ is furthest from b, −1 if none is; one that passes at λ_c = 0 does not count."""
    found, most = -1, 0.0
    for c in range(lam.shape[0]):
        distance = abs(bound[c] - thresholds[c])
        if distance > most and (lam[c] > 0.0 or bound[c] < thresholds[c]):
            found, most = c, distance
    return found


@lean_kernel
def decide(run):  # type: ignore[no-untyped-def]
    """Decide for one episode: return the source, with λ and V̲ᵘ(s₁) in `work.lam` and `work.bound`.

    One limit: Algorithm 2. Several: λ = 0, then `search_several`. The last λ that was evaluated is returned, so its
    bounds are those of the deployed policy.
    """
    model, slots, work, scales, search = run
    refresh(model, slots, work, scales)
    m, stepped, guess = work.base.shape[0], search.step >= 0.0, work.guess[0]
    begin_ray(work, search.dual, -1 if stepped else m)
    if stepped:
        admits_end(run, 0.0, m, np.nan)
        for c in range(m):
            stepped_to = search.dual[c] + search.step * (search.thresholds[c] - work.bound[c])
            search.dual[c] = min(max(stepped_to, 0.0), search.lam_max)
        return SEARCH
    if search.ends:
        if m == 1 and search.fallback and not admits_end(run, search.lam_max, m, guess):
            return SAFE  # Alg. 2, line 3 -> V̲ᵘ(π^{C_λ}) < b
        if admits_end(run, 0.0, m, guess):
            return ZERO  # Alg. 2, line 4 -> V̲ᵘ(π⁰) ≥ b
    if m > 1:
        passes = search_several(run)
    else:
        passes = bisect(run, m, guess)
        work.guess[0] = work.ts[work.lane[0]]
    return SEARCH if passes or not search.fallback else SAFE


@kernel
def decide_all(run, table):  # type: ignore[no-untyped-def]
    """Decide, and write π of the decision's λ at all described states to `table`, unless that is empty.

    Return the source. The values in `work` become those of lane 0.
    """
    source, (model, slots, work, scales, _) = decide(run), run
    if source == SAFE or table.shape[0] == 0:
        return source
    for c in range(work.lams.shape[0]):
        for lane in range(LANES):
            work.lams[c, lane] = work.lam[c]
    work.lane[0] = 0
    evaluate(model, slots, work, scales, slots.described, table)
    return source


@kernel
def act(told, bonus, PV, scales, lams, steps_left):  # type: ignore[no-untyped-def]
    """Return π^λ (A,) at one state from reward and utilities `told` (1+m, A), β (A,), P̂V (G, A) and λ (m,)."""
    (most_r, most, least), pi = value_limits(float(steps_left), scales), np.empty(bonus.shape[0])
    for a in range(pi.shape[0]):
        beta = bonus[a]
        r = told[0, a] + clipped(scales.C_r, beta, PV[0, a], 0.0, most_r)
        dagger = clipped(scales.C_dagger, beta, PV[1, a], 0.0, scales.B_dagger * most)
        pi[a] = fma(scales.B_dagger, beta, dagger) + r
        for c in range(lams.shape[0]):
            pi[a] += lams[c] * (told[1 + c, a] + clipped(scales.C_u, beta, PV[2 + c, a], least, most))
    top, total = pi.max(), 0.0
    for a in range(pi.shape[0]):
        pi[a] = np.exp((pi[a] - top) / scales.kappa)
        total += pi[a]
    return pi / total

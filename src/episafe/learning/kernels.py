"""Compiled loops of the softmax planner: plain arrays in, plain arrays out. Their slow twin is tests/oracles.py.

States are stood for by *slots*: slot i of step h is the i-th distinct state seen at that step, so nothing here has the
size of the state space. Slot 0 of step 0 is the initial state. Slots are the last axis of every array, so that loops
over them vectorise. Values come in threes, in the order r, †, u.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from episafe.arrays import Array, IntArray

# slices and whole-array assignments are left out of the kernels: they triple the time to compile them
kernel = njit(cache=True, error_model="numpy")
part = njit(cache=True, error_model="numpy", inline="always")  # of a kernel: compiled only where it is used

NEGLIGIBLE = -40.0  # e^-40 is below half a rounding of a sum that is at least 1: such a weight counts as 0
SAFE, ZERO, SEARCH = 0, 1, 2  # where a decision comes from


class Scales(NamedTuple):
    """Constants of the backward recursion; `utility_bonus` is −C_u for pessimism and +C_u for optimism."""

    C_r: float
    utility_bonus: float
    C_dagger: float
    B_dagger: float
    kappa: float


class Search(NamedTuple):
    """What the search on λ is told: b, C_λ, T, and whether the incumbent is deployed when C_λ fails."""

    threshold: float
    lam_max: float
    num_halvings: int
    fallback: bool


class Known(NamedTuple):
    """What the task says of every state of a finite problem: `reward`, `utility` (H, A, S), `phi` (A, d, S)."""

    reward: Array
    utility: Array
    phi: Array


class Support(NamedTuple):
    """The visited states: `size` (H,) slots a step; `reward`, `utility` (H, A, n)."""

    size: IntArray
    reward: Array
    utility: Array


class DenseModel(NamedTuple):
    """P̂V(s,a) = φ(s,a)ᵀ Λ_h⁻¹ Σ_j m_j V(s_j), β = ‖φ‖_{Λ⁻¹}.

    `phi` (H, A, d, n); `gram`, `gram_inv` (H, d, d); `log_det` (H,); `moments` (H, d, n), where
    m_j = Σ φ(s_h^i, a_h^i) over the episodes i that went on to slot j of step h+1.
    """

    phi: Array
    gram: Array
    gram_inv: Array
    log_det: Array
    moments: Array


class CountModel(NamedTuple):
    """P̂V(s,a) = Σ_j n_h(s,a,s_j) V(s_j) / (n_h(s,a) + ρ), β = (n_h(s,a) + ρ)^{-1/2}: Λ_h is diagonal.

    `visits` (H, A, n) is n_h(s,a); transition t < `num_transitions[h]` leads to slot `target[h, t]` of step h+1 and was
    seen `times[h, t]` times. Those of one (slot, action) are a chain: `first` (H, A, n), `following` (H, m), then −1.
    """

    visits: Array
    log_det: Array
    first: IntArray
    following: IntArray
    target: IntArray
    times: Array
    num_transitions: IntArray
    ridge: float


class Work(NamedTuple):
    """Room for one plan: what is computed once a plan and used at every λ, and the values of the last λ.

    `bonus` (H, A, n); `V` (H+1, 3, n), zero after the last step; `Q` (3, A, n); `pi` (A, n); `weights` (H, 3, d) for
    features. For counts, P̂ row by row: entries `start[h, a, i]` to `start[h, a, i+1]` of `column`, `share` (H, m).
    """

    bonus: Array
    V: Array
    Q: Array
    pi: Array
    weights: Array
    start: IntArray
    column: IntArray
    share: Array


@part
def admits(utility_bound, threshold):  # type: ignore[no-untyped-def]
    """The certified check: a policy may be deployed if its pessimistic utility is at least b. NaN never passes."""
    return utility_bound >= threshold


@kernel
def softmax_step(reward, utility, bonus, n, scales, lam, steps_left, Q, pi, V):  # type: ignore[no-untyped-def]
    """Composite softmax at n states (Defs. "Clipped value functions", "Composite softmax policy").

        Q̄ʳ = r   + clip{ C_r β + P̂V̄ʳ, 0, (H−h)(1+κ ln A)}   V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄† = B†β + clip{ C_† β + P̂V̄†, 0, B†(H−h)}           V̄† = π Q̄†
        Q̲ᵘ = u   + clip{−C_u β + P̂V̲ᵘ, 0, H−h}               V̲ᵘ = π Q̲ᵘ
        π  = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)

    The paper counts h from 1 and the code from 0: its H−h is `steps_left`. reward, utility, bonus (A, n); `Q` (3, A, n)
    holds P̂V on entry and Q on exit; `pi` (A, n) and `V` (3, n) are written.
    """
    A = reward.shape[0]
    C_r, C_u, C_dagger, B_dagger, kappa = scales
    ceiling_r, ceiling_dagger = steps_left * (1.0 + kappa * np.log(A)), steps_left * B_dagger
    for a in range(A):
        for i in range(n):
            beta = bonus[a, i]
            Q[0, a, i] = reward[a, i] + min(max(C_r * beta + Q[0, a, i], 0.0), ceiling_r)
            Q[1, a, i] = B_dagger * beta + min(max(C_dagger * beta + Q[1, a, i], 0.0), ceiling_dagger)
            Q[2, a, i] = utility[a, i] + min(max(C_u * beta + Q[2, a, i], 0.0), float(steps_left))
            pi[a, i] = (Q[1, a, i] + Q[0, a, i] + lam * Q[2, a, i]) / kappa
    for i in range(n):
        top = pi[0, i]
        for a in range(1, A):
            top = max(top, pi[a, i])
        total = entropy = 0.0
        for a in range(A):
            log_weight = pi[a, i] - top
            weight = 1.0 if log_weight == 0.0 else 0.0
            if NEGLIGIBLE < log_weight < 0.0:
                weight = np.exp(log_weight)
                entropy -= weight * log_weight
            pi[a, i] = weight
            total += weight
        # −Σ π ln π = ln Σ w + Σ w (−ln w)/Σ w for weights w = π·Σ w
        entropy = entropy / total + np.log(total) if total > 1.0 else 0.0
        V_r = V_dagger = V_u = 0.0
        for a in range(A):
            pi[a, i] /= total
            V_r += pi[a, i] * Q[0, a, i]
            V_dagger += pi[a, i] * Q[1, a, i]
            V_u += pi[a, i] * Q[2, a, i]
        V[0, i], V[1, i], V[2, i] = V_r + kappa * entropy, V_dagger, V_u


@part
def clear(Q, n):  # type: ignore[no-untyped-def]
    """P̂V = 0 at n states, into `Q` (3, A, n): there is nothing after the last step."""
    for g in range(3):
        for a in range(Q.shape[1]):
            for i in range(n):
                Q[g, a, i] = 0.0


@part
def regress(moments, gram_inv, V_next, n, weights):  # type: ignore[no-untyped-def]
    """w = Λ⁻¹ Σ_j m_j V(s_j) of r, †, u at one step: moments (d, n), V_next (3, n), into `weights` (3, d)."""
    d = gram_inv.shape[0]
    sums = np.empty((3, d))
    for k in range(d):
        for g in range(3):
            total = 0.0
            for j in range(n):
                total += moments[k, j] * V_next[g, j]
            sums[g, k] = total
    for g in range(3):
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += gram_inv[k, m] * sums[g, m]
            weights[g, k] = total


@part
def predict(phi, weights, n, Q):  # type: ignore[no-untyped-def]
    """φᵀw of r, †, u at n states: phi (A, d, n), weights (3, d), into `Q` (3, A, n)."""
    for g in range(3):
        for a in range(phi.shape[0]):
            for i in range(n):
                Q[g, a, i] = weights[g, 0] * phi[a, 0, i]
            for k in range(1, phi.shape[1]):
                for i in range(n):
                    Q[g, a, i] += weights[g, k] * phi[a, k, i]


@part
def feature_bonus(phi, gram_inv, n, bonus):  # type: ignore[no-untyped-def]
    """β = ‖φ‖_{Λ⁻¹} at n states: phi (A, d, n), gram_inv (d, d), into `bonus` (A, n)."""
    d = phi.shape[1]
    for a in range(phi.shape[0]):
        for i in range(n):
            bonus[a, i] = 0.0
        for k in range(d):
            for m in range(k + 1):
                scale = gram_inv[k, m] if m == k else 2.0 * gram_inv[k, m]
                for i in range(n):
                    bonus[a, i] += scale * phi[a, k, i] * phi[a, m, i]
        for i in range(n):
            bonus[a, i] = np.sqrt(max(bonus[a, i], 0.0))


def refresh(model: DenseModel | CountModel, size: IntArray, work: Work) -> None:
    """Compute what the evaluations of one plan share: the bonuses and, for counts, P̂ row by row."""


@overload(refresh, inline="always")
def _refresh(model, size, work):  # type: ignore[no-untyped-def]
    return _refresh_dense if model.instance_class is DenseModel else _refresh_counts


def _refresh_dense(model, size, work):  # type: ignore[no-untyped-def]
    for h in range(size.shape[0]):
        feature_bonus(model.phi[h], model.gram_inv[h], size[h], work.bonus[h])


def _refresh_counts(model, size, work):  # type: ignore[no-untyped-def]
    H, A, _ = model.visits.shape
    for h in range(H):
        entry = 0
        for a in range(A):
            for i in range(size[h]):
                work.bonus[h, a, i] = 1.0 / np.sqrt(model.visits[h, a, i] + model.ridge)
                work.start[h, a, i] = entry
                t = model.first[h, a, i]
                while t >= 0:
                    work.column[h, entry] = model.target[h, t]
                    work.share[h, entry] = model.times[h, t] / (model.visits[h, a, i] + model.ridge)
                    entry += 1
                    t = model.following[h, t]
            work.start[h, a, size[h]] = entry


def next_values(model: DenseModel | CountModel, h: int, size: IntArray, work: Work) -> None:
    """P̂_hV of V = work.V[h+1] at all slots of step h, into work.Q."""


@overload(next_values, inline="always")
def _next_values(model, h, size, work):  # type: ignore[no-untyped-def]
    return _next_values_dense if model.instance_class is DenseModel else _next_values_counts


def _next_values_dense(model, h, size, work):  # type: ignore[no-untyped-def]
    regress(model.moments[h], model.gram_inv[h], work.V[h + 1], size[h + 1], work.weights[h])
    predict(model.phi[h], work.weights[h], size[h], work.Q)


def _next_values_counts(model, h, size, work):  # type: ignore[no-untyped-def]
    for a in range(work.Q.shape[1]):
        for i in range(size[h]):
            r = dagger = u = 0.0
            for entry in range(work.start[h, a, i], work.start[h, a, i + 1]):
                share, j = work.share[h, entry], work.column[h, entry]
                r += share * work.V[h + 1, 0, j]
                dagger += share * work.V[h + 1, 1, j]
                u += share * work.V[h + 1, 2, j]
            work.Q[0, a, i], work.Q[1, a, i], work.Q[2, a, i] = r, dagger, u


@part
def evaluate(model, support, work, scales, lam):  # type: ignore[no-untyped-def]
    """V̲ᵘ(s₁) of π^λ; the values of r, †, u at all slots are left in `work.V`."""
    H = support.size.shape[0]
    for h in range(H - 1, -1, -1):
        if h < H - 1:
            next_values(model, h, support.size, work)
        else:
            clear(work.Q, support.size[h])
        softmax_step(
            support.reward[h], support.utility[h], work.bonus[h], support.size[h],
            scales, lam, H - 1 - h, work.Q, work.pi, work.V[h],
        )  # fmt: skip
    return work.V[0, 2, 0]


@kernel
def decide(model, support, work, scales, search):  # type: ignore[no-untyped-def]
    """Algorithm 2 for one episode: (source, λ, bound), with the values of the deployed λ left in `work`.

    The λ to evaluate: C_λ (only with the incumbent as fallback), 0, the midpoints, and last the one found, so that the
    bound returned is that of the deployed policy itself. One call of `evaluate` serves all, to be compiled once.
    """
    refresh(model, support.size, work)
    lower, upper = 0.0, search.lam_max
    bound = np.nan
    for t in range(-2 if search.fallback else -1, search.num_halvings + 1):
        lam = (lower + upper) / 2
        if t == -2 or t == search.num_halvings:
            lam = upper
        elif t == -1:
            lam = lower
        bound = evaluate(model, support, work, scales, lam)
        admitted = admits(bound, search.threshold)
        if t == -2 and not admitted:  # Alg. 2, incumbent trigger -> V̲ᵘ(π^{C_λ}) < b
            return SAFE, np.nan, bound
        if t == -1 and admitted:  # Alg. 2, λ = 0 -> V̲ᵘ(π⁰) ≥ b
            return ZERO, 0.0, bound
        if 0 <= t < search.num_halvings:  # Alg. 2, bisection: only admitted λ replace the upper end
            lower, upper = (lower, lam) if admitted else (lam, upper)
    if search.fallback and not admits(bound, search.threshold):
        return SAFE, np.nan, bound
    return SEARCH, upper, bound


def absorb(model: DenseModel | CountModel, slots: IntArray, actions: IntArray) -> None:
    """Add one episode, slots and actions (H,): Λ ← Λ + φφᵀ with inverse and ln det, m_j ← m_j + φ; or the counts."""


@overload(absorb, inline="always")
def _absorb(model, slots, actions):  # type: ignore[no-untyped-def]
    return _absorb_dense if model.instance_class is DenseModel else _absorb_counts


def _absorb_dense(model, slots, actions):  # type: ignore[no-untyped-def]
    H, d = model.gram.shape[0], model.gram.shape[1]
    x, direction = np.empty(d), np.empty(d)
    for h in range(H):
        for k in range(d):
            x[k] = model.phi[h, actions[h], k, slots[h]]
        scale = 1.0
        for k in range(d):
            total = 0.0
            for m in range(d):
                total += model.gram_inv[h, k, m] * x[m]
            direction[k] = total
            scale += x[k] * total
        for k in range(d):
            for m in range(d):
                model.gram[h, k, m] += x[k] * x[m]
                model.gram_inv[h, k, m] -= direction[k] * direction[m] / scale
        model.log_det[h] += np.log(scale)
        if h < H - 1:
            for k in range(d):
                model.moments[h, k, slots[h + 1]] += x[k]


def _absorb_counts(model, slots, actions):  # type: ignore[no-untyped-def]
    H = model.visits.shape[0]
    for h in range(H):
        a, i = actions[h], slots[h]
        model.log_det[h] += np.log1p(1.0 / (model.visits[h, a, i] + model.ridge))
        model.visits[h, a, i] += 1.0
        if h < H - 1:
            t = model.first[h, a, i]
            while t >= 0 and model.target[h, t] != slots[h + 1]:
                t = model.following[h, t]
            if t < 0:
                t = model.num_transitions[h]
                model.num_transitions[h] += 1
                model.target[h, t] = slots[h + 1]
                model.following[h, t] = model.first[h, a, i]
                model.first[h, a, i] = t
            model.times[h, t] += 1.0


def is_full(model: DenseModel | CountModel, size: IntArray, n: int) -> bool:
    """Whether one more episode might not fit."""
    transitions_full = isinstance(model, CountModel) and bool(model.num_transitions.max() == model.times.shape[1])
    return transitions_full or bool(size.max() == n)


@part
def _any_equal(lengths, room):  # type: ignore[no-untyped-def]
    found = False
    for length in lengths:
        found = found or length == room
    return found


@overload(is_full, inline="always")
def _is_full(model, size, n):  # type: ignore[no-untyped-def]
    if model.instance_class is DenseModel:
        return lambda model, size, n: _any_equal(size, n)
    return lambda model, size, n: _any_equal(size, n) or _any_equal(model.num_transitions, model.times.shape[1])


@kernel
def absorb_episode(model, slots, actions):  # type: ignore[no-untyped-def]
    """`absorb` as Python calls it."""
    absorb(model, slots, actions)


@kernel
def enter(known, slot_of, state_of, support, phi, states, slots):  # type: ignore[no-untyped-def]
    """Slots (H,) of the states of one episode; a state new to its step gets the next slot and is described there.

    slot_of (H, S), −1 for unseen; state_of (H, n); phi (H, A, d, n), d = 0 for counts.
    """
    H, A, d, _ = phi.shape
    for h in range(H):
        s = states[h]
        if slot_of[h, s] < 0:
            i = support.size[h]
            support.size[h] += 1
            slot_of[h, s], state_of[h, i] = i, s
            for a in range(A):
                support.reward[h, a, i], support.utility[h, a, i] = known.reward[h, a, s], known.utility[h, a, s]
                for k in range(d):
                    phi[h, a, k, i] = known.phi[a, k, s]
        slots[h] = slot_of[h, s]


@kernel
def feature_table(known, gram_inv, weights, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): gram_inv (H, d, d), weights (H, 3, d)."""
    H, A, S = known.reward.shape
    bonus, Q, pi, V = np.empty((A, S)), np.empty((3, A, S)), np.empty((A, S)), np.empty((3, S))
    for h in range(H):
        feature_bonus(known.phi, gram_inv[h], S, bonus)
        predict(known.phi, weights[h], S, Q)
        softmax_step(known.reward[h], known.utility[h], bonus, S, scales, lam, H - 1 - h, Q, pi, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s]


@kernel
def count_table(known, state_of, size, bonus, Q, ridge, scales, lam, table):  # type: ignore[no-untyped-def]
    """π^λ at every state of a finite task, into `table` (H, S, A): bonus (H, A, n), P̂V = Q (H, 3, A, n) at slots."""
    H, A, S = known.reward.shape
    bonus_all, Q_all, pi, V = np.empty((A, S)), np.empty((3, A, S)), np.empty((A, S)), np.empty((3, S))
    for h in range(H):
        clear(Q_all, S)
        for a in range(A):
            for s in range(S):
                bonus_all[a, s] = 1.0 / np.sqrt(ridge)
        for i in range(size[h]):
            s = state_of[h, i]
            for a in range(A):
                bonus_all[a, s] = bonus[h, a, i]
                for g in range(3):
                    Q_all[g, a, s] = Q[h, g, a, i]
        softmax_step(known.reward[h], known.utility[h], bonus_all, S, scales, lam, H - 1 - h, Q_all, pi, V)
        for s in range(S):
            for a in range(A):
                table[h, s, a] = pi[a, s]


@kernel
def count_values(model, size, work, Q):  # type: ignore[no-untyped-def]
    """P̂V of the values in `work.V` at all slots of all steps, into `Q` (H, 3, A, n); 0 at the last step."""
    for h in range(size.shape[0] - 1):
        next_values(model, h, size, work)
        for g in range(3):
            for a in range(Q.shape[2]):
                for i in range(size[h]):
                    Q[h, g, a, i] = work.Q[g, a, i]


def policy_table(
    model: DenseModel | CountModel,
    known: Known,
    state_of: IntArray,
    size: IntArray,
    work: Work,
    scales: Scales,
    lam: float,
    table: Array,
) -> None:
    """π^λ of the λ evaluated last at every state of a finite task, into `table` (H, S, A)."""


@overload(policy_table, inline="always")
def _policy_table(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    return _policy_table_dense if model.instance_class is DenseModel else _policy_table_counts


def _policy_table_dense(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    feature_table(known, model.gram_inv, work.weights, scales, lam, table)


def _policy_table_counts(model, known, state_of, size, work, scales, lam, table):  # type: ignore[no-untyped-def]
    Q = np.zeros((size.shape[0], 3, work.pi.shape[0], work.pi.shape[1]))
    count_values(model, size, work, Q)
    count_table(known, state_of, size, work.bonus, Q, model.ridge, scales, lam, table)


@kernel
def act(phi, reward, utility, gram_inv, weights, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state: phi (A, d, 1), reward and utility (A, 1), gram_inv (d, d), weights (3, d) of its step."""
    A = phi.shape[0]
    bonus, Q = np.empty((A, 1)), np.empty((3, A, 1))
    feature_bonus(phi, gram_inv, 1, bonus)
    predict(phi, weights, 1, Q)
    return act_on(reward, utility, bonus, Q, scales, lam, steps_left)


@kernel
def act_on(reward, utility, bonus, Q, scales, lam, steps_left):  # type: ignore[no-untyped-def]
    """π^λ (A,) at one state from its reward, utility, bonus (A, 1) and P̂V = Q (3, A, 1), which becomes Q."""
    A = reward.shape[0]
    pi, V, out = np.empty((A, 1)), np.empty((3, 1)), np.empty(A)
    softmax_step(reward, utility, bonus, 1, scales, lam, steps_left, Q, pi, V)
    for a in range(A):
        out[a] = pi[a, 0]
    return out

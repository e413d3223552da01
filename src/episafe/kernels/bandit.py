"""Linear bandits, compiled: ridge regression, the decisions of Algorithm 1 and its peers, and rounds of a run.

`decide` does what the agents' `choose` do in NumPy; they differ in a `Rule` only. A test compares them.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.core.types import SAFE, SEARCH, Array, IntArray
from episafe.kernels.bandit_mixing import admits, mixed, nudged
from episafe.kernels.bandit_sets import INFEASIBLE, envelope, simplex_over_arms
from episafe.kernels.compilation import kernel
from episafe.kernels.simulation import draw

REFACTOR_EVERY = 500  # observations between fresh inverses, so that rounding does not build up
BLOCK = 1_024  # rounds whose noise is drawn together
SOURCE, ID, DUE, REASON = range(4)  # entries of `Deployed.marks`
ADMITTED, UNCONFIDENT, NO_POLICY, FAILED, BEYOND, SEED, ALWAYS = range(7)
REASONS = (
    "",
    "not confident enough of the incumbent yet: C·β > ξ/2",
    "no policy has a pessimistic utility at the threshold",
    "the policy found did not pass the check in float64",
    "more observations than the radius covers: give a larger num_rounds, or a radius without it",
    "the seed phase: the incumbent, with a safe share of every other action",
    "nothing is learned",
)


class Regression(NamedTuple):
    """Λ = I + Σ aaᵀ and Λ⁻¹ (d, d), Σ a r and Σ a u (1 + m, d), ln det Λ (1,), the number of observations (1,)."""

    gram: Array
    gram_inv: Array
    sums: Array
    log_det: Array
    seen: IntArray


class Radius(NamedTuple):
    """C = offset + noise·√(per_log_det·ln det Λ + per_log_count·ln(1 + n) + constant), for n < limit observations."""

    offset: float
    noise: float
    per_log_det: float
    per_log_count: float
    constant: float
    limit: float


class Rule(NamedTuple):
    """What distinguishes the algorithms.

    Attributes:
        thresholds, norm_bound: b (m,) and B.
        slack: ξ, the least of all limits; NaN to estimate it by the incumbent's pessimistic utility less b; −inf to
            deploy the incumbent always.
        optimism: of the reward, in units of C; NaN for 1 + 2B/ξ.
        pessimism: of the utility in the search, in units of C: 1, or −1 for an optimistic constraint.
        constrained: whether the search has the constraint.
        trigger: whether the incumbent is deployed while C β_sf > ξ/2.
        shrink: whether a proposal is mixed with the incumbent until it passes the check (one limit).
        num_seeds, seed_kept: how many first rounds play the incumbent with this probability, else a uniform arm.
    """

    thresholds: Array
    norm_bound: float
    slack: float
    optimism: float = math.nan
    pessimism: float = 1.0
    constrained: bool = True
    trigger: bool = False
    shrink: bool = False
    num_seeds: int = 0
    seed_kept: float = 1.0


class Law(NamedTuple):
    """What a run knows and the agent does not: θ_r and every θ_u (1 + m, d), the noise, whether rewards are clicks."""

    theta: Array
    noise: float
    clicks: bool


class Deployed(NamedTuple):
    """The plan in force: `policy` over arms (n,), its running sums, true values (1 + m,), bounds (m,), `figures` = λ
    and ln det Λ when it was made, and `marks` (4,)."""

    policy: Array
    running: Array
    values: Array
    bounds: Array
    figures: Array
    marks: IntArray


@kernel
def absorb(model, actions, row, signals, seen):  # type: ignore[no-untyped-def]
    """Add the reward and utilities signals[seen] of actions[row] by a rank-one update."""
    d, width = model.gram.shape[0], model.sums.shape[0]
    image, square = np.empty(d), 0.0
    for i in range(d):
        image[i] = 0.0
        for j in range(d):
            image[i] += model.gram_inv[i, j] * actions[row, j]
        square += image[i] * actions[row, i]
    for g in range(width):
        for i in range(d):
            model.sums[g, i] += signals[seen, g] * actions[row, i]
    for i in range(d):
        for j in range(d):
            model.gram[i, j] += actions[row, i] * actions[row, j]
            model.gram_inv[i, j] -= image[i] * image[j] / (1.0 + square)
    model.log_det[0] += math.log1p(square)
    model.seen[0] += 1
    if model.seen[0] % REFACTOR_EVERY == 0:
        _refactor(model)


@kernel
def _refactor(model):  # type: ignore[no-untyped-def]
    """Compute Λ⁻¹ and ln det Λ from Λ = LLᵀ, symmetric to the bit. Λ ⪰ I, so the factorisation cannot fail."""
    d = model.gram.shape[0]
    L_inv = np.linalg.inv(np.linalg.cholesky(model.gram))
    log_det = 0.0
    for i in range(d):
        log_det -= 2.0 * math.log(L_inv[i, i])
        for j in range(d):
            total = 0.0
            for k in range(max(i, j), d):
                total += L_inv[k, i] * L_inv[k, j]
            model.gram_inv[i, j] = total
    model.log_det[0] = log_det


@kernel
def absorb_all(model, actions, signals):  # type: ignore[no-untyped-def]
    """Add n observations in their order: actions (n, d), signals (n, 1 + m)."""
    for row in range(actions.shape[0]):
        absorb(model, actions, row, signals, row)


@kernel
def estimates(model):  # type: ignore[no-untyped-def]
    """Return θ̂_g = Λ⁻¹ Σ a g for g = r, u_1, …, u_m as the rows of (1 + m, d)."""
    d, width = model.gram.shape[0], model.sums.shape[0]
    theta = np.zeros((width, d))
    for g in range(width):
        for i in range(d):
            for j in range(d):
                theta[g, i] += model.gram_inv[i, j] * model.sums[g, j]
    return theta


@kernel
def mean(theta, which, actions, row):  # type: ignore[no-untyped-def]
    """Return θᵀ actions[row], θ = theta[which]."""
    total = 0.0
    for j in range(actions.shape[1]):
        total += theta[which, j] * actions[row, j]
    return total


@kernel
def norm(model, actions, row):  # type: ignore[no-untyped-def]
    """Return β = ‖actions[row]‖_{Λ⁻¹}."""
    d, square = model.gram.shape[0], 0.0
    for i in range(d):
        image = 0.0
        for j in range(d):
            image += model.gram_inv[i, j] * actions[row, j]
        square += image * actions[row, i]
    return math.sqrt(max(square, 0.0))


@kernel
def radius_now(radius, log_det, count):  # type: ignore[no-untyped-def]
    """Return C after `count` observations."""
    growing = radius.per_log_det * log_det + radius.per_log_count * math.log(1.0 + count)
    return radius.offset + radius.noise * math.sqrt(growing + radius.constant)


def scratch(num_arms: int, num_constraints: int) -> tuple[Array, Array, Array, Array, IntArray]:
    """Return space for `decide`: β and f (n,), g and the pessimistic utilities (m, n), an order (n,)."""
    (beta, f), (g, low) = np.empty((2, num_arms)), np.empty((2, num_constraints, num_arms))
    return beta, f, g, low, np.empty(num_arms, dtype=np.int64)


@kernel
def over_policy(policy, first, values):  # type: ignore[no-untyped-def]
    """Return Σ_i π_{first + i} values_i."""
    total = 0.0
    for i in range(values.shape[0]):
        if policy[first + i] > 0.0:
            total += policy[first + i] * values[i]
    return total


@kernel
def decide(arms, first, safe, model, rule, radius, scratch, policy, bounds):  # type: ignore[no-untyped-def]
    """Fill `policy` (n,) over arms[first : first + n] and its `bounds` (m,); return source, λ and the reason.

    The incumbent's probabilities are safe[first + i].
    """
    C, n, m = radius_now(radius, model.log_det[0], model.seen[0]), policy.shape[0], bounds.shape[0]
    theta, (beta, f, g, low, _) = estimates(model), scratch
    for i in range(n):
        beta[i], f[i] = norm(model, arms, first + i), mean(theta, 0, arms, first + i)
        for c in range(m):
            g[c, i] = mean(theta, 1 + c, arms, first + i)
            low[c, i] = g[c, i] - C * beta[i]
    slack, estimated = rule.slack, np.inf
    for c in range(m):
        bounds[c] = over_policy(safe, first, low[c])
        estimated = min(estimated, bounds[c] - rule.thresholds[c])
    if math.isnan(slack):
        slack = estimated
    lam, reason = np.nan, ADMITTED
    if model.seen[0] >= radius.limit:
        reason = BEYOND
    elif rule.slack == -np.inf:
        reason = ALWAYS
    elif model.seen[0] < rule.num_seeds:  # no arm has a utility below −B, and the incumbent's is b + ξ or more
        for i in range(n):
            policy[i] = rule.seed_kept * safe[first + i] + (1.0 - rule.seed_kept) / n
        bounds[0] = mixed(-rule.norm_bound, rule.thresholds[0] + slack, rule.seed_kept)
        return SEARCH, np.nan, SEED
    elif rule.trigger and not C * over_policy(safe, first, beta) <= slack / 2:  # Alg. 1, line 3
        reason = UNCONFIDENT
    else:  # Alg. 1, line 4
        optimism = 1.0 + 2.0 * rule.norm_bound / slack if math.isnan(rule.optimism) else rule.optimism
        for i in range(n):
            f[i] += optimism * C * beta[i]
            for c in range(m):
                g[c, i] -= rule.pessimism * C * beta[i]
        lam, reason = search(rule, slack, scratch, safe, first, policy, bounds)
    if reason == ADMITTED:
        return SEARCH, lam, ADMITTED
    for i in range(n):
        policy[i] = safe[first + i]
    for c in range(m):
        bounds[c] = over_policy(safe, first, low[c])
    return SAFE, np.nan, reason


@kernel
def search(rule, slack, scratch, safe, first, policy, bounds):  # type: ignore[no-untyped-def]
    """Fill `policy` and `bounds` with the best policy, checked in float64; return λ, and ADMITTED or why not."""
    (_, f, g, low, order), (m, n) = scratch, scratch[2].shape
    for i in range(n):
        policy[i] = 0.0
    if m > 1 and rule.constrained:
        lam, passed = simplex_over_arms(f, g, rule.thresholds, safe, first, policy), True
        for c in range(m):
            bounds[c] = over_policy(policy, 0, low[c])
            passed = passed and admits(bounds[c], rule.thresholds[c])
        return lam, NO_POLICY if math.isnan(lam) else ADMITTED if passed else FAILED
    b = rule.thresholds[0]
    left, right, share, lam = envelope(f, g[0], b if rule.constrained else -np.inf, order)
    if right == INFEASIBLE:
        return lam, NO_POLICY
    if rule.shrink:
        return lam, shrink(low[0], (left, right, share), (b, slack), safe, first, policy, bounds)
    if rule.constrained:
        share = nudged(low[0, left], low[0, right], share, b)
    for c in range(m):
        bounds[c] = mixed(low[c, left], low[c, right], share)
    policy[left] = 1.0 - share
    policy[right] += share
    return lam, FAILED if math.isnan(share) else ADMITTED


@kernel
def shrink(low, proposal, limit, safe, first, policy, bounds):  # type: ignore[no-untyped-def]
    """Fill `policy` with γ·proposal + (1 − γ)·incumbent, the largest γ with γ·bound + (1 − γ)(b + ξ) ≥ b.

    `proposal` is two arms and the share of the second, `limit` b and ξ. Return ADMITTED or FAILED.
    """
    (left, right, share), (b, slack) = proposal, limit
    bound, known = mixed(low[left], low[right], share), b + slack
    kept = nudged(bound, known, 0.0 if admits(bound, b) else (b - bound) / (known - bound), b)
    for i in range(policy.shape[0]):
        policy[i] = kept * safe[first + i]
    policy[left] += (1.0 - kept) * (1.0 - share)
    policy[right] += (1.0 - kept) * share
    bounds[0] = mixed(bound, known, kept)
    return FAILED if math.isnan(kept) else ADMITTED


@kernel
def put_in_force(law, arms, first, deployed):  # type: ignore[no-untyped-def]
    """Compute the running sums and the true values of the policy in `deployed`."""
    total = 0.0
    for i in range(deployed.policy.shape[0]):
        if deployed.policy[i] > 0.0:
            total += deployed.policy[i]
        deployed.running[i] = total
    for g in range(deployed.values.shape[0]):
        deployed.values[g] = 0.0
        for i in range(deployed.policy.shape[0]):
            if deployed.policy[i] > 0.0:
                deployed.values[g] += deployed.policy[i] * mean(law.theta, g, arms, first + i)


@kernel
def respond(law, actions, row, noise, position, signals):  # type: ignore[no-untyped-def]
    """Fill `signals` (1, 1 + m) with what is observed when actions[row] is played, with the noise (BLOCK, 1 + m)."""
    for g in range(law.theta.shape[0]):
        signals[0, g] = mean(law.theta, g, actions, row) + law.noise * noise[position, g]
    if law.clicks:
        rate = mean(law.theta, 0, actions, row)
        signals[0, 0] = 1.0 if 0.5 * math.erfc(-noise[position, 0] / math.sqrt(2.0)) < rate else 0.0


@kernel
def play(offer, law, luck, learner, deployed, facts, span, start):  # type: ignore[no-untyped-def]
    """Play rounds `start` and later of a span, or until a plan is due that is not made here; return the first not
    played.

    `offer`: arms (n, d), the incumbent (n,), and whether they change: then those of every round of the span are
    stacked. `learner`: model, rule, radius, the growth of ln det Λ after which to decide again, whether that is done
    here, and scratch space. `span`: its length, its first row in the facts, its first place in the block of `luck`.
    """
    (arms, safe, changes), (length, row, place), (choices, noise) = offer, span, luck
    (model, rule, radius, growth, inside, scratch), (n, m) = (
        learner,
        (deployed.policy.shape[0], deployed.bounds.shape[0]),
    )
    marks, figures, signals = deployed.marks, deployed.figures, np.empty((1, 1 + m))
    for i in range(start, length):
        first = i * n if changes else 0
        if marks[DUE] or changes:
            if not inside:
                return i
            made = decide(arms, first, safe, model, rule, radius, scratch, deployed.policy, deployed.bounds)
            marks[SOURCE], figures[0], marks[REASON] = made
            put_in_force(law, arms, first, deployed)
            figures[1], marks[DUE] = model.log_det[0], 0
            marks[ID] += 1
        facts.bounds[row + i, 0], facts.values[row + i, 0] = figures[0], deployed.values[0]
        for c in range(m):
            facts.values[row + i, 1 + c], facts.bounds[row + i, 1 + c] = deployed.values[1 + c], deployed.bounds[c]
        facts.sources[row + i], facts.plan_ids[row + i] = marks[SOURCE], marks[ID]
        arm = first + draw(deployed.running, choices[place + i])
        respond(law, arms, arm, noise, place + i, signals)
        absorb(model, arms, arm, signals, 0)
        if model.log_det[0] - figures[1] > growth:
            marks[DUE] = 1
    return length


@kernel
def optima(theta, thresholds, arms, safe, found):  # type: ignore[no-untyped-def]
    """Fill `found` (K,) with the optimum of each round, NaN where no arm is safe; arms (K·n, d), safe (K·n,)."""
    n, m = safe.shape[0] // found.shape[0], thresholds.shape[0]
    f, g, policy, order = np.empty(n), np.empty((m, n)), np.empty(n), np.empty(n, dtype=np.int64)
    for k in range(found.shape[0]):
        for i in range(n):
            f[i] = mean(theta, 0, arms, k * n + i)
            for c in range(m):
                g[c, i] = mean(theta, 1 + c, arms, k * n + i)
        if m == 1:
            low, high, share, _ = envelope(f, g[0], thresholds[0], order)
            found[k] = np.nan if high == INFEASIBLE else mixed(f[low], f[high], share)
        else:
            lam = simplex_over_arms(f, g, thresholds, safe, k * n, policy)
            found[k] = np.nan if math.isnan(lam) else over_policy(policy, 0, f)

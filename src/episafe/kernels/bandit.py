"""Linear bandits, compiled: ridge regression, the decisions of Algorithm 1 and its peers, and rounds of a run.

The algorithms differ in a `Rule` only. `OPLBSP.decide` is the same in NumPy; a test compares the two.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.core.types import SAFE, SEARCH, Array, IntArray
from episafe.kernels.bandit_sets import best_policy, means
from episafe.kernels.compilation import kernel
from episafe.kernels.mixture import payer_share
from episafe.kernels.simulation import draw
from episafe.kernels.wealth import admits

REFACTOR_EVERY = 500  # observations between fresh inverses, so that rounding does not build up
BLOCK = 1_024  # rounds whose noise is drawn together
SOURCE, ID, DUE, REASON = range(4)  # entries of `Deployed.marks`
ADMITTED, UNCONFIDENT, NO_POLICY, BEYOND, SEED, ALWAYS = range(6)
REASONS = (
    "",
    "not confident enough of the incumbent yet: C·β > ξ/2",
    "no policy has a pessimistic utility at the threshold",
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
        thresholds, norm_bound: b (m,) and B; b = −∞ for no constraint.
        slack: ξ, the least of all limits; NaN to estimate it by the incumbent's pessimistic utility less b; −inf to
            deploy the incumbent always.
        optimism: of the reward, in units of C; NaN for 1 + 2B/ξ.
        pessimism: of the utility in the search, in units of C: 1, or −1 for an optimistic constraint.
        trigger: whether the incumbent is deployed while C β_sf > ξ/2.
        shrink: whether a proposal is mixed with the incumbent until it passes the check (one limit).
        num_seeds, seed_kept: how many first rounds play the incumbent with this probability, else a uniform arm.
    """

    thresholds: Array
    norm_bound: float
    slack: float
    optimism: float = math.nan
    pessimism: float = 1.0
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
def absorb(model, action, signals):  # type: ignore[no-untyped-def]
    """Add the reward and utilities (1 + m,) of an action (d,) by a rank-one update."""
    d, image, square = action.shape[0], np.empty(action.shape[0]), 0.0
    for i in range(d):
        image[i] = dot(model.gram_inv[i], action)
        square += image[i] * action[i]
    for i in range(d):
        for g in range(signals.shape[0]):
            model.sums[g, i] += signals[g] * action[i]
        for j in range(d):
            model.gram[i, j] += action[i] * action[j]
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
    model.log_det[0] = -2.0 * np.log(np.diag(L_inv)).sum()
    for i in range(d):
        for j in range(d):
            total = 0.0
            for k in range(max(i, j), d):
                total += L_inv[k, i] * L_inv[k, j]
            model.gram_inv[i, j] = total


@kernel
def absorb_all(model, actions, signals):  # type: ignore[no-untyped-def]
    """Add n observations in their order: actions (n, d), signals (n, 1 + m)."""
    for row in range(actions.shape[0]):
        absorb(model, actions[row], signals[row])


@kernel
def dot(x, y):  # type: ignore[no-untyped-def]
    """Return xᵀy."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@kernel
def estimates(model):  # type: ignore[no-untyped-def]
    """Return θ̂_g = Λ⁻¹ Σ a g for g = r, u_1, …, u_m as the rows of (1 + m, d)."""
    theta = np.empty(model.sums.shape)
    for g in range(theta.shape[0]):
        for i in range(theta.shape[1]):
            theta[g, i] = dot(model.gram_inv[i], model.sums[g])
    return theta


@kernel
def radius_now(radius, log_det, count):  # type: ignore[no-untyped-def]
    """Return C after `count` observations."""
    growing = radius.per_log_det * log_det + radius.per_log_count * math.log(1.0 + count)
    return radius.offset + radius.noise * math.sqrt(growing + radius.constant)


@kernel
def decide(arms, safe, model, rule, radius):  # type: ignore[no-untyped-def]
    """Return a policy (n,) over arms (n, d), its bounds (m,), source, λ and the reason, given the incumbent (n,)."""
    C, b, theta = radius_now(radius, model.log_det[0], model.seen[0]), rule.thresholds, estimates(model)
    n, m, width = arms.shape[0], b.shape[0], 0.0
    f, beta, g, low = np.empty(n), np.empty(n), np.empty((m, n)), np.empty((m, n))
    for i in range(n):
        square = 0.0
        for j in range(arms.shape[1]):
            square += dot(model.gram_inv[j], arms[i]) * arms[i, j]
        f[i], beta[i] = dot(theta[0], arms[i]), math.sqrt(max(square, 0.0))
        width += safe[i] * beta[i]
        for c in range(m):
            g[c, i] = dot(theta[1 + c], arms[i])
            low[c, i] = g[c, i] - C * beta[i]
    bounds, slack = means(safe, low), rule.slack
    if math.isnan(slack):
        slack = (bounds - b).min()
    if model.seen[0] >= radius.limit:
        reason = BEYOND
    elif rule.slack == -np.inf:
        reason = ALWAYS
    elif model.seen[0] < rule.num_seeds:  # no arm has a utility below −B, and the incumbent's is b + ξ or more
        bounds[0] = (1.0 - rule.seed_kept) * -rule.norm_bound + rule.seed_kept * (b[0] + slack)
        return rule.seed_kept * safe + (1.0 - rule.seed_kept) / n, bounds, SEARCH, np.nan, SEED
    elif rule.trigger and not C * width <= slack / 2:  # Alg. 1, line 3
        reason = UNCONFIDENT
    else:  # Alg. 1, line 4
        optimism = 1.0 + 2.0 * rule.norm_bound / slack if math.isnan(rule.optimism) else rule.optimism
        policy, lam = best_policy(f + optimism * C * beta, g - rule.pessimism * C * beta, b, safe)
        found, reason = means(policy, low), NO_POLICY
        if rule.shrink and not math.isnan(lam) and not admits(found[0], b[0]):
            kept = payer_share(found[0], b[0] + slack, b[0])  # of the incumbent, the least that passes the check
            policy = (1.0 - kept) * policy + kept * safe
            found[0] = (1.0 - kept) * found[0] + kept * (b[0] + slack)
        if not math.isnan(lam) and (found >= b).all():
            return policy, found, SEARCH, lam, ADMITTED
    return safe.copy(), bounds, SAFE, np.nan, reason


@kernel
def put_in_force(law, arms, deployed):  # type: ignore[no-untyped-def]
    """Compute the running sums and the true values of the policy in `deployed`."""
    total = 0.0
    deployed.values[:] = 0.0
    for i in range(arms.shape[0]):
        if deployed.policy[i] > 0.0:
            total += deployed.policy[i]
            for g in range(deployed.values.shape[0]):
                deployed.values[g] += deployed.policy[i] * dot(law.theta[g], arms[i])
        deployed.running[i] = total


@kernel
def respond(law, action, noise):  # type: ignore[no-untyped-def]
    """Return what is observed of an action (d,), (1 + m,), given the noise (1 + m,)."""
    signals = np.empty(law.theta.shape[0])
    for g in range(law.theta.shape[0]):
        signals[g] = dot(law.theta[g], action) + law.noise * noise[g]
    if law.clicks:
        signals[0] = 1.0 if 0.5 * math.erfc(-noise[0] / math.sqrt(2.0)) < dot(law.theta[0], action) else 0.0
    return signals


@kernel
def play(offer, law, draws, learner, deployed, facts, span, start):  # type: ignore[no-untyped-def]
    """Play rounds `start` and later of a span until a plan is due that is not made here; return the first not played.

    `offer`: arms (n, d), the incumbent (n,), and whether they change: then those of every round of the span are
    stacked. `learner`: model, rule, radius, the growth of ln det Λ after which to decide again, and whether that is
    done here. `span`: its length, its first row in the facts, its first place in the block of `draws`.
    """
    (arms, safe, changes), (length, row, place), (choices, noise) = offer, span, draws
    (model, rule, radius, growth, inside), n = learner, deployed.policy.shape[0]
    marks, figures = deployed.marks, deployed.figures
    for i in range(start, length):
        first = i * n if changes else 0
        if marks[DUE] or changes:
            if not inside:
                return i
            offered, incumbent = arms[first : first + n], safe[first : first + n]
            made = decide(offered, incumbent, model, rule, radius)
            deployed.policy[:], deployed.bounds[:], marks[SOURCE], figures[0], marks[REASON] = made
            put_in_force(law, offered, deployed)
            figures[1], marks[DUE] = model.log_det[0], 0
            marks[ID] += 1
        k = row + i
        facts.sources[k], facts.plan_ids[k], facts.bounds[k, 0] = marks[SOURCE], marks[ID], figures[0]
        facts.values[k], facts.bounds[k, 1:] = deployed.values, deployed.bounds
        arm = first + draw(deployed.running, choices[place + i])
        absorb(model, arms[arm], respond(law, arms[arm], noise[place + i]))
        if model.log_det[0] - figures[1] > growth:
            marks[DUE] = 1
    return length


@kernel
def optima(theta, thresholds, arms, safe, found):  # type: ignore[no-untyped-def]
    """Fill `found` (K,) with the optimum of each round, NaN where no arm is safe; arms (K·n, d), safe (K·n,)."""
    n = safe.shape[0] // found.shape[0]
    values = np.empty((theta.shape[0], n))
    for k in range(found.shape[0]):
        for i in range(n):
            for g in range(theta.shape[0]):
                values[g, i] = dot(theta[g], arms[k * n + i])
        policy, lam = best_policy(values[0], values[1:], thresholds, safe[k * n : (k + 1) * n])
        found[k] = np.nan if math.isnan(lam) else dot(policy, values[0])

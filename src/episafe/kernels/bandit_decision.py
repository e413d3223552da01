"""Decisions over finitely many arms. Algorithm 1 of the paper and its peers differ in a `Rule` only.

With θ̂ and β = ‖·‖_{Λ⁻¹} from the regression and the radius C,

    max_π E_π[θ̂_rᵀa + optimism·C β(a)]   s.t.   E_π[θ̂_uᵀa − pessimism·C β(a)] ≥ b for every constraint

proposes a policy, and E_π[θ̂_uᵀa − C β(a)] ≥ b, evaluated in float64 on the policy itself, for every constraint, admits
it.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.arm_mixtures import INFEASIBLE, best_over_arms, envelope, over_policy
from episafe.kernels.bandit_regression import estimates, mean, norm, radius_now
from episafe.kernels.compilation import kernel
from episafe.kernels.mixing import admits, mixed, nudged
from episafe.types import SAFE, SEARCH, Array, IntArray

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


class Rule(NamedTuple):
    """What tells the algorithms apart.

    Attributes:
        thresholds, norm_bound: b (m,) and B.
        slack: ξ, the least of all constraints; NaN to estimate it by the pessimistic utility of the incumbent less b,
            which is at most ξ.
        optimism: of the reward, in units of C; NaN for 1 + 2B/ξ.
        pessimism: of the utility in the search, in units of C: 1, or −1 for an optimistic constraint.
        constrained: whether the search has the constraint, and the policy the check.
        trigger: whether the incumbent is deployed while C β_sf > ξ/2.
        shrink: whether a policy that fails the check is mixed with the incumbent, known to have utility ≥ b + ξ.
        num_seeds, seed_kept: how many first rounds play the incumbent with this probability, else every arm alike.

    `shrink` and `num_seeds` are for one constraint.
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


def room(num_arms: int, num_constraints: int = 1) -> tuple[Array, Array, Array, Array, IntArray]:
    """Room to work in, one entry an arm: β, f (n,), g and the pessimistic utility (m, n), an order (n,)."""
    (bonus, f), (g, bound) = np.empty((2, num_arms)), np.empty((2, num_constraints, num_arms))
    return bonus, f, g, bound, np.empty(num_arms, dtype=np.int64)


@kernel
def slack_of(rule, bounds_safe):  # type: ignore[no-untyped-def]
    """ξ as told, or its lower bound from those of the incumbent's utilities, (m,)."""
    if not math.isnan(rule.slack):
        return rule.slack
    slack = bounds_safe[0] - rule.thresholds[0]
    for c in range(1, rule.thresholds.shape[0]):
        slack = min(slack, bounds_safe[c] - rule.thresholds[c])
    return slack


@kernel
def optimism_of(rule, slack):  # type: ignore[no-untyped-def]
    """C_r/C_u."""
    return 1.0 + 2.0 * rule.norm_bound / slack if math.isnan(rule.optimism) else rule.optimism


@kernel
def decide(offer, model, rule, radius, room, policy, bounds):  # type: ignore[no-untyped-def]
    """Fills `policy` (n,) over the arms arms[first : first + n], and the `bounds` (m,) that were checked; returns
    source, λ (the sum of several), and the reason.

    `offer` is arms, first, and the incumbent, in a row of a larger array too: safe[first + i].
    """
    (arms, first, safe), n, C = offer, policy.shape[0], radius_now(radius, model.log_det[0], model.seen[0])
    bonus_safe = _score(arms, first, safe, model, C, room, n)
    _incumbents_bounds(safe, first, room, bounds)
    slack = slack_of(rule, bounds)
    reason = _why_not(rule, radius, model.seen[0], C * bonus_safe, slack)
    if reason == SEED:  # no arm has a utility below −B, and the incumbent's is b + ξ or more
        _mix(safe, first, policy, rule.seed_kept, n)
        bounds[0] = mixed(-rule.norm_bound, rule.thresholds[0] + slack, rule.seed_kept)
        return SEARCH, np.nan, SEED
    if reason == ADMITTED:
        lam, reason = _search(rule, slack, C, room, safe, first, policy, bounds)
        if reason == ADMITTED:
            return SEARCH, lam, ADMITTED
    _mix(safe, first, policy, 1.0, n)
    _incumbents_bounds(safe, first, room, bounds)
    return SAFE, np.nan, reason


@kernel
def _search(rule, slack, C, room, safe, first, policy, found):  # type: ignore[no-untyped-def]
    """Fills `policy` with the proposal, checked, and `found` (m,) with its bounds; returns λ, and ADMITTED or the
    reason why not."""
    (bonus, f, g, bounds, order), optimism, (m, n) = room, optimism_of(rule, slack), room[2].shape
    for i in range(n):
        f[i] += optimism * C * bonus[i]
        for c in range(m):
            g[c, i] -= rule.pessimism * C * bonus[i]
        policy[i] = 0.0
    if m > 1 and rule.constrained:
        lam = best_over_arms(f, g, rule.thresholds, safe, first, policy)
        passed = not math.isnan(lam)
        for c in range(m):
            found[c] = over_policy(policy, bounds[c])
            passed = passed and admits(found[c], rule.thresholds[c])
        return lam, NO_POLICY if math.isnan(lam) else ADMITTED if passed else FAILED
    low, high, share, lam = envelope(f, g[0], rule.thresholds[0] if rule.constrained else -np.inf, order)
    if high == INFEASIBLE:
        return lam, NO_POLICY
    if rule.shrink:
        share, found[0] = _shrunk(rule, slack, (low, high, share), bounds[0], safe, first, policy)
    else:
        if rule.constrained:
            share = nudged(bounds[0, low], bounds[0, high], share, rule.thresholds[0])
        for c in range(m):
            found[c] = mixed(bounds[c, low], bounds[c, high], share)
        policy[low] = 1.0 - share
        policy[high] += share
    return lam, FAILED if math.isnan(share) else ADMITTED


@kernel
def _score(arms, first, safe, model, C, room, n):  # type: ignore[no-untyped-def]
    """Into `room`: β, θ̂_rᵀa (f), θ̂_uᵀa (g) and θ̂_uᵀa − Cβ (bounds) of each arm; returns β of the incumbent."""
    theta, (betas, f, g, bounds, _), bonus_safe = estimates(model), room, 0.0
    for i in range(n):
        betas[i], f[i] = norm(model, arms, first + i), mean(theta, 0, arms, first + i)
        for c in range(g.shape[0]):
            g[c, i] = mean(theta, 1 + c, arms, first + i)
            bounds[c, i] = g[c, i] - C * betas[i]
        if safe[first + i] > 0.0:
            bonus_safe += safe[first + i] * betas[i]
    return bonus_safe


@kernel
def _incumbents_bounds(safe, first, room, found):  # type: ignore[no-untyped-def]
    """Into `found` (m,): the pessimistic utilities of the incumbent."""
    bounds = room[3]
    for c in range(found.shape[0]):
        found[c] = 0.0
        for i in range(bounds.shape[1]):
            if safe[first + i] > 0.0:
                found[c] += safe[first + i] * bounds[c, i]


@kernel
def _why_not(rule, radius, count, width, slack):  # type: ignore[no-untyped-def]
    """Why the incumbent is deployed without a search, or ADMITTED."""
    if count >= radius.limit:
        return BEYOND
    if rule.slack == -np.inf:
        return ALWAYS
    if count < rule.num_seeds:
        return SEED
    # Alg. 1, deployment trigger -> C_u β_sf > ξ/2
    if rule.trigger and not width <= slack / 2:
        return UNCONFIDENT
    return ADMITTED


@kernel
def _mix(safe, first, policy, kept, n):  # type: ignore[no-untyped-def]
    """The incumbent with probability `kept`, else every arm alike."""
    for i in range(n):
        policy[i] = kept * safe[first + i] + (1.0 - kept) / n


@kernel
def _shrunk(rule, slack, proposal, bounds, safe, first, policy):  # type: ignore[no-untyped-def]
    """γ·proposal + (1 − γ)·incumbent with the largest γ that γ·bound + (1 − γ)(b + ξ) ≥ b allows; γ and that bound.

    `proposal` is two arms and the share of the second.
    """
    (low, high, share), b = proposal, rule.thresholds[0]
    bound, known = mixed(bounds[low], bounds[high], share), b + slack
    kept = 0.0 if admits(bound, b) else (b - bound) / (known - bound)
    kept = nudged(bound, known, kept, b)
    for i in range(policy.shape[0]):
        policy[i] = kept * safe[first + i]
    policy[low] += (1.0 - kept) * (1.0 - share)
    policy[high] += (1.0 - kept) * share
    return 1.0 - kept, mixed(bound, known, kept)

"""Decisions over finitely many arms. Algorithm 1 of the paper and its peers differ in a `Rule` only.

With θ̂ and β = ‖·‖_{Λ⁻¹} from the regression and the radius C,

    max_π E_π[θ̂_rᵀa + optimism·C β(a)]   s.t.   E_π[θ̂_uᵀa − pessimism·C β(a)] ≥ b

proposes a policy, and E_π[θ̂_uᵀa − C β(a)] ≥ b, evaluated in float64 on the policy itself, admits it.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.arm_hull import INFEASIBLE, envelope
from episafe.kernels.bandit_regression import estimates, norm, radius_now
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
        threshold, norm_bound: b and B.
        slack: ξ; NaN to estimate it by the pessimistic utility of the incumbent less b, which is at most ξ.
        optimism: of the reward, in units of C; NaN for 1 + 2B/ξ.
        pessimism: of the utility in the search, in units of C: 1, or −1 for an optimistic constraint.
        constrained: whether the search has the constraint, and the policy the check.
        trigger: whether the incumbent is deployed while C β_sf > ξ/2.
        shrink: whether a policy that fails the check is mixed with the incumbent, known to have utility ≥ b + ξ.
        num_seeds, seed_kept: how many first rounds play the incumbent with this probability, else every arm alike.
    """

    threshold: float
    norm_bound: float
    slack: float
    optimism: float = math.nan
    pessimism: float = 1.0
    constrained: bool = True
    trigger: bool = False
    shrink: bool = False
    num_seeds: int = 0
    seed_kept: float = 1.0


def room(num_arms: int) -> tuple[Array, Array, Array, Array, IntArray]:
    """Room to work in, one entry an arm: β, f, g, the pessimistic utility, an order."""
    bonus, f, g, bound = (np.empty(num_arms) for _ in range(4))
    return bonus, f, g, bound, np.empty(num_arms, dtype=np.int64)


@kernel
def slack_of(rule, bound_safe):  # type: ignore[no-untyped-def]
    """ξ as told, or its lower bound."""
    return bound_safe - rule.threshold if math.isnan(rule.slack) else rule.slack


@kernel
def optimism_of(rule, slack):  # type: ignore[no-untyped-def]
    """C_r/C_u."""
    return 1.0 + 2.0 * rule.norm_bound / slack if math.isnan(rule.optimism) else rule.optimism


@kernel
def decide(arms, first, safe, model, rule, radius, room, policy):  # type: ignore[no-untyped-def]
    """Fills `policy` (n,) over the arms arms[first : first + n]; returns source, λ, the bound checked, and the reason.

    `safe` (n,) is the incumbent, in a row of a larger array: safe[first + i].
    """
    n, C = policy.shape[0], radius_now(radius, model.log_det[0], model.seen[0])
    bonus_safe, bound_safe = _score(arms, first, safe, model, C, room, n)
    slack = slack_of(rule, bound_safe)
    reason = _why_not(rule, radius, model.seen[0], C * bonus_safe, slack)
    if reason == SEED:  # no arm has a utility below −B, and the incumbent's is b + ξ or more
        _mix(safe, first, policy, rule.seed_kept, n)
        return SEARCH, np.nan, mixed(-rule.norm_bound, rule.threshold + slack, rule.seed_kept), SEED
    if reason == ADMITTED:
        lam, bound, reason = _search(rule, slack, C, room, safe, first, policy)
        if reason == ADMITTED:
            return SEARCH, lam, bound, ADMITTED
    _mix(safe, first, policy, 1.0, n)
    return SAFE, np.nan, bound_safe, reason


@kernel
def _search(rule, slack, C, room, safe, first, policy):  # type: ignore[no-untyped-def]
    """Fills `policy` with the proposal, checked; returns λ, the bound, and ADMITTED or the reason why not."""
    (bonus, f, g, bounds, order), optimism = room, optimism_of(rule, slack)
    for i in range(policy.shape[0]):
        f[i] += optimism * C * bonus[i]
        g[i] -= rule.pessimism * C * bonus[i]
        policy[i] = 0.0
    low, high, share, lam = envelope(f, g, rule.threshold if rule.constrained else -np.inf, order)
    if high == INFEASIBLE:
        return lam, np.nan, NO_POLICY
    if rule.shrink:
        share, bound = _shrunk(rule, slack, (low, high, share), bounds, safe, first, policy)
    else:
        if rule.constrained:
            share = nudged(bounds[low], bounds[high], share, rule.threshold)
        bound = mixed(bounds[low], bounds[high], share)
        policy[low] = 1.0 - share
        policy[high] += share
    return lam, bound, FAILED if math.isnan(share) else ADMITTED


@kernel
def _score(arms, first, safe, model, C, room, n):  # type: ignore[no-untyped-def]
    """Into `room`: β, θ̂_rᵀa (f), θ̂_uᵀa (g) and θ̂_uᵀa − Cβ (bound) of each arm; returns β and bound of the incumbent."""
    theta, (betas, f, g, bounds, _) = estimates(model), room
    bonus_safe, bound_safe = 0.0, 0.0
    for i in range(n):
        reward, utility = 0.0, 0.0
        for j in range(arms.shape[1]):
            reward += theta[0, j] * arms[first + i, j]
            utility += theta[1, j] * arms[first + i, j]
        bonus = norm(model, arms, first + i)
        betas[i], f[i], g[i], bounds[i] = bonus, reward, utility, utility - C * bonus
        if safe[first + i] > 0.0:
            bonus_safe += safe[first + i] * bonus
            bound_safe += safe[first + i] * bounds[i]
    return bonus_safe, bound_safe


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
    low, high, share = proposal
    bound, known = mixed(bounds[low], bounds[high], share), rule.threshold + slack
    kept = 0.0 if admits(bound, rule.threshold) else (rule.threshold - bound) / (known - bound)
    kept = nudged(bound, known, kept, rule.threshold)
    for i in range(policy.shape[0]):
        policy[i] = kept * safe[first + i]
    policy[low] += (1.0 - kept) * (1.0 - share)
    policy[high] += (1.0 - kept) * share
    return 1.0 - kept, mixed(bound, known, kept)

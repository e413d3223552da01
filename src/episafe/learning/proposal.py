"""A policy to try: the planner's search, aimed at a utility that need not be the threshold."""

import math
from typing import NamedTuple

from episafe.kernels import decision
from episafe.learning.planner import SoftmaxPlanner
from episafe.problems.policy import Policy
from episafe.types import SAFE


class Aim(NamedTuple):
    """What to propose: a policy of this estimated utility, with `optimism` in place of −C_u as scale of its bonus.

    Without optimism the planner's own scale is used.
    """

    utility: float
    optimism: float = 0.0


class Proposal(NamedTuple):
    """π^λ and what the planner promises of it: V̄ʳ + V̄†, an optimistic reward. Nothing here is proved."""

    policy: Policy
    lam: float
    reward: float


def propose(planner: SoftmaxPlanner, aim: Aim) -> Proposal:
    """The policy of the smallest λ whose estimated utility reaches the aim; of λ_max where none does."""
    known, scales = planner.regression, planner.scales
    if aim.optimism > 0:
        scales = scales._replace(utility_bonus=aim.optimism)
    search = planner.search._replace(threshold=aim.utility)
    known.prepare(scales)
    source, lam, _ = decision.decide(known.model, known.support, known.work, scales, search)
    if source == SAFE:
        lam = search.lam_max
        decision.evaluate_at(known.model, known.support, known.work, scales, lam)
    V_r, V_dagger, _ = known.start_values
    reward = float(V_r + V_dagger)
    if not math.isfinite(reward):
        raise FloatingPointError(f"the planner promises a reward of {reward}: nothing can be proposed from this")
    return Proposal(planner.policy(lam, scales), lam, reward)

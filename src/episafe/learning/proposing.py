"""A policy to try: the planner's search, aimed at a utility that need not be the threshold."""

from typing import NamedTuple

from episafe.learning import kernels
from episafe.learning.softmax import SoftmaxPlanner, SoftmaxPolicy


class Proposal(NamedTuple):
    """π^λ and what the planner promises of it: V̄ʳ + V̄†, an optimistic reward. Nothing here is proved."""

    policy: SoftmaxPolicy
    lam: float
    reward: float


def propose(planner: SoftmaxPlanner, aim: float) -> Proposal:
    """The policy of the smallest λ whose estimated utility is at least `aim`; of λ_max where none has it."""
    known, scales = planner.regression, planner.scales
    search = planner.search._replace(threshold=aim)
    source, lam, _ = kernels.decide(known.model, known.support, known.work, scales, search)
    if source == kernels.SAFE:
        lam = search.lam_max
        kernels.evaluate_once(known.model, known.support, known.work, scales, lam)
    V_r, V_dagger, _ = known.work.V[0, :, 0]
    return Proposal(planner.policy(lam), lam, float(V_r + V_dagger))

"""StepMix, after Li et al. 2023: the incumbent for the first steps and a candidate after them, as one Markov policy."""

from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.mixing import admits, mixed
from episafe.learning.box_problem import MULTIPLIERS
from episafe.learning.mixing_bounds import Bounded, MixingBounds, as_told, largest, share_of_safer
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, TransitionCounts
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Task
from episafe.types import Plan


class StepMix(Agent):
    """Of the policies π^j, the incumbent up to step j and a candidate π̄ after it, the smallest j whose bound passes:

        π̄ where j = 0, else (1−ρ)π^j + ρπ^{j−1}, which differ at step j only,  ρ = (V̲ᵘ_j − b)/(V̲ᵘ_j − V̲ᵘ_{j−1})

    with the bounds of `MixingBounds` at δ' = δ/(3(H+1)); π^H is the incumbent, and V̲ᵘ_H the larger of its own and the
    b + ξ that the task tells.

    The paper has one signal, V^r ≥ γ, and proves zero violation, without a coin over episodes, and regret, at bonus 1;
    as for EpsMix the first carries over to a utility and the second does not. So here candidates are greedy for
    Q̃ʳ + λQ̲ᵘ, with λ = 0, the paper's, and six others; the one of the largest optimistic reward is deployed.

    After Li, Huang, Shen and Yang, ICML 2023, Algorithm 1.

    Args:
        task: what the learner is told.
        delta: δ.
        bonus: multiplies every bonus.
        replan: when to plan again.
    """

    name: ClassVar[str] = "stepmix"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: Task, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        task.only("threshold")
        self.learner = TransitionCounts(task, Confidence(None, delta, bonus))

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        problem = MixingBounds(task, counts, counts.confidence.delta / (3 * (task.horizon + 1)))
        safe = as_told(task, problem.of_table(task.safe_policy.table()))
        lam, best = largest(
            {lam: _stepped(problem, problem.of_greedy(lam), safe, task.threshold) for lam in MULTIPLIERS}
        )
        if best.policy is safe.policy:
            return self._incumbent("no policy that steps over to a candidate passes")
        return Plan(TablePolicy(best.policy), "search", lam, best.utility, self.level)


def _stepped(problem: MixingBounds, candidate: Bounded, safe: Bounded, threshold: float) -> Bounded:
    """The mixture of π^{j−1} and π^j at the smallest j that passes; π^H is the incumbent, which does."""
    before = now = candidate
    j = 0
    while not admits(now.utility, threshold):
        j += 1
        table = np.concatenate([safe.policy[:j], candidate.policy[j:]])
        before, now = now, safe if j == len(table) else problem.of_table(table)
    if j == 0:
        return candidate
    share = share_of_safer(before, now, threshold)
    if now is safe and share == 1:
        return safe
    reward, utility = (float(mixed(getattr(before, g), getattr(now, g), share)) for g in ("reward", "utility"))
    return Bounded(reward, utility, (1 - share) * before.policy + share * now.policy)

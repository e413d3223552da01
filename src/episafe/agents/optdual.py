"""OptDual-CMDP, after Efroni et al. 2020: extended value iteration for a multiplier that is stepped once an episode."""

import math
from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.extended_value_iteration import extended_greedy
from episafe.learning.primal_dual import DualCounts
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, Radius
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.types import Plan


class OptDual(Agent):
    """The best policy and kernel of a box 𝒫 for r + λu, and a step of λ by what they promise:

        (π_k, P_k) = argmax_π max_{P'∈𝒫} V^{π, r + λ_k u}_{P'}(s₁)
        λ_{k+1} = [λ_k + (b − V^{π_k, u}_{P_k}(s₁))/t]₊,   t = H√K/ρ,   ρ = H/ξ

    The paper proves regret and violation Õ(√K) *with cancellation*: what is kept in one episode pays for another
    (soft). Policies are deterministic, and no one of them need be safe, ever. No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; step and radius are from memory. Differs: reward and utility are
    those that the task tells; the bound ρ of the multiplier is made of the incumbent's slack.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term and the step.
        delta: δ.
        bonus: multiplies the half-width of the box.
        replan: when to plan again, which is when λ is stepped.
    """

    name: ClassVar[str] = "optdual"
    certified: ClassVar[bool] = False
    learner: DualCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.learner = DualCounts(task, Confidence(num_episodes, delta, bonus))
        self._step = 1 / (known_slack(task) * math.sqrt(num_episodes))

    def _propose(self) -> Plan:
        task, known, lam = self.task, self.learner, self.learner.lam
        box = known.box(Radius.efroni(task, known.confidence))
        actions, _, V = extended_greedy(task.reward, task.utility, box.lower, box.upper, 1.0, lam)
        utility = float(V[task.initial_state, 1])
        known.step(self._step, task.threshold - utility)
        return Plan(TablePolicy(np.eye(task.num_actions)[actions]), "search", lam, utility, self.level)

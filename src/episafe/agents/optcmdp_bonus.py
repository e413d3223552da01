"""OptCMDP-bonus, after Efroni et al. 2020: optimism by a bonus on the estimated kernel, in reward and utility alike."""

from typing import ClassVar

from episafe.agents.base import Agent
from episafe.kernels.policy_values import policy_values
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, Radius, TransitionCounts
from episafe.problems.model_answers import optimum
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Task
from episafe.types import Plan


class OptCMDPBonus(Agent):
    """Solves, before each episode, a problem on P̂ whose linear program is S times smaller than that of OptCMDP:

        max_π V^{π, r + Hβ}_{P̂}(s₁)   s.t.   V^{π, u + Hβ}_{P̂}(s₁) ≥ b,      β = Σ_{s'} γ

    The paper proves for it what it proves for OptCMDP, with a larger H: hard violation, Õ(√K). No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; the radius γ (`Radius.efroni`) is from memory. Differs as
    OptCMDP does; P̂ is uniform where nothing was seen.

    Args:
        task: what the learner is told.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again.
    """

    name: ClassVar[str] = "optcmdp-bonus"
    certified: ClassVar[bool] = False
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.learner = TransitionCounts(task, Confidence(num_episodes, delta, bonus))

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        bonus = task.horizon * counts.box(Radius.efroni(task, counts.confidence)).bonus
        model = counts.kernel(), task.reward + bonus, task.utility + bonus
        found = optimum(*model, task.threshold, task.initial_state)
        utility = policy_values(*model, found.table, task.initial_state)[1]
        return Plan(TablePolicy(found.table), "search", found.lam, utility, self.level)

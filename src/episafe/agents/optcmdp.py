"""OptCMDP, after Efroni et al. 2020: optimism in the kernel, for the reward and for the utility alike."""

from typing import ClassVar

from episafe.agents.base import Agent
from episafe.learning.dope_problem import markov_table, optimistic_pessimistic
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, Radius, TransitionCounts
from episafe.problems.policy import TablePolicy
from episafe.problems.task import Task
from episafe.types import Plan


class OptCMDP(Agent):
    """Solves, before each episode, the problem of the best policy and the best kernel of a box 𝒫:

        max_π max_{P'∈𝒫} V^{π, r}_{P'}(s₁)   s.t.   V^{π, u}_{P'}(s₁) ≥ b

    The paper proves that the positive parts of regret and of violation sum to Õ(√(SANH⁴K)) each, N the number of next
    states (hard violation): it violates while it learns. No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; the radius (`Radius.efroni`) is from memory. Differs: reward and
    utility are those that the task tells, so that nothing is added to them; the extended linear program is solved by
    extended value iteration in a one-dimensional dual, to rounding; where it is infeasible, which has no probability in
    the proof, the policy of largest optimistic utility is deployed.

    Args:
        task: what the learner is told.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies the half-width of the box.
        replan: when to plan again.
    """

    name: ClassVar[str] = "optcmdp"
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
        box = counts.box(Radius.efroni(task, counts.confidence))
        _, utility, parts, lam = optimistic_pessimistic(
            task.reward, task.utility, box, task.threshold, task.initial_state
        )
        return Plan(TablePolicy(markov_table(box, parts, task.initial_state)), "search", lam, utility, self.level)

"""DOPE (Bura et al. 2022): optimistic in the kernel and the reward, pessimistic in the utility. Tabular."""

import math
from typing import ClassVar

from episafe.agents.base import Agent
from episafe.errors import Infeasible
from episafe.kernels.extended_value_iteration import KernelBox
from episafe.kernels.mixing import admits, admits_all
from episafe.learning.constants import Constants
from episafe.learning.dope_problem import markov_table, optimistic_pessimistic, optimistic_pessimistic_of_several
from episafe.learning.planner import Every, Replanning
from episafe.learning.transition_counts import Radius, TransitionCounts
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.types import Array, Plan, amounts


class DOPE(Agent):
    """Solves, before each episode, the optimistic-pessimistic problem over the box 𝒫 of kernels:

        max_π max_{P'∈𝒫} V^{π, r + C_r β}_{P'}(s₁)   s.t.   V^{π, u − C_u β}_{P'}(s₁) ≥ b,   β = Σ_{s'} γ

    by extended value iteration inside a one-dimensional dual, where the literature solves a linear program of HS²A
    variables. The optimum mixes two (policy, kernel) pairs; states that the mixture never reaches get the uniform
    policy. The incumbent is deployed while the problem is infeasible.

    Args:
        task: what the learner is told.
        constants: C_r and C_u are read, nothing else.
        replan: when to plan again; information is ln(n_h(s,a) ∨ 1).
        radius: half-width of the box.
        num_safe_episodes: episodes of the incumbent before anything else (Bura et al.'s K₀); the paper uses none.
        label: what records call it; by default its name.
    """

    name: ClassVar[str] = "dope"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self,
        task: Task,
        constants: Constants,
        replan: Replanning = Every(),
        *,
        radius: Radius = Radius(),
        num_safe_episodes: int = 0,
        label: str = "",
    ) -> None:
        super().__init__(task, replan, label)
        self.constants, self.radius, self.num_safe_episodes = constants, radius, num_safe_episodes
        self.learner = TransitionCounts(task)

    @classmethod
    def authors(
        cls, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> "DOPE":
        """Bura et al.'s own ratio: C_u = H, C_r = H²/ξ, their radius times `bonus`, K₀ = S²AH³/ξ² incumbent episodes.

        From the authors' code. K₀ is multiplied by bonus², since that many episodes make the radius small. With bonus 1
        it deploys the incumbent for the whole of any short run.
        """
        H, slack = task.horizon, known_slack(task)
        constants = Constants(H**2 / slack, H, 0, 0, kappa=1, lam_max=0, num_halvings=0)
        first = math.ceil(bonus**2 * task.num_states**2 * task.num_actions * H**3 / slack**2)
        radius = Radius.authors(task, num_episodes, delta, bonus)
        return cls(task, constants, replan, radius=radius, num_safe_episodes=first, label="dope-authors")

    def _propose(self) -> Plan:
        if self.num_learned < self.num_safe_episodes:
            return self._incumbent(f"one of the first {self.num_safe_episodes} episodes")
        task, box = self.task, self.learner.box(self.radius)
        reward = task.reward + self.constants.C_r * box.bonus
        if task.num_constraints > 1:
            return self._propose_of_several(reward, task.utilities - self.constants.C_u * box.bonus, box)
        utility = task.utility - self.constants.C_u * box.bonus
        _, bound, parts, lam = optimistic_pessimistic(reward, utility, box, task.threshold, task.initial_state)
        if not admits(bound, task.threshold):
            return self._incumbent("the optimistic-pessimistic problem is infeasible", bound)
        return Plan(TablePolicy(markov_table(box, parts, task.initial_state)), "search", lam, bound, self.level)

    def _propose_of_several(self, reward: Array, utilities: Array, box: KernelBox) -> Plan:
        """The same with several constraints, whose optimum mixes up to m + 1 pairs."""
        task, limits = self.task, amounts(self.task.limits)
        try:
            bound, parts, lams = optimistic_pessimistic_of_several(reward, utilities, box, limits, task.initial_state)
        except Infeasible:
            return self._incumbent("the optimistic-pessimistic problem is infeasible")
        if not admits_all(bound, limits):
            return self._incumbent("the optimistic-pessimistic problem is infeasible", bound)
        table = markov_table(box, parts, task.initial_state)
        return Plan(TablePolicy(table), "search", float(lams.sum()), bound, self.level)

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, level, C_r, C_u, the radius and the incumbent's first episodes."""
        scales = {"C_r": self.constants.C_r, "C_u": self.constants.C_u}
        return super().settings() | scales | {"radius": repr(self.radius), "num_safe_episodes": self.num_safe_episodes}

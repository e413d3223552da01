"""Ghosh, Zhou and Shroff 2024 as the paper implements it: the same planner, optimistic in the utility too."""

from typing import ClassVar

from episafe.agents.base import Agent, Plan
from episafe.arrays import Array, IntArray
from episafe.learning.constants import Constants
from episafe.learning.kernels import admits
from episafe.learning.replanning import Every, Replanning
from episafe.learning.softmax import SoftmaxPlanner
from episafe.problems.task import Task


class Ghosh2024(Agent):
    """The softmax policy of the smallest λ whose *optimistic* utility reaches the threshold. Not episode-wise safe.

    No incumbent, no compensation bonus (C_† = B_† = 0), +C_u in place of −C_u; deploys λ_max when even that fails.

    Differs from the cited paper: λ is found by bisection, where theirs raises it in steps of order K^{-H}; so does the
    paper that we reproduce. Both are heuristic for this algorithm, whose estimate need not be monotone in λ.
    """

    name: ClassVar[str] = "ghosh"
    certified: ClassVar[bool] = False

    def __init__(self, task: Task, constants: Constants, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        self.constants = constants
        self._planner = SoftmaxPlanner(task, constants, utility_sign=+1, compensate=False)

    def _propose(self) -> Plan:
        planner = self._planner
        planner.refresh()
        zero = admits(planner.utility_bound(0.0), self.task.threshold)
        policy, bound = planner.policy(0.0 if zero else planner.smallest_admitted())
        return Plan(policy, "zero" if zero else "search", policy.lam, bound, self.level)

    def _observe(self, states: IntArray, actions: IntArray) -> None:
        self._planner.observe(states, actions)

    def _information(self) -> Array:
        return self._planner.information

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, level and every constant."""
        return super().settings() | self.constants.settings()

"""What OPSE and Ghosh et al. share: the softmax planner, observed and asked before each plan."""

from typing import Any, ClassVar

from episafe.agents.base import Agent, Plan, Source, unknown_signals
from episafe.arrays import Array, IntArray
from episafe.learning import kernels
from episafe.learning.constants import Constants
from episafe.learning.replanning import Replanning
from episafe.learning.search import LamSearch
from episafe.learning.softmax import Decision, SoftmaxPlanner
from episafe.problems.policy import Policy
from episafe.problems.sampled import AnyTask

SOURCES: dict[int, Source] = {kernels.SAFE: "safe", kernels.ZERO: "zero", kernels.SEARCH: "search"}


class SoftmaxAgent(Agent):
    """An agent that deploys the composite softmax policy; pessimistic in the utility if it is certified."""

    pessimistic: ClassVar[bool]

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning, search: LamSearch) -> None:
        super().__init__(task, replan)
        self.constants, self.search = constants, search
        self.level = "heuristic" if unknown_signals(task) else constants.level  # nobody has derived C_θ with the rest
        self.planner = SoftmaxPlanner(task, constants, pessimistic=self.pessimistic, search=search)

    def _propose(self) -> Plan:
        return self.as_plan(self.planner.decide())

    def as_plan(self, decision: Decision, policy: Policy | None = None) -> Plan:
        """The plan that a decision stands for; without a policy, the one that the planner has just evaluated."""
        if decision.source == kernels.SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = policy or self.planner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def _observe(self, states: Any, actions: IntArray) -> None:
        self.planner.observe(states, actions)

    def _observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        self.planner.observe_signals(states, actions, seen)

    def _information(self) -> Array:
        return self.planner.information

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, search, level and every constant."""
        return super().settings() | {"search": str(self.search)} | self.constants.settings()

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
    num_safe_episodes: int = 0

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning | None, search: LamSearch) -> None:
        super().__init__(task, constants.replan if replan is None else replan)
        self.constants, self.search = constants, search
        constants.refuse_outside_scope(task, 0)
        proved = self.certified and not unknown_signals(task)  # nobody has derived C_θ with the rest
        self.level = constants.level if proved else "heuristic"
        self.planner = SoftmaxPlanner(task, constants, pessimistic=self.pessimistic, search=search)

    @property
    def num_learned(self) -> int:
        """How many episodes were learned from, logged ones included."""
        return self.planner.regression.num_episodes

    def _propose(self) -> Plan:
        self.constants.refuse_outside_scope(self.task, self.num_learned + 1)
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
        """Agent, replanning rule, search, level and every constant; nothing is claimed of what is not certified."""
        claimed = {} if self.certified else {"level": self.level, "statement": ""}
        shared = {"time_homogeneous": True} if self.task.time_homogeneous else {}
        return super().settings() | {"search": str(self.search)} | self.constants.settings() | claimed | shared

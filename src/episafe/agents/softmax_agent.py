"""What OPSE and Ghosh et al. share: the softmax planner, observed and asked before each plan."""

import copy
from typing import Any, ClassVar

from episafe.agents.base import Agent, Plan, Source, unknown_signals
from episafe.kernels.decision import SAFE, SEARCH, ZERO
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import LamSearch
from episafe.learning.planner import Decision, SoftmaxPlanner
from episafe.learning.policy_arrays import Shelf
from episafe.learning.regression import Regression
from episafe.learning.regression_arrays import fill, stored
from episafe.learning.replanning import Replanning
from episafe.problems.policy import Policy
from episafe.problems.sampled import AnyTask
from episafe.storage.state_reader import Saved, State
from episafe.types import Array, IntArray

SOURCES: dict[int, Source] = {SAFE: "safe", ZERO: "zero", SEARCH: "search"}


class SoftmaxAgent(Agent):
    """An agent that deploys the composite softmax policy; pessimistic in the utility if it is certified."""

    pessimistic: ClassVar[bool]
    num_safe_episodes: int = 0

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning | None, search: LamSearch) -> None:
        super().__init__(task, constants.replan if replan is None else replan)
        self.constants, self.search = constants, search
        self.constants_now = constants  # those of a later epoch, in time, where they are for any number of episodes
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
        self._reach(self.num_learned + 1)
        return self.as_plan(self.planner.decide())

    def _reach(self, num_episodes: int) -> None:
        """Plan with the constants of the epoch that holds so many episodes, whichever came before it."""
        if self.constants_now.reaching(num_episodes) is not self.constants_now:
            self.constants_now = self.constants.reaching(num_episodes)
            self.planner.use(self.constants_now)

    def as_plan(self, decision: Decision, policy: Policy | None = None) -> Plan:
        """The plan that a decision stands for; without a policy, the one that the planner has just evaluated."""
        if decision.source == SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = policy or self.planner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def _observe(self, states: Any, actions: IntArray) -> None:
        self.planner.observe(states, actions)

    def _observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        self.planner.observe_signals(states, actions, seen)

    def _information(self) -> Array:
        return self.planner.information

    def _learned_state(self, shelf: Shelf) -> State:
        return stored(self.planner.regression)

    def _restore_learned(self, saved: Saved) -> Regression:
        self.planner = copy.copy(self.planner)
        self.planner.regression = self.planner.blank()
        fill(self.planner.regression, saved)
        self.constants_now = self.constants.reaching(self.num_learned)
        self.planner.use(self.constants_now)
        self.planner.refresh()  # bonuses of 0 would make any bound that is asked for too high
        return self.planner.regression

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, search, level and every constant; nothing is claimed of what is not certified."""
        claimed = {} if self.certified else {"level": self.level, "statement": ""}
        told: dict[str, str | int | float] = {"time_homogeneous": True} if self.task.time_homogeneous else {}
        if self.task.slack is None:
            told["slack"] = "unknown"
        return super().settings() | {"search": str(self.search)} | self.constants.settings() | claimed | told

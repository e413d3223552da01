"""Ghosh, Zhou and Shroff 2024 as the paper implements it: the same planner, optimistic in the utility too."""

from typing import ClassVar

from episafe.agents.base import Agent
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.planner import Decision, Replanning, SoftmaxPlanner
from episafe.learning.released_planner import planner_of, variant_label
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import SAFE, SOURCES, Plan, Variant


class Ghosh2024(Agent):
    """The softmax policy of the smallest λ whose *optimistic* utility reaches the threshold. Not episode-wise safe.

    No incumbent, no compensation bonus (C_† = B_† = 0), +C_u in place of −C_u; deploys C_λ when even that fails.

    Args:
        task: what the learner is told.
        constants: scales, κ and search limits.
        replan: when to plan again; None for the rule that goes with the constants.
        search: how λ is looked for.
        variant: "text" for the rules of the paper that we reproduce, "released" for those of its code (see
            learning/released_planner.py), which made the published figures.

    Differs from the cited paper: λ is found by bisection, where theirs raises it in steps of order K^{-H}; so does the
    paper that we reproduce. Both are heuristic for this algorithm, whose estimate need not be monotone in λ.
    """

    name: ClassVar[str] = "ghosh"
    certified: ClassVar[bool] = False
    learner: SoftmaxPlanner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self,
        task: AnyTask,
        constants: Constants,
        replan: Replanning | None = None,
        *,
        search: LamSearch = Bisection(),
        variant: Variant = "text",
    ) -> None:
        super().__init__(task, constants.replan if replan is None else replan, variant_label(self.name, variant))
        self.constants, self.search, self.variant = constants, search, variant
        self.learner = planner_of(variant)(task, constants, pessimistic=False, search=search)

    @property
    def planner(self) -> SoftmaxPlanner:
        """What it learns and plans by."""
        return self.learner

    def as_plan(self, decision: Decision, policy: Policy | None = None) -> Plan:
        """The plan that a decision stands for; without a policy, the one that the planner has just evaluated."""
        if decision.source == SAFE:
            return self._incumbent("the released code begins with the incumbent", decision.utility_bound)
        policy = policy or self.planner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def _propose(self) -> Plan:
        return self.as_plan(self.planner.decide())

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, search and every constant; nothing is claimed of what is not certified."""
        return super().settings() | {"level": self.level, "statement": ""}

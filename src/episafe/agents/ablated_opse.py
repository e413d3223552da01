"""OPSE without one of its parts: the compensation, the entropy, the randomness of its policies, or the incumbent."""

from typing import ClassVar

from episafe.agents.base import Agent
from episafe.learning.ablated_planners import Part, planner_without
from episafe.learning.constants import Constants
from episafe.learning.planner import SoftmaxPlanner
from episafe.learning.replanning import Replanning
from episafe.problems.sampled_problem import AnyTask
from episafe.types import SAFE, SOURCES, Plan


class AblatedOPSE(Agent):
    """Algorithm 2 without one part, all else alike: an ablation. It promises nothing, whatever its constants.

    Args:
        task: what the learner is told.
        constants: as for `OPSE`; without entropy hand-set ones, such as `Constants.paper`, and listed states.
        replan: when to plan again; None for the rule that goes with the constants.
        without: "compensation", "entropy" (plain softmax), "randomness" (deterministic policies) or "incumbent"; see
            `learning.ablated_planners.planner_without`.
    """

    name: ClassVar[str] = "ablated-opse"
    certified: ClassVar[bool] = False
    learner: SoftmaxPlanner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning | None = None, *, without: Part) -> None:
        super().__init__(task, constants.replan if replan is None else replan, f"opse-no-{without}")
        self.without: Part = without
        self.learner = planner_without(without, task, constants)

    def _propose(self) -> Plan:
        decision = self.learner.decide()
        if decision.source == SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = self.learner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def settings(self) -> dict[str, str | int | float]:
        """Those of the planner, and what it does without; a level is no longer that of the constants."""
        return super().settings() | {"level": self.level, "statement": "", "without": self.without}

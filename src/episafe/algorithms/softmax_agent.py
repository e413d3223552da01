"""What the softmax algorithms share: the regression that they learn by, and plans from decisions."""

from typing import ClassVar

import numpy as np

from episafe.core.agent import Agent, Replanning
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.kernels.softmax_arrays import Scales, Search
from episafe.linear.constants import Constants
from episafe.linear.counts import Confidence
from episafe.linear.planner import GHOSH, Decision, Rules
from episafe.linear.ridge import SoftmaxModel


class SoftmaxAgent(Agent):
    """An agent that learns by ridge regression. Subclasses write `decide`.

    Args:
        problem: a problem or its task.
        constants: scales, κ, ρ and search limits.
        replan: when to plan again; information is ln det Λ_h.
        optimistic: whether utilities that are learned have +C_θβ, not −C_θβ.
    """

    variant: str = "text"
    reason: ClassVar[str] = ""  # why the incumbent is deployed, where it is
    rules: Rules = GHOSH
    confidence: Confidence | None = None  # what the constants were made of, where the paper says

    def __init__(self, problem: ProblemLike, constants: Constants, replan: Replanning, optimistic: bool) -> None:
        super().__init__(problem, replan)
        self.constants = constants
        self.model = SoftmaxModel(self.task, constants.ridge, constants.C_theta, optimistic)

    @property
    def scales(self) -> Scales:
        """Return the constants of the backward recursion, for the compiled search."""
        return self.rules.scales(self.constants, self.model.num_actions)

    @property
    def search(self) -> Search:
        """Return the inputs of the compiled search for λ."""
        return self.rules.search(self.constants, self.task.thresholds)

    def as_plan(self, found: Decision) -> Plan:
        """Return the plan of a decision."""
        if found.policy is None:
            return self.incumbent_plan(self.reason, found.bounds)
        return Plan(found.policy, found.source, found.bounds, self.level, lam=float(found.lam.sum()))

    def observe(self, episode: Episode) -> None:
        """Learn from an episode: Λ_h ← Λ_h + φφᵀ."""
        self.model.observe(episode)

    def information(self) -> Array:
        """Return ln det Λ_h/ρ, (H,)."""
        return self.model.information()

    @property
    def in_force(self) -> tuple[Plan, Array]:
        """Return the plan for the next episode, and the information (H,) with which it was made."""
        return self.plan(), self._information_then

    def take_over(self, plan: Plan, information: Array) -> None:
        """Continue from a plan that a compiled loop made with this information (R,), after episodes that it played."""
        self._plan, self._num_plans, self._changed = plan, plan.id + 1, True
        self._information_then = np.broadcast_to(information, self.model.horizon).copy()

    def settings(self) -> Settings:
        """Return the general settings with every constant; the statement only if the level is the constants'."""
        own = self.constants.settings() | super().settings() | {"variant": self.variant}
        own |= {} if self.confidence is None else self.confidence.settings()
        return own if self.level == self.constants.level else own | {"statement": ""}

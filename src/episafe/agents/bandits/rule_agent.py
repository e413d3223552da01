"""Learners that differ in a `Rule` only: the engine decides over arms; a ball or ellipsoid first proposes two."""

import math
from typing import Any, ClassVar

import numpy as np

from episafe.agents.bandits.base import BanditAgent, BanditPlan, Source
from episafe.kernels import ellipsoid
from episafe.kernels.bandit_decision import REASONS, Rule, decide, optimism_of, room, slack_of
from episafe.kernels.bandit_regression import estimates, norm
from episafe.learning.bandit_radius import radius_now
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_policy import over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.types import Array

SOURCES: tuple[Source, ...] = ("safe", "search")  # as the engine numbers them


class RuleAgent(BanditAgent):
    """Plans by `engine.decide` with its rule."""

    certified: ClassVar[bool] = True

    def __init__(
        self,
        task: BanditTask,
        rule: Rule,
        *,
        num_rounds: int | None = None,
        delta: float = 0.05,
        radius: Any = "paper",
        replan: Replanning = Every(),
        label: str = "",
    ) -> None:
        super().__init__(task, num_rounds=num_rounds, delta=delta, radius=radius, replan=replan, label=label)
        self.rule = rule

    def as_plan(
        self, arms: Array, policy: Array, decision: tuple[int, float, float, int], plan_id: int = 0
    ) -> BanditPlan:
        """A decision of the engine as a plan."""
        source, lam, bound, reason = decision
        mixture = over_arms(arms, policy)
        why = REASONS[reason]
        return BanditPlan(mixture.atoms, mixture.probabilities, SOURCES[source], lam, bound, self.level, why, plan_id)

    def _propose(self, round: int) -> BanditPlan:
        arms, safe = self._choices(round)
        policy = np.empty(len(arms))
        decision = decide(arms, 0, safe, self.model, self.rule, self.radius, room(len(arms)), policy)
        return self.as_plan(arms, policy, decision)

    def _choices(self, round: int) -> tuple[Array, Array]:
        """Arms that contain the support of an optimal policy, and the incumbent as a distribution over them."""
        if self.task.is_finite:
            return self.task.arms(round), self.task.incumbent(round)
        incumbent = self.task.incumbent(round)[None, :]
        others = self._axes() if self.num_observations < self.rule.num_seeds else self._optimum(incumbent)
        arms = np.ascontiguousarray(np.concatenate([incumbent, others]))
        return arms, np.eye(1, len(arms))[0]

    def _optimum(self, incumbent: Array) -> Array:
        """The atoms of the optimal policy over the ball or ellipsoid, (2, d); none where no policy is feasible."""
        model, rule, theta = self.model, self.rule, estimates(self.model)
        C = radius_now(self.radius, model.log_det[0], model.seen[0])
        slack = slack_of(rule, float(incumbent[0] @ theta[1]) - C * norm(model, incumbent, 0))
        if not slack > 0:
            return np.empty((0, self.task.dim))
        scales = ellipsoid.Scales(optimism_of(rule, slack) * C, rule.pessimism * C)
        threshold = rule.threshold if rule.constrained else -math.inf
        at = ellipsoid.frame(self.task.convex_set.root, model.gram_inv)
        found = ellipsoid.solve(theta[0], theta[1], at, scales, threshold)
        return found.atoms if found.feasible else np.empty((0, self.task.dim))

    def _axes(self) -> Array:
        """The ends of the axes of the ball or ellipsoid, (2d, d): they span all directions."""
        axes = self.task.convex_set.root.T
        return np.concatenate([axes, -axes])

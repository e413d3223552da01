"""What the learners of linear bandits share: a regression, its radius and, for most, decisions by a `Rule`."""

import copy
import math
from typing import Any

import numpy as np

from episafe.kernels import ellipsoid
from episafe.kernels.bandit_decision import REASONS, Rule, decide, optimism_of, room, slack_of
from episafe.kernels.bandit_regression import BanditRegression, absorb_all, blank, estimates, norm, radius_now
from episafe.learning.bandit_radius import radius as radius_of
from episafe.problems.bandit_policy import BanditPlan, over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.storage.state_reader import Saved, State, under
from episafe.types import SOURCES, Array, Level, amount

NO_RULE = Rule(np.zeros(0), math.nan, math.nan)  # of agents that decide otherwise


class RegressionLearner:
    """The regression with its radius C; the engine decides over arms, a ball or ellipsoid first proposes two.

    Args:
        task: what the learner is told.
        rule: how to decide.
        num_rounds: K, for the paper's radius.
        delta: δ.
        radius: by name, or set by hand; see `episafe.learning.bandit_radius`.
        said: what a record shall say beside these.
    """

    def __init__(
        self, task: BanditTask, rule: Rule, num_rounds: int | None, delta: float, radius: Any, **said: str | float
    ) -> None:
        self._task, self.rule = task, rule
        self.radius, proved = radius_of(radius, task, num_rounds, delta)
        self.level: Level = proved if rule.constrained else "heuristic"  # of plans
        self.model: BanditRegression = blank(task.dim, task.num_constraints)
        self._given: dict[str, Any] = {"num_rounds": num_rounds, "delta": delta, "radius": radius}
        self.said: dict[str, str | int | float] = dict(said)

    @property
    def num_learned(self) -> int:
        """How many observations were learned from."""
        return int(self.model.seen[0])

    @property
    def information(self) -> Array:
        """ln det Λ, shape (1,)."""
        return self.model.log_det

    def observe(self, actions: Array, rewards: Array, utilities: Array) -> None:
        """Take in observations: actions (n, d), rewards (n,), utilities (n,), or (n, m) of several constraints."""
        absorb_all(self.model, actions, np.column_stack([rewards, utilities]))

    def check_length(self, num_rounds: int) -> None:
        """Any number more: a radius for fewer rounds is only said to be of level theorem for those."""

    def decide(self, round: int) -> BanditPlan:
        """What the rule says of a round, as a plan."""
        arms, safe = self._choices(round)
        policy, bounds = np.empty(len(arms)), np.empty(self._task.num_constraints)
        space = room(len(arms), len(bounds))
        source, lam, reason = decide((arms, 0, safe), self.model, self.rule, self.radius, space, policy, bounds)
        return self.as_plan(arms, policy, (source, lam, bounds, reason))

    def as_plan(self, arms: Array, policy: Array, made: tuple[int, float, Array, int], plan_id: int = 0) -> BanditPlan:
        """A decision of the engine (source, λ, bounds, reason) as a plan."""
        source, lam, bounds, reason = made
        facts = (SOURCES[source], lam, amount(bounds), self.level, REASONS[reason], plan_id)
        return self._task.as_plan(over_arms(arms, policy), *facts)

    def state(self) -> State:
        """The regression as named arrays."""
        return under("model", self.model._asdict())

    def restored(self, saved: Saved) -> "RegressionLearner":
        """A learner like this one that knows what was stored of another; this one is not changed."""
        model, d = saved.under("model"), self._task.dim
        read = BanditRegression(
            model.numbers("gram", (d, d)),
            model.numbers("gram_inv", (d, d)),
            model.numbers("sums", (1 + self._task.num_constraints, d)),
            model.numbers("log_det", (1,), least=0),
            model.wholes("seen", (1,), 0, 2**62),
        )
        for name in ("gram", "gram_inv"):
            if not np.linalg.eigvalsh(getattr(read, name))[0] > 0:
                model.refuse(name, "is not positive definite")
        made = copy.copy(self)
        made.model = read
        return made

    def settings(self) -> dict[str, str | int | float]:
        """The radius, what the task tells, and what else was said."""
        task, given = self._task, self._given
        slacks = ["unknown" if one.slack is None else one.slack for one in task.constraints]
        told: dict[str, str | int | float] = {
            "level_assumes": "",
            "radius": str(given["radius"]),
            "planned_rounds": 0 if given["num_rounds"] is None else int(given["num_rounds"]),
            "delta": float(given["delta"]),
            "slack": slacks[0] if len(slacks) == 1 else ", ".join(map(str, slacks)),
            "noise": task.noise,
            "norm_bound": task.norm_bound,
            "told_besides": "",
        }
        return told | self.said

    def arguments(self) -> dict[str, Any]:
        """Rounds, δ and radius, as an agent is given them."""
        return self._given.copy()

    def _choices(self, round: int) -> tuple[Array, Array]:
        """Arms that contain the support of an optimal policy, and the incumbent as a distribution over them."""
        if self._task.is_finite:
            return self._task.arms(round), self._task.incumbent(round)
        incumbent = self._task.incumbent(round)[None, :]
        others = self._axes() if self.num_learned < self.rule.num_seeds else self._optimum(incumbent)
        arms = np.ascontiguousarray(np.concatenate([incumbent, others]))
        return arms, np.eye(1, len(arms))[0]

    def _optimum(self, incumbent: Array) -> Array:
        """The atoms of the optimal policy over the ball or ellipsoid, (2, d); none where no policy is feasible."""
        model, rule, theta = self.model, self.rule, estimates(self.model)
        C = radius_now(self.radius, model.log_det[0], model.seen[0])
        slack = slack_of(rule, np.array([float(incumbent[0] @ theta[1]) - C * norm(model, incumbent, 0)]))
        if not slack > 0:
            return np.empty((0, self._task.dim))
        scales = (optimism_of(rule, slack) * C, rule.pessimism * C)
        threshold = rule.thresholds[0] if rule.constrained else -math.inf
        at = ellipsoid.frame(self._task.convex_set.root, model.gram_inv)
        found = ellipsoid.solve(theta[0], theta[1], at, scales, threshold)
        return found.atoms if found.feasible else np.empty((0, self._task.dim))

    def _axes(self) -> Array:
        """The ends of the axes of the ball or ellipsoid, (2d, d): they span all directions."""
        axes = self._task.convex_set.root.T
        return np.concatenate([axes, -axes])

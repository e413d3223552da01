"""What the agents of linear bandits share: a ridge regression, its confidence radius, and the policy over arms.

The radius C has ‖θ̂_g − θ_g‖_Λ ≤ C for the reward and every utility, in all rounds together, with probability 1 − δ.
With ρ = 1, n observations, s = 1 + m signals and d' = max{d, 2} it is B + R√x with

    determinant   x = ln det Λ + 2 ln(s/δ)      Abbasi-Yadkori et al. 2011, Theorem 2, with δ/s for each signal
    anytime       x = d' ln(s(1 + n)/δ)         from det Λ ≤ (1 + n/d)^d
    paper         x = d' ln(2sK/δ)              from s(1 + n) ≤ 2sK, so for n < 2K observations

For d = 1 the closed forms with d' = d do not follow from the determinant: 2 ln(s/δ) ≤ d ln(s/δ) needs d ≥ 2.
"""

import math
from typing import Any

import numpy as np

from episafe.core.agent import EVERY, Agent, Replanning
from episafe.core.checks import as_probability, is_number
from episafe.core.errors import InvalidProblem
from episafe.core.types import Array, Episode, Level, Plan, Source
from episafe.kernels.bandit import (
    ADMITTED,
    REASONS,
    Radius,
    Regression,
    Rule,
    absorb_all,
    estimates,
    radius_now,
    search,
)
from episafe.problems.bandit import ActionPolicy, BanditTask, Ellipsoid


class BanditAgent(Agent):
    """Learns θ̂_r and θ̂_u by ridge regression. Subclasses write `decide`.

    Args:
        problem: a `LinearBandit` or its task.
        rule: the constants of the algorithm; compiled loops decide by them alone.
        num_rounds: K, for the paper's radius.
        delta: δ.
        radius: "paper", "determinant", "anytime", or a number: C set by hand, at the level "heuristic".
        replan: when to plan again; every round, where the arms change.
        label: what records call the agent.

    Attributes:
        round: the round to plan for. It grows with the rounds that were learned; set it if feedback is late.
    """

    task: BanditTask

    def __init__(
        self,
        problem: Any,
        num_rounds: int | None = None,
        delta: float = 0.05,
        *,
        radius: Any = "paper",
        replan: Replanning = EVERY,
        label: str = "",
    ) -> None:
        super().__init__(problem, replan)
        if not isinstance(self.task, BanditTask):
            raise TypeError(f"{type(self).__name__} needs a LinearBandit or its task, got {type(problem).__name__}")
        if self.task.changes:
            self.replan = EVERY
        d, m = self.task.dim, self.task.num_constraints
        count = np.zeros(1, dtype=np.int64)
        self.model = Regression(np.eye(d), np.eye(d), np.zeros((1 + m, d)), np.zeros(1), count)
        self.num_rounds = None if num_rounds is None else as_rounds(num_rounds)
        self.delta, self.label, self._told_radius = as_probability("delta", delta), label or self.facts.name, radius
        self.radius = radius_of(radius, self.task, self.num_rounds, self.delta)
        self.rule = self.make_rule()
        self.level: Level = "theorem" if isinstance(radius, str) and self.rule.constrained else "heuristic"
        self._round = 0

    def make_rule(self) -> Rule:
        """Return the constants of the algorithm."""
        raise NotImplementedError(f"{type(self).__name__} has no rule: write make_rule")

    @property
    def round(self) -> int:
        """Return the round to plan for."""
        return self._round

    @round.setter
    def round(self, k: int) -> None:
        self._round, self._changed = k, True

    def observe(self, episode: Episode) -> None:
        """Add the rounds of an episode in canonical form to the regression."""
        absorb_all(self.model, episode.actions, np.column_stack([episode.rewards, episode.utilities]))
        self._round += len(episode.actions)

    def information(self) -> Array:
        """Return ln det Λ, shape (1,)."""
        return self.model.log_det

    @property
    def C(self) -> float:
        """Return the confidence radius now."""
        return float(radius_now(self.radius, self.model.log_det[0], self.model.seen[0]))

    @property
    def exhausted(self) -> bool:
        """Return whether there were more observations than the radius covers."""
        return bool(self.model.seen[0] >= self.radius.limit)

    def offer(self) -> tuple[Array, Array]:
        """Return the arms (n, d) of the round and the incumbent's probabilities (n,); its point, of an ellipsoid."""
        return self.task.arms(self.round), self.task.safe(self.round)

    def estimates(self, arms: Array) -> tuple[Array, Array, Array]:
        """Return r̂ (n,), û (m, n) and β = ‖a‖_{Λ⁻¹} (n,) of the arms."""
        theta = estimates(self.model)
        beta = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", arms, self.model.gram_inv, arms), 0.0))
        return arms @ theta[0], theta[1:] @ arms.T, beta

    def extremes(
        self, arms: Array, safe: Array, C_r: float, C_u: float, constrained: bool = True
    ) -> tuple[Array, Array]:
        """Return the arms of `search`, and the incumbent over them.

        For an ellipsoid these are the incumbent's point and the two actions of a policy that maximises r̂ + C_r β s.t.
        û − C_u β ≥ b.
        """
        if not isinstance(self.task.actions, Ellipsoid):
            return arms, safe
        threshold = self.task.thresholds[0] if constrained else -math.inf
        found = self.task.actions.best_mixture(estimates(self.model), self.model.gram_inv, (C_r, C_u), threshold)
        return with_incumbent_first(arms, np.empty((0, self.task.dim)) if found is None else found[0])

    def search(self, arms: Array, safe: Array, f: Array, g: Array, low: Array, slack: float = math.nan) -> Plan:
        """Return the plan argmax_π E_π[f] s.t. E_π[g] ≥ b, if E_π[low] ≥ b in float64; else the incumbent.

        f (n,), g and low (m, n). The rule says whether there is a constraint, and whether the policy is shrunk.
        """
        policy, bounds, order = np.zeros(len(arms)), np.empty(len(low)), np.empty(len(arms), dtype=np.int64)
        g, low = np.ascontiguousarray(g), np.ascontiguousarray(low)
        lam, reason = search(self.rule, slack, (f, f, g, low, order), safe, 0, policy, bounds)
        if reason:
            return self.keep(int(reason), arms, safe, low)
        return self.as_plan(arms, policy, "search", lam, bounds)

    def keep(self, reason: int, arms: Array, safe: Array, low: Array) -> Plan:
        """Return the plan that deploys the incumbent; `low` (m, n) are pessimistic utilities of the arms."""
        return self.as_plan(arms, safe, "safe", math.nan, low @ safe, reason)

    def as_plan(
        self, arms: Array, policy: Array, source: Source, lam: float, bounds: Array, reason: int = ADMITTED
    ) -> Plan:
        """Return a policy over arms as a plan."""
        return Plan(ActionPolicy(arms, policy), source, bounds, self.level, REASONS[reason], float(lam))

    @property
    def in_force(self) -> tuple[Plan | None, Array]:
        """Return the plan in force, None before the first, and ln det Λ (1,) when it was made."""
        return self._plan, self._information_then

    def take_over(self, plan: Plan, information: Array) -> None:
        """Put in force the plan that a compiled loop made last, when ln det Λ was `information` (1,)."""
        self._num_plans = plan.id
        self.adopt(plan)
        self._information_then, self._changed = information.copy(), True

    def settings(self) -> dict[str, Any]:
        """Return the radius and what the task tells."""
        slacks = ["unknown" if one.slack is None else one.slack for one in self.task.constraints]
        told = {"radius": str(self._told_radius), "planned_rounds": self.num_rounds or 0, "delta": self.delta}
        told |= {"slack": ", ".join(map(str, slacks)), "noise": self.task.noise, "norm_bound": self.task.norm_bound}
        return super().settings() | {"agent": self.label} | told

    def require_one_limit(self) -> None:
        """Raise if there are several limits, for an algorithm whose argument has one."""
        if self.task.num_constraints > 1:
            raise InvalidProblem(f"{self.facts.label} takes one limit, got {self.task.num_constraints}: use OPLBSP")


def with_incumbent_first(point: Array, others: Array) -> tuple[Array, Array]:
    """Return the incumbent's point (1, d) above other actions, and the incumbent as a distribution over all."""
    arms = np.ascontiguousarray(np.concatenate([point, others]))
    return arms, np.eye(1, len(arms))[0]


def radius_of(kind: Any, task: BanditTask, num_rounds: int | None, delta: float) -> Radius:
    """Return the radius by name, or set by hand."""
    if is_number(kind):
        if not (math.isfinite(kind) and kind >= 0):
            raise InvalidProblem(f"a radius set by hand must be a finite number >= 0, got {kind!r}")
        return Radius(float(kind), 0.0, 0.0, 0.0, 0.0, math.inf)
    B, R, d, s = float(task.norm_bound or 0.0), task.noise, max(task.dim, 2), 1 + task.num_constraints
    if kind == "determinant":
        return Radius(B, R, 1.0, 0.0, 2 * math.log(s / delta), math.inf)
    if kind == "anytime":
        return Radius(B, R, 0.0, float(d), d * math.log(s / delta), math.inf)
    if kind != "paper":
        raise InvalidProblem(f'radius must be "paper", "determinant", "anytime" or a number, got {kind!r}')
    if num_rounds is None:
        raise InvalidProblem('radius "paper" needs num_rounds: give it, or use radius="determinant", which needs none')
    return Radius(B, R, 0.0, 0.0, d * math.log(2 * s * num_rounds / delta), 2.0 * num_rounds)


def as_rounds(value: Any) -> int:
    """Return K, a whole number ≥ 1; 1e5 is one."""
    if not is_number(value) or not math.isfinite(value) or int(value) != value or value < 1:
        raise InvalidProblem(f"num_rounds must be a whole number >= 1, got {value!r}: it is K, the rounds to be played")
    return int(value)

"""What the agents of linear bandits share: a ridge regression, its confidence radius, and the policy over arms.

The radius C has ‖θ̂_g − θ_g‖_Λ ≤ C for the reward and every utility, in all rounds together, with probability 1 − δ.
With ρ = 1, n observations, s = 1 + m signals and d' = max{d, 2} it is B + R√x with

    determinant   x = ln det Λ + 2 ln(s/δ)      Abbasi-Yadkori et al. 2011, Theorem 2, with δ/s for each signal
    anytime       x = d' ln(s(1 + n)/δ)         from det Λ ≤ (1 + n/d)^d
    paper         x = d' ln(2sK/δ)              from s(1 + n) ≤ 2sK, so for n < 2K observations

For d = 1 the closed forms with d' = d do not follow from the determinant: 2 ln(s/δ) ≤ d ln(s/δ) needs d ≥ 2.
"""

import math

import numpy as np

from episafe.core.agent import EVERY, Agent, Replanning
from episafe.core.checks import as_probability, is_number
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike
from episafe.core.types import SOURCES, Array, Episode, Plan, Settings
from episafe.kernels.bandit import REASONS, Radius, Regression, Rule, absorb_all, decide, estimates, radius_now
from episafe.problems.bandit import ActionPolicy, BanditTask, Ellipsoid


class BanditAgent(Agent):
    """Learns θ̂_r and θ̂_u by ridge regression, and decides by a `Rule`, which subclasses write.

    Args:
        problem: a `LinearBandit` or its task.
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
        problem: ProblemLike,
        num_rounds: int | None = None,
        delta: float = 0.05,
        *,
        radius: str | float = "paper",
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
        self.radius, self.rule = radius_of(radius, self.task, self.num_rounds, self.delta), self.make_rule()
        self.level = "theorem" if isinstance(radius, str) and self.rule.thresholds[0] > -np.inf else "heuristic"
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
    def C(self) -> float:  # noqa: N802
        """Return the confidence radius now."""
        return float(radius_now(self.radius, self.model.log_det[0], self.model.seen[0]))

    @property
    def exhausted(self) -> bool:
        """Return whether there were more observations than the radius covers."""
        return bool(self.model.seen[0] >= self.radius.limit)

    def decide(self) -> Plan:
        """Return the plan for the round, by the rule."""
        arms, safe = self.offer(self.rule.optimism * self.C, self.rule.pessimism * self.C)
        return self.as_plan(arms, *decide(arms, safe, self.model, self.rule, self.radius))

    def offer(self, C_r: float, C_u: float) -> tuple[Array, Array]:
        """Return the arms (n, d) of the round and the incumbent's probabilities (n,).

        For an ellipsoid the arms are the incumbent's point and the two actions of a policy that maximises r̂ + C_r β
        s.t. û − C_u β ≥ b; while the rule asks for seeds, they are that point and the ends of all axes.
        """
        arms, safe = self.task.arms(self.round), self.task.safe(self.round)
        if isinstance(self.task.actions, Ellipsoid):
            if self.model.seen[0] < self.rule.num_seeds:
                others = np.concatenate([self.task.actions.root.T, -self.task.actions.root.T])
            else:
                b = self.rule.thresholds[0]
                others = self.task.actions.best_mixture(estimates(self.model), self.model.gram_inv, (C_r, C_u), b)[0]
            arms = np.concatenate([arms, others])
            safe = np.eye(1, len(arms))[0]
        return arms, safe

    def estimates(self, arms: Array) -> tuple[Array, Array, Array]:
        """Return r̂ (n,), û (m, n) and β = ‖a‖_{Λ⁻¹} (n,) of the arms."""
        theta = estimates(self.model)
        beta = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", arms, self.model.gram_inv, arms), 0.0))
        return arms @ theta[0], theta[1:] @ arms.T, beta

    def as_plan(
        self, arms: Array, policy: Array, bounds: Array, source: int, lam: float = math.nan, reason: int = 0
    ) -> Plan:
        """Return a policy over arms as a plan; `source` and `reason` are numbers in SOURCES and REASONS."""
        return Plan(ActionPolicy(arms, policy), SOURCES[source], bounds, self.level, REASONS[reason], float(lam))

    @property
    def in_force(self) -> tuple[Plan | None, Array]:
        """Return the plan in force, None before the first, and ln det Λ (1,) when it was made."""
        return self._plan, self._information_then

    def take_over(self, plan: Plan, information: Array) -> None:
        """Put in force the plan that a compiled loop made last, when ln det Λ was `information` (1,)."""
        self._num_plans = plan.id
        self.adopt(plan)
        self._information_then, self._changed = information.copy(), True

    def settings(self) -> Settings:
        """Return the radius and what the task tells."""
        slacks = ["unknown" if one.slack is None else one.slack for one in self.task.constraints]
        told: Settings = {"radius": str(self._told_radius), "planned_rounds": self.num_rounds or 0, "delta": self.delta}
        told |= {"slack": ", ".join(map(str, slacks)), "noise": self.task.noise, "norm_bound": self.task.norm_bound}
        return super().settings() | {"agent": self.label} | told

    def require_one_limit(self) -> None:
        """Raise if there are several limits, for an algorithm whose argument has one."""
        if self.task.num_constraints > 1:
            raise InvalidProblem(f"{self.facts.label} takes one limit, got {self.task.num_constraints}: use OPLBSP")


def radius_of(kind: str | float, task: BanditTask, num_rounds: int | None, delta: float) -> Radius:
    """Return the radius by name, or set by hand."""
    if is_number(kind):
        if not (math.isfinite(kind) and kind >= 0):
            raise InvalidProblem(f"a radius set by hand must be a finite number >= 0, got {kind!r}")
        return Radius(float(kind), 0.0, 0.0, 0.0, 0.0, math.inf)
    B, R, d, s = task.norm_bound, task.noise, max(task.dim, 2), 1 + task.num_constraints
    if kind == "determinant":
        return Radius(B, R, 1.0, 0.0, 2 * math.log(s / delta), math.inf)
    if kind == "anytime":
        return Radius(B, R, 0.0, float(d), d * math.log(s / delta), math.inf)
    if kind != "paper":
        raise InvalidProblem(f'radius must be "paper", "determinant", "anytime" or a number, got {kind!r}')
    if num_rounds is None:
        raise InvalidProblem('radius "paper" needs num_rounds: give it, or use radius="determinant", which needs none')
    return Radius(B, R, 0.0, 0.0, d * math.log(2 * s * num_rounds / delta), 2.0 * num_rounds)


def as_rounds(value: object) -> int:
    """Return K, a whole number ≥ 1; 1e5 is one."""
    if not is_number(value) or not math.isfinite(value) or int(value) != value or value < 1:
        raise InvalidProblem(f"num_rounds must be a whole number >= 1, got {value!r}: it is K, the rounds to be played")
    return int(value)

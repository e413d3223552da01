"""What the agents of linear bandits share: a ridge regression, its confidence radius, and the policy over arms.

The radius C has ‖θ̂_g − θ_g‖_Λ ≤ C for the reward and every utility, in all rounds together, with probability 1 − δ.
With ρ = 1, n observations, s = 1 + m signals and d' = max{d, 2} it is B + R√x with

    determinant   x = ln det Λ + 2 ln(s/δ)      Abbasi-Yadkori et al. 2011, Theorem 2, with δ/s for each signal
    anytime       x = d' ln(s(1 + n)/δ)         from det Λ ≤ (1 + n/d)^d
    paper         x = d' ln(2sK/δ)              from s(1 + n) ≤ 2sK, so for n < 2K observations

For d = 1 the closed forms with d' = d do not follow from the determinant: 2 ln(s/δ) ≤ d ln(s/δ) needs d ≥ 2.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np

from episafe.core.agent import EVERY, Agent, Replanning
from episafe.core.checks import as_count, as_probability, is_number
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.kernels.bandit_sets import best_policy, means
from episafe.problems.bandit import ActionPolicy, BanditTask, Ellipsoid

REFACTOR_EVERY = 500  # observations between fresh inverses, so that rounding does not build up
NO_POLICY = "no policy has a pessimistic utility of at least the threshold"
BEYOND = "the radius covers fewer observations: give a larger num_rounds, or a radius that does not use it"


class Radius(NamedTuple):
    """C = offset + noise·√(per_log_det·ln det Λ + per_log_count·ln(1 + n) + constant), for n < limit observations."""

    offset: float
    noise: float = 0.0
    per_log_det: float = 0.0
    per_log_count: float = 0.0
    constant: float = 0.0
    limit: float = math.inf

    def at(self, log_det: float, count: int) -> float:
        """Return C after `count` observations."""
        growing = self.per_log_det * log_det + self.per_log_count * math.log(1.0 + count)
        return self.offset + self.noise * math.sqrt(growing + self.constant)


class BanditAgent(Agent):
    """Learns θ̂_r and θ̂_u by ridge regression. Subclasses write `decide`.

    Args:
        problem: a `LinearBandit` or its task.
        num_rounds: K, for the paper's radius.
        delta: δ.
        radius: "paper", "determinant", "anytime", or a number: C set by hand, at the level "heuristic".
        replan: when to plan again; every round, if the arms change.
        label: the name of the agent in records.

    Attributes:
        gram, gram_inv, log_det: Λ = I + Σ aaᵀ and Λ⁻¹ (d, d), ln det Λ.
        sums: Σ a r and Σ a u, (1 + m, d).
        seen: the number of observations.
        round: the round to plan for. It grows with the rounds that were learned; set it if feedback is late.
    """

    task: BanditTask
    one_limit: ClassVar[bool] = False  # whether its argument has one limit
    keeps_limits: ClassVar[bool] = True
    needs_rounds: ClassVar[bool] = False  # whether it uses K itself

    def __init__(
        self, problem: ProblemLike, num_rounds: int | None = None, delta: float = 0.05, *,
        radius: str | float = "paper", replan: Replanning = EVERY, label: str = "",
    ) -> None:  # fmt: skip
        super().__init__(problem, replan)
        if not isinstance(self.task, BanditTask):
            raise TypeError(f"{type(self).__name__} needs a LinearBandit or its task, got {type(problem).__name__}")
        if self.task.changes:
            self.replan = EVERY
        d = self.task.dim
        self.gram, self.gram_inv, self.sums = np.eye(d), np.eye(d), np.zeros((1 + self.task.num_constraints, d))
        self.log_det, self.seen = 0.0, 0
        if self.one_limit and self.task.num_constraints > 1:
            raise InvalidProblem(f"{self.facts.label} supports one limit, got {self.task.num_constraints}: use OPLBSP")
        self.num_rounds = None if num_rounds is None and not self.needs_rounds else as_count("num_rounds", num_rounds)
        self.delta, self.label, self._told_radius = as_probability("delta", delta), label or self.facts.name, radius
        self.radius = radius_of(radius, self.task, self.num_rounds, self.delta)
        self.level = "theorem" if isinstance(radius, str) and self.keeps_limits else "heuristic"
        self._round = 0

    @property
    def round(self) -> int:
        """Return the round to plan for."""
        return self._round

    @round.setter
    def round(self, k: int) -> None:
        self._round, self._changed = k, True

    def observe(self, episode: Episode) -> None:
        """Add the rounds of an episode in canonical form to the regression."""
        for action, reward, utilities in zip(episode.actions, episode.rewards, episode.utilities, strict=True):
            image = self.gram_inv @ action
            scale = 1.0 + image @ action
            self.sums += np.multiply.outer(np.append(reward, utilities), action)
            self.gram += np.multiply.outer(action, action)
            self.gram_inv -= np.multiply.outer(image, image) / scale
            self.log_det += math.log(scale)
            self.seen += 1
            if self.seen % REFACTOR_EVERY == 0:
                root_inv = np.linalg.inv(np.linalg.cholesky(self.gram))  # Λ ⪰ I, so the factorisation cannot fail
                self.gram_inv, self.log_det = root_inv.T @ root_inv, -2.0 * float(np.log(np.diag(root_inv)).sum())
        self._round += len(episode.actions)

    def information(self) -> Array:
        """Return ln det Λ, shape (1,)."""
        return np.array([self.log_det])

    @property
    def C(self) -> float:  # noqa: N802
        """Return the current confidence radius."""
        return self.radius.at(self.log_det, self.seen)

    @property
    def exhausted(self) -> bool:
        """Return whether there were more observations than the radius covers."""
        return self.seen >= self.radius.limit

    def offer(self, C_r: float, C_u: float, thresholds: Array) -> tuple[Array, Array]:
        """Return the arms (n, d) of the round and the incumbent's probabilities (n,).

        For an ellipsoid the arms are the incumbent's point and the two actions of a policy that maximises r̂ + C_r β
        s.t. û − C_u β ≥ b.
        """
        arms, safe = self.task.arms(self.round), self.task.safe(self.round)
        if isinstance(self.task.actions, Ellipsoid):
            theta, scales = self.sums @ self.gram_inv, (C_r, C_u)
            others = self.task.actions.best_mixture(theta, self.gram_inv, scales, thresholds[0])[0]
            arms, safe = np.concatenate([arms, others]), np.eye(1, 1 + len(others))[0]
        return arms, safe

    def search(self, C_r: float, C_u: float, thresholds: Array) -> tuple[Array, Array, Array, float]:
        """Return arms (n, d), π ∈ argmax E_π[r̂ + C_r β] s.t. E_π[û − C_u β] ≥ b (n,), E_π[û − Cβ] (m,), and λ.

        λ is NaN if there is no such policy.
        """
        arms, safe = self.offer(C_r, C_u, thresholds)
        r_hat, u_hat, beta = self.estimates(arms)
        policy, lam = best_policy(r_hat + C_r * beta, u_hat - C_u * beta, thresholds, safe)
        return arms, policy, means(policy, u_hat - self.C * beta), lam

    def estimates(self, arms: Array) -> tuple[Array, Array, Array]:
        """Return r̂ (n,), û (m, n) and β = ‖a‖_{Λ⁻¹} (n,) of the arms."""
        theta = self.sums @ self.gram_inv  # θ̂_g = Λ⁻¹ Σ a g
        beta = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", arms, self.gram_inv, arms), 0.0))
        return arms @ theta[0], theta[1:] @ arms.T, beta

    def as_plan(self, arms: Array, policy: Array, bounds: Array, lam: float, reason: str = "") -> Plan:
        """Return the plan of a policy (n,) over arms (n, d)."""
        return Plan(ActionPolicy(arms, policy), "search", bounds, self.level, reason, lam)

    def incumbent_plan(self, reason: str = "", bounds: Array | None = None) -> Plan:
        """Return the plan that deploys the incumbent of the round; its bounds are û − Cβ."""
        arms, safe = self.task.arms(self.round), self.task.safe(self.round)
        if bounds is None:
            _, u_hat, beta = self.estimates(arms)
            bounds = means(safe, u_hat - self.C * beta)
        return Plan(ActionPolicy(arms, safe), "safe", bounds, self.level, reason)

    def settings(self) -> Settings:
        """Return the settings with the radius and the facts of the task."""
        slacks = ["unknown" if one.slack is None else one.slack for one in self.task.constraints]
        told: Settings = {"radius": str(self._told_radius), "planned_rounds": self.num_rounds or 0, "delta": self.delta}
        told |= {"slack": ", ".join(map(str, slacks)), "noise": self.task.noise, "norm_bound": self.task.norm_bound}
        return super().settings() | {"agent": self.label} | told


def radius_of(kind: str | float, task: BanditTask, num_rounds: int | None, delta: float) -> Radius:
    """Return the radius by name, or set by hand."""
    if is_number(kind):
        if not (math.isfinite(kind) and kind >= 0):
            raise InvalidProblem(f"a radius set by hand must be a finite number >= 0, got {kind!r}")
        return Radius(float(kind))
    B, R, d, s = task.norm_bound, task.noise, max(task.dim, 2), 1 + task.num_constraints
    if kind == "determinant":
        return Radius(B, R, per_log_det=1.0, constant=2 * math.log(s / delta))
    if kind == "anytime":
        return Radius(B, R, per_log_count=float(d), constant=d * math.log(s / delta))
    if kind != "paper":
        raise InvalidProblem(f'radius must be "paper", "determinant", "anytime" or a number, got {kind!r}')
    if num_rounds is None:
        raise InvalidProblem('radius "paper" needs num_rounds: give it, or use radius="determinant", which needs none')
    return Radius(B, R, constant=d * math.log(2 * s * num_rounds / delta), limit=2.0 * num_rounds)

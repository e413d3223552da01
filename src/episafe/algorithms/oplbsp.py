"""OPLB-SP, Algorithm 1 of the paper."""

import math

from episafe.algorithms.bandit_agent import BEYOND, NO_POLICY, BanditAgent
from episafe.core.agent import EVERY, Replanning, register
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike
from episafe.core.types import Plan
from episafe.kernels.bandit_sets import best_policy, means


@register(
    name="oplbsp-determinant", label="OPLB-SP, determinant",
    summary="OPLB-SP with the determinant radius, which is tighter and does not need num_rounds", kind="bandit",
    colour="#56B4E9", arguments=lambda problem, num_episodes: {"radius": "determinant", "label": "oplbsp-determinant"},
)  # fmt: skip
@register(
    name="oplbsp", label="OPLB-SP",
    summary="OPLB-SP, Algorithm 1 of the paper: the incumbent until its utility is known, then optimistic policies",
    kind="bandit", colour="#0072B2", arguments=lambda problem, num_episodes: {"num_rounds": num_episodes},
)  # fmt: skip
class OPLBSP(BanditAgent):
    """Deploys the incumbent while C_u β_sf > ξ/2, and then the policy

        π ∈ argmax E_π[θ̂_rᵀa + C_r‖a‖_{Λ⁻¹}]   s.t.   E_π[θ̂_uᵀa − C_u‖a‖_{Λ⁻¹}] ≥ b,   C_r = C_u(1 + 2B/ξ).

    With probability 1 − δ every deployed policy is safe, in all rounds together. Differs from the paper: several
    limits are kept with arms (ξ is their least slack), and d is replaced by max{d, 2} in C_u (`bandit_agent`).

    Args:
        problem, num_rounds, delta, radius, replan, label: see `BanditAgent`. C_u is the radius.
        slack: "told" by the task, or "estimated" by û_sf − C_u β_sf − b, which is at most ξ; the task's is then unused.
    """

    def __init__(
        self, problem: ProblemLike, num_rounds: int | None = None, delta: float = 0.05, *,
        radius: str | float = "paper", replan: Replanning = EVERY, slack: str = "told", label: str = "",
    ) -> None:  # fmt: skip
        if slack not in ("told", "estimated"):
            raise InvalidProblem(f'slack must be "told" or "estimated", got {slack!r}: a number belongs in the problem')
        self.slack = slack
        super().__init__(problem, num_rounds, delta, radius=radius, replan=replan, label=label)

    def decide(self) -> Plan:
        """Return π⁽ᵏ⁾: one round of Algorithm 1."""
        b, C_u, arms, safe = self.task.thresholds, self.C, self.task.arms(self.round), self.task.safe(self.round)
        r_hat, u_hat, beta = self.estimates(arms)  # Alg. 1, line 2 -> r̂_π, û_π and β_π are means over π of these
        safe_bounds = means(safe, u_hat - C_u * beta)
        xi = float(self.task.slacks.min() if self.slack == "told" else (safe_bounds - b).min())
        if self.exhausted:
            return self.incumbent_plan(BEYOND)
        if not C_u * (beta @ safe) <= xi / 2:  # Alg. 1, line 3 -> C_u β_sf > ξ/2: deploy π_sf
            return self.incumbent_plan("not confident enough of the incumbent yet: C·β > ξ/2")
        C_r = C_u * (1 + 2 * self.task.norm_bound / xi)
        arms, safe = self.offer(C_r, C_u, b)  # of an ellipsoid, the actions that matter
        r_hat, u_hat, beta = self.estimates(arms)
        policy, lam = best_policy(r_hat + C_r * beta, u_hat - C_u * beta, b, safe)  # Alg. 1, line 4 -> argmax s.t. ≥ b
        bounds = means(policy, u_hat - C_u * beta)
        if math.isnan(lam) or not (bounds >= b).all():
            return self.incumbent_plan(NO_POLICY)
        return self.as_plan(arms, policy, bounds, lam)

"""The algorithms that OPLB-SP is compared with: OPLB, Safe-LUCB, ROFUL, OFUL, and the incumbent in every round.

All but OFUL are from memory or summaries of their papers, whose texts were not available: likely, not checked.
"""

import math

import numpy as np

from episafe.algorithms.bandit_agent import BanditAgent, as_rounds
from episafe.core.agent import EVERY, Doubling, Replanning, register
from episafe.core.checks import TOLERANCE, as_number
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike
from episafe.core.types import SAFE, SEARCH, Plan, Settings
from episafe.kernels.bandit import BEYOND, Rule, radius_now
from episafe.kernels.bandit_sets import best_policy, means
from episafe.kernels.mixture import payer_share


def _determinant(problem: ProblemLike, num_episodes: int) -> dict[str, object]:
    return {"num_rounds": num_episodes, "radius": "determinant"}


@register(
    name="oplb",
    label="OPLB",
    summary="OPLB (Pacchiano et al. 2021), from memory: listed arms only, told the incumbent's exact utility",
    kind="bandit",
    colour="#CC79A7",
    arguments=lambda bandit, K: _determinant(bandit, K) | {"known_utility": bandit.evaluate(bandit.task.incumbent)[1]},
    needs=lambda bandit: "" if isinstance(bandit.task.actions, np.ndarray) else "its arms are not listed, or change",
)
class OPLB(BanditAgent):
    """OPLB of Pacchiano, Ghavamzadeh, Bartlett and Jiang 2021 and 2024, for arms that do not change.

    It knows the incumbent's utility u₀ and learns only what is orthogonal to its mean action x₀, e₀ = x₀/‖x₀‖:

        f(a) = θ̂_rᵀa + α_r C‖a‖_{Λ⁻¹},   g(a) = (aᵀe₀/‖x₀‖)u₀ + μ̂ᵀa^⊥ − C‖a^⊥‖_{(Λ^⊥)⁻¹},   a^⊥ = a − (aᵀe₀)e₀,
        π ∈ argmax E_π[f] s.t. E_π[g] ≥ b,   α_r = 1 + 2B/(u₀ − b),

    with μ̂ regressed on a^⊥ from u − (aᵀe₀/‖x₀‖)u₀. The incumbent is one more choice, of utility u₀: always feasible.
    Differs from the paper: the bonus is the mean of the norms, not the norm of the mean, which bounds it from above and
    keeps the problem linear; x₀ is the mean of a policy.

    Args:
        problem, num_rounds, delta, radius, replan, label: see `BanditAgent`.
        known_utility: u₀, exactly.
    """

    def __init__(
        self,
        problem: ProblemLike,
        num_rounds: int | None = None,
        delta: float = 0.05,
        *,
        known_utility: float,
        radius: str | float = "paper",
        replan: Replanning = EVERY,
        label: str = "",
    ) -> None:
        super().__init__(problem, num_rounds, delta, radius=radius, replan=replan, label=label)
        self.require_one_limit()
        task, self.known_utility = self.task, as_number("known_utility", known_utility)
        if not isinstance(task.actions, np.ndarray):
            raise InvalidProblem("OPLB needs arms that do not change: no exact method is known for other action sets")
        x_0 = task.safe(0) @ task.arms(0)
        if np.linalg.norm(x_0) < 1e-6:
            raise InvalidProblem("the incumbent's mean action is 0 and has no direction: OPLB cannot use it")
        self.e_0, self._per_e_0 = x_0 / np.linalg.norm(x_0), self.known_utility / float(np.linalg.norm(x_0))
        slack, told = self.known_utility - task.thresholds[0], task.constraints[0].slack
        if not slack > 0 or (told is not None and slack < told - TOLERANCE):
            raise InvalidProblem(f"known_utility {known_utility} is below threshold + slack: give the exact utility")

    def make_rule(self) -> Rule:
        """Return b and B; the other constants are in `decide`."""
        return Rule(self.task.thresholds, self.task.norm_bound, math.nan)

    def decide(self) -> Plan:
        """Return the plan for the round."""
        b, arms, safe, e_0, eye = self.rule.thresholds, *self.offer(0.0, 0.0), self.e_0, np.eye(self.task.dim)
        if self.exhausted:
            return self.as_plan(arms, safe, np.full(1, np.nan), SAFE, reason=BEYOND)
        # Λ^⊥ = I + P(Λ−I)P and Σ a^⊥(u − (aᵀe₀)c) = P(Σ au − c(Λ−I)e₀) follow from the regression on a
        P, seen = eye - np.outer(e_0, e_0), self.model.gram - eye
        gram = eye + P @ seen @ P
        rest_inv, log_det = np.linalg.inv(gram), np.linalg.slogdet(gram)[1]
        mu = rest_inv @ (P @ (self.model.sums[1] - self._per_e_0 * seen @ e_0))
        C_rest = radius_now(self.radius, log_det, self.model.seen[0])
        across = arms - np.outer(arms @ e_0, e_0)
        beta_rest = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", across, rest_inv, across), 0.0))
        g = arms @ e_0 * self._per_e_0 + across @ mu - C_rest * beta_rest
        r_hat, _, beta = self.estimates(arms)
        f = r_hat + (1 + 2 * self.rule.norm_bound / (self.known_utility - b[0])) * self.C * beta
        f, g = np.append(f, safe @ f), np.append(g, self.known_utility)[None]  # the incumbent is the last choice
        choices, lam = best_policy(f, g, b, np.zeros(len(f)))
        return self.as_plan(arms, choices[:-1] + choices[-1] * safe, means(choices, g), SEARCH, lam)

    def settings(self) -> Settings:
        """Return the settings with the utility that it is told."""
        return super().settings() | {"known_utility": self.known_utility}


@register(
    name="safe-lucb",
    label="Safe-LUCB",
    summary="Safe-LUCB (Amani et al. 2019), from memory: seed rounds, then optimism without inflation",
    kind="bandit",
    colour="#E69F00",
    arguments=_determinant,
)
class SafeLUCB(BanditAgent):
    """Safe-LUCB of Amani, Alizadeh and Thrampoulidis 2019 in this setting: T' = K^(2/3) seed rounds, and then

        argmax E[θ̂_rᵀa + C‖a‖_{Λ⁻¹}] s.t. E[θ̂_uᵀa − C‖a‖_{Λ⁻¹}] ≥ b: optimism is not inflated.

    Differs from the paper: the utility has a parameter and observations of its own; safety is of policies, not of
    actions. A seed round plays the incumbent, but with probability ε = ξ/(b + ξ + B) a uniform action, which is safe
    since every action has utility ≥ −B. Its source is "search", its bound (1 − ε)(b + ξ) − εB.
    """

    def make_rule(self) -> Rule:
        """Return the constants, with the number of seed rounds and the incumbent's share in them."""
        self.require_one_limit()
        K, xi, b, B = as_rounds(self.num_rounds), *self.task.slacks, *self.task.thresholds, self.task.norm_bound
        kept = 0.0 if b <= -B else payer_share(-B, b + xi, b)
        seeds = math.ceil(K ** (2 / 3))
        return Rule(self.task.thresholds, B, float(xi), optimism=1.0, num_seeds=seeds, seed_kept=float(kept))


@register(
    name="roful",
    label="ROFUL",
    summary="ROFUL (Hutchinson et al. 2024), from summaries: optimistic, then mixed with the incumbent",
    kind="bandit",
    colour="#000000",
    arguments=_determinant,
)
class ROFUL(BanditAgent):
    """ROFUL of Hutchinson, Turan and Alizadeh 2024 in this setting: optimistic in reward and constraint, then mixed
    with the incumbent until the pessimistic check passes:

        π̃ ∈ argmax E[θ̂_rᵀa + C‖a‖_{Λ⁻¹}] s.t. E[θ̂_uᵀa + C‖a‖_{Λ⁻¹}] ≥ b;   γπ̃ + (1 − γ)π_sf with the largest γ such
        that γ E_π̃[θ̂_uᵀa − C‖a‖_{Λ⁻¹}] + (1 − γ)(b + ξ) ≥ b.

    Differs from the paper: policies instead of actions, and the incumbent, of utility ≥ b + ξ, instead of the origin.
    """

    def make_rule(self) -> Rule:
        """Return the constants; `shrink` is the mixture with the incumbent."""
        self.require_one_limit()
        b, xi, B = self.task.thresholds, float(self.task.slacks[0]), self.task.norm_bound
        return Rule(b, B, xi, optimism=1.0, pessimism=-1.0, shrink=True)


@register(
    name="oful",
    label="OFUL",
    summary="OFUL (Abbasi-Yadkori et al. 2011): has no constraint, violates",
    kind="bandit",
    colour="#D55E00",
    arguments=_determinant,
)
class OFUL(BanditAgent):
    """OFUL of Abbasi-Yadkori, Pál and Szepesvári 2011: argmax θ̂_rᵀa + C‖a‖_{Λ⁻¹}, without a constraint.

    It violates wherever the constraint binds: the reference that shows what safety costs.
    """

    def make_rule(self) -> Rule:
        """Return that there is no constraint."""
        return Rule(np.full(self.task.num_constraints, -np.inf), math.nan, math.inf, optimism=1.0)


@register(
    name="bandit-incumbent",
    label="Incumbent",
    summary="the incumbent of a bandit in every round",
    kind="bandit",
    colour="#6B6B6B",
)
class Incumbent(BanditAgent):
    """Deploys the incumbent in every round: what a learner must beat."""

    def __init__(self, problem: ProblemLike) -> None:
        super().__init__(problem, radius=0.0, replan=Doubling(1e9))

    def make_rule(self) -> Rule:
        """Return a slack of −inf, which means: always."""
        return Rule(self.task.thresholds, math.nan, -math.inf, optimism=0.0)

    def settings(self) -> Settings:
        """Return its name."""
        return {"agent": "incumbent", "level": self.level}

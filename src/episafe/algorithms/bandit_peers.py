"""The algorithms that OPLB-SP is compared with: OPLB, Safe-LUCB, ROFUL, OFUL, and the incumbent in every round.

They deploy policies, where most of the papers play single actions, and share the radius of `bandit_agent`. OPLB and
ROFUL were compared with their papers. The texts on OFUL and Safe-LUCB were not available: OFUL is as the papers on OPLB
and ROFUL use it, Safe-LUCB as summaries describe it, and its rules were not checked.
"""

import math

import numpy as np

from episafe.algorithms.bandit_agent import BEYOND, NO_POLICY, BanditAgent
from episafe.core.agent import EVERY, Doubling, Replanning, register
from episafe.core.checks import TOLERANCE, as_number
from episafe.core.errors import InvalidProblem
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Plan, Settings
from episafe.kernels.bandit_sets import best_policy, means
from episafe.kernels.mixture import payer_share
from episafe.problems.bandit import Ellipsoid


def _determinant(problem: ProblemLike, num_episodes: int) -> dict[str, object]:
    return {"num_rounds": num_episodes, "radius": "determinant"}


@register(
    name="oplb", label="OPLB",
    summary="after Pacchiano et al. 2021: listed arms only; uses the incumbent's exact utility",
    kind="bandit", colour="#CC79A7",
    arguments=lambda bandit, K: _determinant(bandit, K) | {"known_utility": bandit.evaluate(bandit.task.incumbent)[1]},
    needs=lambda bandit: "" if isinstance(bandit.task.actions, np.ndarray) else "its arms are not listed or change",
)  # fmt: skip
class OPLB(BanditAgent):
    """After OPLB of Pacchiano, Ghavamzadeh, Bartlett and Jiang, AISTATS 2021, for arms that do not change.

    It knows the incumbent's utility u₀ and learns only what is orthogonal to its mean action x₀, e₀ = x₀/‖x₀‖:

        f(a) = θ̂_rᵀa + α_r C‖a‖_{Λ⁻¹},   g(a) = (aᵀe₀/‖x₀‖)u₀ + μ̂ᵀa^⊥ − C‖a^⊥‖_{(Λ^⊥)⁻¹},   a^⊥ = a − (aᵀe₀)e₀,
        π ∈ argmax E_π[f] s.t. E_π[g] ≥ b,   α_r = 1 + 2B/(u₀ − b),

    μ̂ is the regression of u − (aᵀe₀/‖x₀‖)u₀ on a^⊥. The incumbent is one more choice, of utility u₀: always feasible.
    This is Algorithm 1 with α_c = 1 and the α_r of Theorem 2, which has 1 for B. Differences: x₀ is the mean of a
    policy, and the bonus is the mean of the norms instead of the norm of the mean. This bonus is larger and makes the
    problem linear. Policies that pass are in the paper's safe set.

    Args:
        problem, num_rounds, delta, radius, replan, label: see `BanditAgent`.
        known_utility: u₀, exactly.
    """

    one_limit = True

    def __init__(
        self, problem: ProblemLike, num_rounds: int | None = None, delta: float = 0.05, *, known_utility: float,
        radius: str | float = "paper", replan: Replanning = EVERY, label: str = "",
    ) -> None:  # fmt: skip
        super().__init__(problem, num_rounds, delta, radius=radius, replan=replan, label=label)
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

    def decide(self) -> Plan:
        """Return the plan for the round."""
        b, arms, safe = self.task.thresholds, self.task.arms(0), self.task.safe(0)
        e_0, eye = self.e_0, np.eye(self.task.dim)
        if self.exhausted:
            return self.incumbent_plan(BEYOND, np.full(1, np.nan))
        # Λ^⊥ = I + P(Λ−I)P and Σ a^⊥(u − (aᵀe₀)c) = P(Σ au − c(Λ−I)e₀) follow from the regression on a
        P, seen = eye - np.outer(e_0, e_0), self.gram - eye
        gram = eye + P @ seen @ P
        rest_inv, log_det = np.linalg.inv(gram), np.linalg.slogdet(gram)[1]
        mu = rest_inv @ (P @ (self.sums[1] - self._per_e_0 * seen @ e_0))
        C_rest = self.radius.at(float(log_det), self.seen)
        across = arms - np.outer(arms @ e_0, e_0)
        beta_rest = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", across, rest_inv, across), 0.0))
        g = arms @ e_0 * self._per_e_0 + across @ mu - C_rest * beta_rest
        r_hat, _, beta = self.estimates(arms)
        f = r_hat + (1 + 2 * self.task.norm_bound / (self.known_utility - b[0])) * self.C * beta
        f, g = np.append(f, safe @ f), np.append(g, self.known_utility)[None]  # the incumbent is the last choice
        choices, lam = best_policy(f, g, b, np.eye(len(f))[np.argmax(g[0])])
        return self.as_plan(arms, choices[:-1] + choices[-1] * safe, means(choices, g), lam)

    def settings(self) -> Settings:
        """Return the settings with the known utility."""
        return super().settings() | {"known_utility": self.known_utility}


@register(
    name="safe-lucb", label="Safe-LUCB",
    summary="after summaries of Amani et al. 2019: rounds near the incumbent, then optimistic arms", kind="bandit",
    colour="#E69F00", arguments=_determinant,
)  # fmt: skip
class SafeLUCB(BanditAgent):
    """After Safe-LUCB of Amani, Alizadeh and Thrampoulidis 2019: T' = K^(2/3) seed rounds, and then

        argmax E[θ̂_rᵀa + C‖a‖_{Λ⁻¹}] s.t. E[θ̂_uᵀa − C‖a‖_{Λ⁻¹}] ≥ b, with the same C in both.

    Differences: the utility has a parameter and observations of its own, and policies are safe instead of actions. A
    seed round plays the incumbent, but a uniform action with probability ε = ξ/(b + ξ + B). This is safe because every
    action has utility ≥ −B. Its source is "search", its bound (1 − ε)(b + ξ) − εB.
    """

    one_limit = needs_rounds = True

    def decide(self) -> Plan:
        """Return a seed round or the optimistic policy."""
        K, (xi,), (b,), B = self.num_rounds or 1, self.task.slacks, self.task.thresholds, self.task.norm_bound
        if self.exhausted:
            return self.incumbent_plan(BEYOND)
        if self.seen < math.ceil(K ** (2 / 3)):  # no arm has a utility below −B, the incumbent's is b + ξ or more
            kept = 0.0 if b <= -B else payer_share(-B, b + xi, b)
            arms, safe = self._seeds()
            policy, bound = kept * safe + (1 - kept) / len(arms), (1 - kept) * -B + kept * (b + xi)
            reason = "the seed phase: the incumbent, with a safe share of every other action"
            return self.as_plan(arms, policy, np.array([bound]), math.nan, reason)
        arms, policy, bounds, lam = self.search(self.C, self.C, self.task.thresholds)
        if math.isnan(lam) or bounds[0] < b:
            return self.incumbent_plan(NO_POLICY)
        return self.as_plan(arms, policy, bounds, lam)

    def _seeds(self) -> tuple[Array, Array]:
        """Return the actions of seed rounds: all arms, or the incumbent's point and the ends of all axes."""
        arms, safe, actions = self.task.arms(self.round), self.task.safe(self.round), self.task.actions
        if not isinstance(actions, Ellipsoid):
            return arms, safe
        arms = np.concatenate([arms, actions.root.T, -actions.root.T])
        return arms, np.eye(1, len(arms))[0]


@register(
    name="roful", label="ROFUL",
    summary="after Hutchinson et al. 2024: an optimistic arm, mixed with the incumbent", kind="bandit",
    colour="#000000", arguments=_determinant,
)  # fmt: skip
class ROFUL(BanditAgent):
    """Mixes a policy that is optimistic about reward and utility with the incumbent; the mixture passes the check:

        π̃ ∈ argmax E[θ̂_rᵀa + C‖a‖_{Λ⁻¹}] s.t. E[θ̂_uᵀa + C‖a‖_{Λ⁻¹}] ≥ b;   γπ̃ + (1 − γ)π_sf with the largest γ such
        that γ E_π̃[θ̂_uᵀa − C‖a‖_{Λ⁻¹}] + (1 − γ)(b + ξ) ≥ b.

    After ROFUL of Hutchinson, Turan and Alizadeh, AISTATS 2024. Differences from Algorithm 1: it plays policies instead
    of actions, and mixes with the incumbent, of utility ≥ b + ξ, instead of the origin. It does not use the lower bound
    on γ that follows from norms alone (line 5).
    """

    one_limit = True

    def decide(self) -> Plan:
        """Return the optimistic policy, mixed with the incumbent."""
        (b,), (xi,) = self.task.thresholds, self.task.slacks
        if self.exhausted:
            return self.incumbent_plan(BEYOND)
        arms, policy, (bound,), lam = self.search(self.C, -self.C, self.task.thresholds)
        if math.isnan(lam):
            return self.incumbent_plan(NO_POLICY)
        if bound < b:
            _, safe = self.offer(self.C, -self.C, self.task.thresholds)
            kept = payer_share(bound, b + xi, b)  # of the incumbent, the least that passes the check
            policy, bound = (1 - kept) * policy + kept * safe, (1 - kept) * bound + kept * (b + xi)
        return self.as_plan(arms, policy, np.array([bound]), lam)


@register(
    name="oful", label="OFUL", summary="after Abbasi-Yadkori et al. 2011: ignores the limit", kind="bandit",
    colour="#D55E00", arguments=_determinant,
)  # fmt: skip
class OFUL(BanditAgent):
    """After OFUL of Abbasi-Yadkori, Pál and Szepesvári 2011: argmax θ̂_rᵀa + C‖a‖_{Λ⁻¹}, without a constraint.

    It violates the limit wherever the constraint binds. Its regret shows the cost of safety.
    """

    keeps_limits = False

    def decide(self) -> Plan:
        """Return the optimistic policy without a constraint."""
        if self.exhausted:
            return self.incumbent_plan(BEYOND)
        arms, policy, bounds, _ = self.search(self.C, self.C, np.full(self.task.num_constraints, -np.inf))
        return self.as_plan(arms, policy, bounds, 0.0)


@register(
    name="bandit-incumbent", label="Incumbent", summary="the incumbent in every round", kind="bandit",
    colour="#6B6B6B",
)  # fmt: skip
class Incumbent(BanditAgent):
    """Deploys the incumbent in every round: the baseline for agents."""

    def __init__(self, problem: ProblemLike) -> None:
        super().__init__(problem, radius=0.0, replan=Doubling(1e9))

    def decide(self) -> Plan:
        """Return the plan that deploys the incumbent."""
        return self.incumbent_plan("nothing is learned")

    def settings(self) -> Settings:
        """Return its name."""
        return {"agent": "incumbent", "level": self.level}

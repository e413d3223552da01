"""OPLB of Pacchiano, Ghavamzadeh, Bartlett and Jiang 2021 and 2024, for finitely many arms."""

from typing import Any

import numpy as np

from episafe.agents.bandits.regression_learner import NO_RULE, RegressionLearner
from episafe.agents.base import Agent
from episafe.checks import TOLERANCE, as_number
from episafe.errors import InvalidProblem
from episafe.kernels.arm_mixtures import INFEASIBLE, envelope
from episafe.kernels.backward_pass import elliptical_bonus
from episafe.kernels.bandit_decision import BEYOND, NO_POLICY, REASONS
from episafe.kernels.bandit_regression import BanditRegression, estimates, radius_now
from episafe.kernels.mixing import mixed, nudged
from episafe.learning.planner import Every, Replanning
from episafe.problems.bandit_policy import BanditPlan, over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.types import Array


class OPLB(Agent):
    """Knows the incumbent's utility u₀ and learns only what is orthogonal to its mean action x₀, e₀ = x₀/‖x₀‖:

        f(a) = θ̂_rᵀa + α_r C‖a‖_{Λ⁻¹},   g(a) = (aᵀe₀/‖x₀‖)u₀ + μ̂ᵀa^⊥ − C^⊥‖a^⊥‖_{(Λ^⊥)⁻¹},   a^⊥ = a − (aᵀe₀)e₀,
        π ∈ argmax E_π[f] s.t. E_π[g] ≥ b,   α_r = 1 + 2B/(u₀ − b),

    with μ̂ regressed on a^⊥ from u − (aᵀe₀/‖x₀‖)u₀. The incumbent is one more choice, of utility u₀: always
    feasible, so there is no incumbent phase.

    [L] From memory of the papers, whose texts were not at hand. Differs from them: the bonus is the mean of the norms,
    not the norm of the mean, which bounds it from above and keeps the problem linear; x₀ is the mean of a policy. On
    balls and ellipsoids f and g have different norms and no exact method is known to us: refused.

    Args:
        known_utility: u₀, exactly.
    """

    name, certified, problem = "oplb", True, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self,
        task: BanditTask,
        num_rounds: int | None = None,
        delta: float = 0.05,
        *,
        known_utility: float,
        radius: Any = "paper",
        replan: Replanning = Every(),
        label: str = "",
    ) -> None:
        super().__init__(task, replan, label)
        task.require_one(self.name)
        said = {"told_besides": "the incumbent's exact utility", "level_assumes": "the utility it is told is exact"}
        self.learner = RegressionLearner(task, NO_RULE, num_rounds, delta, radius, **said)
        self.level = self.learner.level
        if not task.is_finite or task.changes:
            raise InvalidProblem(
                "OPLB is for finitely many arms that do not change: no exact method is known elsewhere"
            )
        x_0 = task.incumbent(0) @ task.arms(0)
        if np.linalg.norm(x_0) < 1e-6:
            raise InvalidProblem(
                "the incumbent's mean action is 0, and says nothing of a direction: OPLB cannot use it"
            )
        self.known_utility = as_number("known_utility", known_utility)
        self.e_0, self._per_e_0 = x_0 / np.linalg.norm(x_0), self.known_utility / np.linalg.norm(x_0)
        known_slack = self.known_utility - task.threshold
        if not known_slack > 0 or (task.slack is not None and known_slack < task.slack - TOLERANCE):
            raise InvalidProblem(f"known_utility {known_utility} is below threshold + slack: give the exact utility")

    def settings(self) -> dict[str, str | int | float]:
        """Those of its regression, and the utility that it is told."""
        return super().settings() | {"known_utility": self.known_utility}

    def _rest(self) -> BanditRegression:
        """The regression on a^⊥ = Pa from that on a: Λ^⊥ = I + P(Λ−I)P, Σ a^⊥(u − (aᵀe₀)c) = P(Σ au − c(Λ−I)e₀)."""
        P = np.eye(self.task.dim) - np.outer(self.e_0, self.e_0)
        model = self.learner.model
        seen = model.gram - np.eye(self.task.dim)
        gram = np.eye(self.task.dim) + P @ seen @ P
        sums = np.array([np.zeros(self.task.dim), P @ (model.sums[1] - self._per_e_0 * seen @ self.e_0)])
        return BanditRegression(gram, np.linalg.inv(gram), sums, np.array([np.linalg.slogdet(gram)[1]]), model.seen)

    def _propose(self) -> Any:
        model, radius, arms = self.learner.model, self.learner.radius, self.task.arms(self.round)
        if self.num_learned >= radius.limit:
            return self._incumbent(REASONS[BEYOND])
        along = arms @ self.e_0
        across = arms - np.outer(along, self.e_0)
        rest = self._rest()
        g = along * self._per_e_0 + across @ estimates(rest)[1] - _widths(radius, rest, across)
        optimism = 1 + 2 * self.task.norm_bound / (self.known_utility - self.task.threshold)
        f = arms @ estimates(model)[0] + optimism * _widths(radius, model, arms)
        # the incumbent is one more choice, after the arms: its utility is known, so it needs no bonus
        safe = self.task.incumbent(self.round)
        f, g = np.append(f, safe @ f), np.append(g, self.known_utility)
        low, high, share, lam = envelope(f, g, self.task.threshold, np.empty(len(f), dtype=np.int64))
        share = np.nan if high == INFEASIBLE else nudged(g[low], g[high], share, self.task.threshold)
        if np.isnan(share):
            return self._incumbent(REASONS[NO_POLICY])
        choices = np.zeros(len(f))
        choices[low] = 1 - share
        choices[high] += share
        mixture = over_arms(arms, choices[:-1] + choices[-1] * safe)
        bound = mixed(g[low], g[high], share)
        return BanditPlan(mixture.atoms, mixture.probabilities, "search", lam, bound, self.level)


def _widths(radius: Any, model: BanditRegression, actions: Array) -> Array:
    """C‖a‖_{Λ⁻¹} of each action, (n,)."""
    return float(radius_now(radius, model.log_det[0], model.seen[0])) * elliptical_bonus(actions, model.gram_inv)

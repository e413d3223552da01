"""A linear bandit with its parameters: what the world is, and the exact answers that learners are compared with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE, as_finite, as_number
from episafe.errors import Infeasible, InvalidProblem
from episafe.kernels import arm_mixtures, ellipsoid
from episafe.kernels.arm_mixtures import best_over_arms
from episafe.problems.bandit_actions import as_actions
from episafe.problems.bandit_policy import Mixture, as_mixture, over_arms
from episafe.problems.bandit_task import BanditTask
from episafe.types import Amount, Array, amount, amounts


class LinearBandit:
    """Reward θ_rᵀa and utility θ_uᵀa of an action a, both seen with noise; policies must have expected utility ≥ b.

    Several constraints are lists: theta_u, threshold and slack of one each. They need finitely many arms.

    Args:
        theta_r, theta_u: (d,), of norm at most `norm_bound`; theta_u (m, d) of several constraints.
        actions: arms (n, d), a Ball, an Ellipsoid, or a function k ↦ arms of round k (from 0).
        threshold: b; (m,) of several.
        safe_policy: the incumbent: a distribution (n,), a point (d,) of a ball or ellipsoid, or a function of k.
        noise: R of the sub-Gaussian noise; it is drawn as Gaussian with standard deviation R.
        norm_bound: B.
        slack: ξ; None for the incumbent's true slack, where the arms do not change.
        names: what people read of each constraint.
        clicks: whether the reward seen is 0 or 1 with mean θ_rᵀa, as a click is (then R ≥ 1/2).
        origin: where the problem comes from, for records.

    Example:
        >>> arms = [[1.0, 0.0], [0.0, 1.0]]
        >>> bandit = LinearBandit([0.9, 0.2], [0.0, 0.8], arms, 0.4, [0.0, 1.0], noise=0.1)
        >>> [round(float(p), 3) for p in bandit.optimal_policy().probabilities], round(bandit.optimal_value(), 3)
        ([0.5, 0.5], 0.55)
    """

    def __init__(
        self,
        theta_r: Any,
        theta_u: Any,
        actions: Any,
        threshold: Any,
        safe_policy: Any,
        *,
        noise: float = 0.5,
        norm_bound: float = 1.0,
        slack: Any = None,
        names: Sequence[str] = (),
        clicks: bool = False,
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        self.theta_r = as_finite("theta_r", theta_r, (None,))
        if len(self.theta_r) == 0:
            raise InvalidProblem("theta_r has dimension 0: give at least one feature")
        dim, bound, several = len(self.theta_r), as_number("norm_bound", norm_bound), np.shape(threshold)
        theta_u = as_finite("theta_u", theta_u, (*several, dim))
        self.theta_u = theta_u[0] if several == (1,) else theta_u
        _require_norm("theta_r", self.theta_r[None], bound)
        _require_norm("theta_u", np.atleast_2d(theta_u), bound)
        actions = as_actions(actions, dim)
        if slack is None and callable(actions):
            raise InvalidProblem("slack must be given where the arms change: it must hold in every round")
        told = (noise, bound, names)
        self.task = BanditTask(dim, actions, threshold, safe_policy, slack, *told)
        if not callable(actions):
            true = self._true_slacks(0, "the incumbent")
            if slack is None:
                self.task = BanditTask(dim, actions, threshold, safe_policy, true if several else true[0], *told)
        if clicks and self.task.noise < 0.5:
            raise InvalidProblem(f"clicks are 1/2-sub-Gaussian: noise must be >= 0.5, got {self.task.noise}")
        if clicks and not self.task.is_finite:
            raise InvalidProblem("clicks need arms: a ball or ellipsoid also holds −a, whose mean reward is negative")
        self.clicks = clicks
        if clicks and not callable(actions):
            self._require_click_rates(0, "actions")
        self.origin = dict(origin or {})

    def evaluate(self, policy: Any) -> tuple[float, Amount]:
        """Exact expected reward and utility of a policy, or of one action; utilities (m,) of several constraints."""
        mean = as_mixture(policy, self.task.dim).mean()
        return float(self.theta_r @ mean), amount([float(one @ mean) for one in np.atleast_2d(self.theta_u)])

    def safe_policy(self, round: int = 0) -> Mixture:
        """The incumbent of a round as a mixture."""
        return self.task.incumbent_policy(round)

    def optimal_policy(self, round: int = 0) -> Mixture:
        """The policy of largest expected reward among the safe ones: at most m + 1 atoms, the incumbent's as one."""
        if self.task.num_constraints > 1:
            return self._optimum_of_several(round)
        threshold = self.task.threshold
        if self.task.is_finite:
            arms = self.task.arms(round)
            probabilities = arm_mixtures.solve(arms @ self.theta_r, arms @ self.theta_u, threshold)
            if probabilities is None:
                raise Infeasible(f"no arm of round {round} has utility >= {threshold}: lower the threshold")
            return over_arms(arms, probabilities)
        frame = ellipsoid.frame(self.task.convex_set.root, np.eye(self.task.dim))
        found = ellipsoid.solve(self.theta_r, self.theta_u, frame, (0.0, 0.0), threshold)
        return Mixture(found.atoms, np.array([1 - found.share, found.share]))

    def _optimum_of_several(self, round: int) -> Mixture:
        arms, policy = self.task.arms(round), np.empty(len(self.task.arms(round)))
        signals = arms @ self.theta_r, np.ascontiguousarray((arms @ self.theta_u.T).T)
        lam = best_over_arms(*signals, self.task.thresholds, self.task.incumbent(round), 0, policy)
        if np.isnan(lam):
            raise Infeasible(f"the incumbent of round {round} does not keep every threshold: lower those it breaks")
        return over_arms(arms, policy)

    def optimal_value(self, round: int = 0) -> float:
        """Expected reward of the optimal safe policy."""
        return self.evaluate(self.optimal_policy(round))[0]

    def check_round(self, round: int) -> None:
        """Refuse a round whose incumbent lacks the slack that the learner is told of, or whose clicks are none."""
        self._true_slacks(round, f"the incumbent of round {round}")
        if self.clicks:
            self._require_click_rates(round, f"actions({round})")

    def _true_slacks(self, round: int, who: str) -> list[float]:
        """Of the incumbent, one a constraint; refused where one is not positive, or below what the task says."""
        utilities = amounts(self.evaluate(self.safe_policy(round))[1]).tolist()
        return [_true_slack(one, u, who) for one, u in zip(self.task.constraints, utilities, strict=True)]

    def _require_click_rates(self, round: int, name: str) -> None:
        rates = self.task.arms(round) @ self.theta_r
        outside = np.flatnonzero((rates < -TOLERANCE) | (rates > 1 + TOLERANCE))
        if len(outside):
            arm = int(outside[0])
            raise InvalidProblem(
                f"{name}[{arm}] has mean reward {rates[arm]:.12g}, outside [0, 1], and a click is 0 or 1: change "
                "theta_r or the arm, or pass clicks=False"
            )


def _require_norm(name: str, thetas: Array, bound: float) -> None:
    """Refuse parameters (n, d) of a norm above the bound."""
    for theta in thetas:
        if np.linalg.norm(theta) > bound + TOLERANCE:
            raise InvalidProblem(
                f"{name} has norm {np.linalg.norm(theta):.12g} > norm_bound {bound:g}: raise norm_bound, "
                "or the confidence bound does not hold"
            )


def _true_slack(one: Any, utility: float, who: str) -> float:
    true: float = utility - one.threshold
    if true <= TOLERANCE:
        raise Infeasible(
            f"{who} has utility {utility:.12g}{one.of}, not above the threshold {one.threshold:.12g}: lower the "
            "threshold, or give an incumbent that is strictly safe"
        )
    if one.slack is not None and one.slack > true + TOLERANCE:
        raise InvalidProblem(
            f"slack {one.slack:.12g}{one.of} exceeds the true one of {who}, {true:.12g}: pass slack={true:.12g}"
        )
    return true

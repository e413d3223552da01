"""OPLB-SP, Algorithm 1 of the paper: optimistic-pessimistic linear bandit with a safe policy."""

import math
from typing import Any, Literal

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent
from episafe.checks import as_number
from episafe.kernels.bandit_decision import Rule
from episafe.kernels.bandit_regression import radius_now
from episafe.learning.bandit_radius import radius as radius_of
from episafe.learning.planner import Every, Replanning
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask


class OPLBSP(Agent):
    """Deploys the incumbent while C_u β_sf > ξ/2, and then the policy

        π ∈ argmax E_π[θ̂_rᵀa + C_r‖a‖_{Λ⁻¹}]   s.t.   E_π[θ̂_uᵀa − C_u‖a‖_{Λ⁻¹}] ≥ b,   C_r = C_u(1 + 2B/ξ).

    With several constraints, on finitely many arms, the policy keeps all of them, and ξ is the least slack.
    At the level "theorem", the default, every deployed policy is safe with probability 1 − δ, all rounds together.

    Args:
        task: what the learner is told.
        num_rounds: K, for the paper's radius.
        delta: δ.
        radius: "paper", C_u = B + R√(d ln(4K/δ)); "determinant" or "anytime", which need no K (see
            `episafe.learning.bandit_radius`); or a number, C_u set by hand: then the level is "heuristic".
        replan: es.Every(), or es.Doubling(growth) to plan again only when ln det Λ grew by more than that.
        slack: "told" by the task, or "estimated": ξ is then replaced by û_sf − C_u β_sf − b, which is at most ξ, and
            the task's slack is not read: it may be None.
        optimism: C_r/C_u; None for 1 + 2B/ξ. It touches regret, never safety.

    Example:
        >>> import episafe as es
        >>> bandit = es.bandits.make("finite", seed=0)
        >>> agent = es.bandits.OPLBSP(bandit.task, num_rounds=1000, delta=0.05)
        >>> agent.plan().source, agent.plan().level
        ('safe', 'theorem')
    """

    name, certified, problem = "oplbsp", True, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self,
        task: BanditTask,
        num_rounds: int | None = None,
        delta: float = 0.05,
        *,
        radius: Any = "paper",
        replan: Replanning = Every(),
        slack: Literal["told", "estimated"] = "told",
        optimism: float | None = None,
        label: str = "",
    ) -> None:
        if slack not in ("told", "estimated"):
            raise ValueError(f'slack must be "told" or "estimated", got {slack!r}: the task holds the number')
        if optimism is not None and as_number("optimism", optimism) < 0:
            raise ValueError(f"optimism must be a finite number >= 0, got {optimism!r}")
        super().__init__(task, replan, label)
        self.slack, self.optimism = slack, optimism
        xi = min(task.told_slacks(self.name, 'or pass slack="estimated"')) if slack == "told" else math.nan
        scale, said = (math.nan, "1 + 2B/ξ") if optimism is None else (float(optimism), float(optimism))
        rule = Rule(task.thresholds, task.norm_bound, xi, optimism=scale, trigger=True)
        self.learner = RegressionLearner(task, rule, num_rounds, delta, radius, optimism=said, slack_is=slack)
        self.level = self.learner.level
        lag = 0.0 if task.changes else getattr(replan, "growth", 0.0)
        if num_rounds is not None and self.level == "theorem" and slack == "told":
            self.learner.said["deployment_bound"] = deployment_bound(task, num_rounds, delta, lag)

    def _propose(self) -> BanditPlan:
        return self.learner.decide(self.round)


def deployment_bound(task: BanditTask, num_rounds: int, delta: float, growth: float = 0.0) -> float:
    """The theorem "Logarithmic |U| bound" with its constants: 32 d C_u² ξ⁻² ln(2K/δ), C_u that of the paper.

    Planning again only when ln det Λ grew by `growth` lets β lag by at most e^(growth/2), and the bound by e^growth.
    """
    C_u = radius_now(radius_of("paper", task, num_rounds, delta)[0], 0.0, 0)
    bound = 32 * task.dim * C_u**2 / min(task.told_slacks("the bound")) ** 2 * math.log(2 * num_rounds / delta)
    return float(bound) * math.exp(growth)

"""ROFUL of Hutchinson, Turan and Alizadeh 2024, in our setting."""

from typing import Any, ClassVar

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent, Problem
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask


class ROFUL(Agent):
    """Optimistic in reward and constraint, then drawn back to the incumbent until the pessimistic check passes:

        π̃ ∈ argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa + C‖a‖] ≥ b;   γπ̃ + (1 − γ)π_sf with the largest γ such that
        γ E_π̃[θ̂_uᵀa − C‖a‖] + (1 − γ)(b + ξ) ≥ b.

    [L] The idea is from summaries of the paper, whose text was not at hand. Differs from it: policies in place of
    actions, and the incumbent in place of the origin, whose utility is known to be at least b + ξ.
    """

    name: ClassVar[str] = "roful"
    certified: ClassVar[bool] = True
    problem: ClassVar[Problem] = "bandit"
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
        label: str = "",
    ) -> None:
        super().__init__(task, replan)
        self.label = label or self.name
        xi = task.told_slack(self.name)
        rule = Rule(task.threshold, task.norm_bound, xi, optimism=1.0, pessimism=-1.0, shrink=True)
        assumes = "the incumbent has utility b + ξ or more, ξ as told"
        self.learner = RegressionLearner(task, rule, num_rounds, delta, radius, level_assumes=assumes)
        self.level = self.learner.level = self.learner.proved

    def _propose(self) -> BanditPlan:
        return self.learner.decide(self.round)

    def arguments(self) -> dict[str, Any]:
        """Rounds, δ, radius, replanning rule and label."""
        return super().arguments() | {"label": self.label}

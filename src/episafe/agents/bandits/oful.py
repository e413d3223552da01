"""OFUL of Abbasi-Yadkori, Pál and Szepesvári 2011: the reference without a constraint."""

import math
from typing import Any, ClassVar

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent, Problem
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask


class OFUL(Agent):
    """Plays argmax θ̂_rᵀa + C‖a‖_{Λ⁻¹} and knows nothing of utilities. It violates wherever the constraint binds."""

    name: ClassVar[str] = "oful"
    certified: ClassVar[bool] = False
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
        rule = Rule(math.nan, math.nan, math.inf, optimism=1.0, constrained=False)
        self.learner = RegressionLearner(task, rule, num_rounds, delta, radius)

    def _propose(self) -> BanditPlan:
        return self.learner.decide(self.round)

    def arguments(self) -> dict[str, Any]:
        """Rounds, δ, radius, replanning rule and label."""
        return super().arguments() | {"label": self.label}

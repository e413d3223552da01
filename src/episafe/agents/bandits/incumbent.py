"""The incumbent for ever: what a learner must beat."""

import math
from typing import Any, ClassVar

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent, Problem
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Doubling
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask


class Incumbent(Agent):
    """Deploys the incumbent in every round."""

    name: ClassVar[str] = "incumbent"
    certified: ClassVar[bool] = True
    problem: ClassVar[Problem] = "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: BanditTask) -> None:
        super().__init__(task, Doubling(math.inf))
        self.learner = RegressionLearner(task, Rule(math.nan, math.nan, -math.inf), None, 0.05, 0.0)

    def _propose(self) -> BanditPlan:
        return self.learner.decide(self.round)

    def settings(self) -> dict[str, str | int | float]:
        """Its name; without a check there is no level."""
        return {"agent": self.label, "level": ""}

    def arguments(self) -> dict[str, Any]:
        """None."""
        return {}

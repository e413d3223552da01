"""The incumbent for ever: what a learner must beat."""

import math
from typing import ClassVar

from episafe.agents.bandits.rule_agent import RuleAgent
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Doubling
from episafe.problems.bandit_task import BanditTask


class Incumbent(RuleAgent):
    """Deploys the incumbent in every round."""

    name: ClassVar[str] = "incumbent"

    def __init__(self, task: BanditTask) -> None:
        super().__init__(task, Rule(math.nan, math.nan, -math.inf), radius=0.0, replan=Doubling(math.inf))

    def settings(self) -> dict[str, str | int | float]:
        """Its name; without a check there is no level."""
        return {"agent": self.label, "level": ""}

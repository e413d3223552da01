"""The incumbent for ever: what a learner must beat."""

import math
from typing import ClassVar

from episafe.bandits.agents.engine import Rule
from episafe.bandits.agents.rule_agent import RuleAgent
from episafe.bandits.task import BanditTask
from episafe.learning.replanning import Doubling


class Incumbent(RuleAgent):
    """Deploys the incumbent in every round."""

    name: ClassVar[str] = "incumbent"

    def __init__(self, task: BanditTask) -> None:
        super().__init__(task, Rule(math.nan, math.nan, -math.inf), radius=0.0, replan=Doubling(math.inf))

    def settings(self) -> dict[str, str | int | float]:
        """Its name; without a check there is no level."""
        return {"agent": self.label, "level": ""}

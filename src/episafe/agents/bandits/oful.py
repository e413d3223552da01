"""OFUL of Abbasi-Yadkori, Pál and Szepesvári 2011: the reference without a constraint."""

import math
from typing import Any, ClassVar

from episafe.agents.bandits.rule_agent import RuleAgent
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_task import BanditTask


class OFUL(RuleAgent):
    """Plays argmax θ̂_rᵀa + C‖a‖_{Λ⁻¹} and knows nothing of utilities. It violates wherever the constraint binds."""

    name: ClassVar[str] = "oful"
    certified: ClassVar[bool] = False

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
        rule = Rule(math.nan, math.nan, math.inf, optimism=1.0, constrained=False)
        super().__init__(task, rule, num_rounds=num_rounds, delta=delta, radius=radius, replan=replan, label=label)

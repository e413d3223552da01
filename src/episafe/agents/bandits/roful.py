"""ROFUL of Hutchinson, Turan and Alizadeh 2024, in our setting."""

from typing import Any, ClassVar

from episafe.agents.bandits.base import refuse_what_is_no_task
from episafe.agents.bandits.rule_agent import RuleAgent
from episafe.kernels.bandit_decision import Rule
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_task import BanditTask


class ROFUL(RuleAgent):
    """Optimistic in reward and constraint, then drawn back to the incumbent until the pessimistic check passes:

        π̃ ∈ argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa + C‖a‖] ≥ b;   γπ̃ + (1 − γ)π_sf with the largest γ such that
        γ E_π̃[θ̂_uᵀa − C‖a‖] + (1 − γ)(b + ξ) ≥ b.

    [L] The idea is from summaries of the paper, whose text was not at hand. Differs from it: policies in place of
    actions, and the incumbent in place of the origin, whose utility is known to be at least b + ξ.
    """

    name: ClassVar[str] = "roful"
    assumes: ClassVar[str] = "the incumbent has utility b + ξ or more, ξ as told"

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
        refuse_what_is_no_task(task)
        xi = task.told_slack(self.name)
        rule = Rule(task.threshold, task.norm_bound, xi, optimism=1.0, pessimism=-1.0, shrink=True)
        super().__init__(task, rule, num_rounds=num_rounds, delta=delta, radius=radius, replan=replan, label=label)

"""Safe-LUCB of Amani, Alizadeh and Thrampoulidis 2019, in our setting."""

import math
from typing import Any, ClassVar

from episafe.agents.bandits.base import refuse_what_is_no_task
from episafe.agents.bandits.rule_agent import RuleAgent
from episafe.kernels.bandit_decision import Rule, nudged
from episafe.learning.bandit_radius import as_rounds
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_task import BanditTask


class SafeLUCB(RuleAgent):
    """T' = K^(2/3) seed rounds, then argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa − C‖a‖] ≥ b: optimism is not inflated.

    [L] The two phases and T' = K^(2/3), for an optimum on the boundary, are from memory of the paper, whose text was
    not at hand. Differs from it: the utility has a parameter and observations of its own (there it is inferred from the
    reward); safety is of policies, not of actions; and a seed round plays the incumbent but with probability
    ε = ξ/(b + ξ + B) any action alike, which is safe since every action has utility ≥ −B. That policy is not the
    incumbent: its source is "search", its bound (1 − ε)(b + ξ) − εB.
    """

    name: ClassVar[str] = "safe-lucb"
    assumes: ClassVar[str] = "the incumbent has utility b + ξ or more, ξ as told"

    def __init__(
        self,
        task: BanditTask,
        num_rounds: int,
        delta: float = 0.05,
        *,
        radius: Any = "paper",
        replan: Replanning = Every(),
        label: str = "",
    ) -> None:
        refuse_what_is_no_task(task)
        num_rounds = as_rounds(num_rounds)
        b, xi, B = task.threshold, task.told_slack(self.name), task.norm_bound
        share = min(1.0, xi / (b + xi + B)) if b + xi + B > 0 else 1.0
        kept = float(nudged(-B, b + xi, 1.0 - share, b))
        rule = Rule(b, B, xi, optimism=1.0, num_seeds=math.ceil(num_rounds ** (2 / 3)), seed_kept=kept)
        super().__init__(task, rule, num_rounds=num_rounds, delta=delta, radius=radius, replan=replan, label=label)

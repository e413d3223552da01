"""Safe-LUCB of Amani, Alizadeh and Thrampoulidis 2019, in our setting."""

import math
from typing import Any, ClassVar

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent, Problem
from episafe.kernels.bandit_decision import Rule
from episafe.kernels.mixing import nudged
from episafe.learning.bandit_radius import as_rounds
from episafe.learning.replanning import Every, Replanning
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask


class SafeLUCB(Agent):
    """T' = K^(2/3) seed rounds, then argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa − C‖a‖] ≥ b: optimism is not inflated.

    [L] The two phases and T' = K^(2/3), for an optimum on the boundary, are from memory of the paper, whose text was
    not at hand. Differs from it: the utility has a parameter and observations of its own (there it is inferred from the
    reward); safety is of policies, not of actions; and a seed round plays the incumbent but with probability
    ε = ξ/(b + ξ + B) any action alike, which is safe since every action has utility ≥ −B. That policy is not the
    incumbent: its source is "search", its bound (1 − ε)(b + ξ) − εB.
    """

    name: ClassVar[str] = "safe-lucb"
    certified: ClassVar[bool] = True
    problem: ClassVar[Problem] = "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

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
        super().__init__(task, replan)
        self.label = label or self.name
        num_rounds = as_rounds(num_rounds)
        b, xi, B = task.threshold, task.told_slack(self.name), task.norm_bound
        share = min(1.0, xi / (b + xi + B)) if b + xi + B > 0 else 1.0
        kept = float(nudged(-B, b + xi, 1.0 - share, b))
        rule = Rule(b, B, xi, optimism=1.0, num_seeds=math.ceil(num_rounds ** (2 / 3)), seed_kept=kept)
        assumes = "the incumbent has utility b + ξ or more, ξ as told"
        self.learner = RegressionLearner(task, rule, num_rounds, delta, radius, level_assumes=assumes)
        self.level = self.learner.level = self.learner.proved

    def _propose(self) -> BanditPlan:
        return self.learner.decide(self.round)

    def arguments(self) -> dict[str, Any]:
        """Rounds, δ, radius, replanning rule and label."""
        return super().arguments() | {"label": self.label}

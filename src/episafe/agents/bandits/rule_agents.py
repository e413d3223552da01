"""The peers of OPLB-SP that decide by a `Rule`: Safe-LUCB, ROFUL, OFUL, and the incumbent for ever."""

import math
from typing import Any

from episafe.agents.bandits.regression_learner import RegressionLearner
from episafe.agents.base import Agent
from episafe.kernels.bandit_decision import Rule
from episafe.kernels.mixing import nudged
from episafe.learning.bandit_radius import as_rounds
from episafe.learning.planner import Doubling, Every, Replanning
from episafe.problems.bandit_policy import BanditPlan
from episafe.problems.bandit_task import BanditTask

ASSUMES = "the incumbent has utility b + ξ or more, ξ as told"


def _begin(
    self: Any,
    task: BanditTask,
    num_rounds: int | None = None,
    delta: float = 0.05,
    *,
    radius: Any = "paper",
    replan: Replanning = Every(),
    label: str = "",
) -> None:
    """The constructor of agents that differ in their `_rule` alone."""
    Agent.__init__(self, task, replan, label)
    said = {"level_assumes": ASSUMES} if self.certified else {}
    self.learner = RegressionLearner(task, self._rule(num_rounds), num_rounds, delta, radius, **said)
    self.level = self.learner.level


def decided(self: Any) -> BanditPlan:
    """What its learner decides for the round: `_propose` of agents that differ in their `Rule` alone."""
    return self.learner.decide(self.round)


class SafeLUCB(Agent):
    """Safe-LUCB of Amani, Alizadeh and Thrampoulidis 2019, in our setting: T' = K^(2/3) seed rounds, then

        argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa − C‖a‖] ≥ b: optimism is not inflated.

    [L] The two phases and T' = K^(2/3), for an optimum on the boundary, are from memory of the paper, whose text was
    not at hand. Differs from it: the utility has a parameter and observations of its own (there it is inferred from the
    reward); safety is of policies, not of actions; and a seed round plays the incumbent but with probability
    ε = ξ/(b + ξ + B) any action alike, which is safe since every action has utility ≥ −B. That policy is not the
    incumbent: its source is "search", its bound (1 − ε)(b + ξ) − εB.
    """

    name, certified, problem = "safe-lucb", True, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner
    __init__, _propose = _begin, decided

    def _rule(self, num_rounds: int | None) -> Rule:
        self.task.require_one(self.name)
        K, (xi,) = as_rounds(num_rounds), self.task.told_slacks(self.name)
        b, B = self.task.threshold, self.task.norm_bound
        share = min(1.0, xi / (b + xi + B)) if b + xi + B > 0 else 1.0
        kept = float(nudged(-B, b + xi, 1.0 - share, b))
        return Rule(self.task.thresholds, B, xi, optimism=1.0, num_seeds=math.ceil(K ** (2 / 3)), seed_kept=kept)


class ROFUL(Agent):
    """ROFUL of Hutchinson, Turan and Alizadeh 2024, in our setting: optimistic in reward and constraint, then drawn
    back to the incumbent until the pessimistic check passes:

        π̃ ∈ argmax E[θ̂_rᵀa + C‖a‖] s.t. E[θ̂_uᵀa + C‖a‖] ≥ b;   γπ̃ + (1 − γ)π_sf with the largest γ such that
        γ E_π̃[θ̂_uᵀa − C‖a‖] + (1 − γ)(b + ξ) ≥ b.

    [L] The idea is from summaries of the paper, whose text was not at hand. Differs from it: policies in place of
    actions, and the incumbent in place of the origin, whose utility is known to be at least b + ξ.
    """

    name, certified, problem = "roful", True, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner
    __init__, _propose = _begin, decided

    def _rule(self, num_rounds: int | None) -> Rule:
        self.task.require_one(self.name)
        (xi,), B = self.task.told_slacks(self.name), self.task.norm_bound
        return Rule(self.task.thresholds, B, xi, optimism=1.0, pessimism=-1.0, shrink=True)


class OFUL(Agent):
    """OFUL of Abbasi-Yadkori, Pál and Szepesvári 2011, the reference without a constraint: argmax θ̂_rᵀa + C‖a‖_{Λ⁻¹}.

    It knows nothing of utilities, and violates wherever the constraint binds.
    """

    name, certified, problem = "oful", False, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner
    __init__, _propose = _begin, decided

    def _rule(self, num_rounds: int | None) -> Rule:
        return Rule(self.task.thresholds, math.nan, math.inf, optimism=1.0, constrained=False)


class Incumbent(Agent):
    """Deploys the incumbent in every round: what a learner must beat."""

    name, certified, problem = "incumbent", True, "bandit"
    learner: RegressionLearner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner
    _propose = decided

    def __init__(self, task: BanditTask) -> None:
        super().__init__(task, Doubling(math.inf))
        self.learner = RegressionLearner(task, Rule(task.thresholds, math.nan, -math.inf), None, 0.05, 0.0)

    def settings(self) -> dict[str, str | int | float]:
        """Its name; without a check there is no level."""
        return {"agent": self.label, "level": ""}

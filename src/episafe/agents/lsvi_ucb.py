"""LSVI-UCB (Jin et al. 2020): optimistic least-squares value iteration, which knows of no constraint."""

import math
from typing import ClassVar

from episafe.agents.base import Agent
from episafe.learning.constants import Constants
from episafe.learning.planner import Aim, Every, Replanning, SoftmaxPlanner
from episafe.learning.transition_counts import Confidence
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Plan

GREEDY = 1e-10  # κ: actions whose values differ by more than some 1e-9 are told apart


class LSVIUCB(Agent):
    """The policy that is greedy for Q_h = r + clip(P̂_hV_{h+1} + β‖φ‖_{Λ_h⁻¹}, 0, H−h),  β = bonus·dH√ln(2dKH/δ).

    The paper proves regret Õ(√(d³H⁴K)) to the best policy of all, safe or not: a reference of what reward alone earns.
    Nothing is promised of the utility, and it violates where reward and utility are at odds. No incumbent.

    Jin, Yang, Wang and Jordan, COLT 2020. Their β has an absolute constant that is not told; `bonus` stands for it.
    Differs: the reward is that of the task, where it tells it, and values are clipped at the steps that are left, not
    at H; the planner is that of OPSE at λ = 0 and κ = 10⁻¹⁰, so that actions of equal value are taken alike.

    Args:
        task: what the learner is told.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again; information is ln det Λ_h.
    """

    name: ClassVar[str] = "lsvi-ucb"
    certified: ClassVar[bool] = False
    learner: SoftmaxPlanner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: AnyTask, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence = Confidence(num_episodes, delta, bonus)
        H, d = task.horizon, task.dim
        scale = bonus * d * H * math.sqrt(self.confidence.log_term(2 * d * H))
        constants = Constants(scale, 0.0, 0.0, 0.0, kappa=GREEDY, lam_max=0.0, num_halvings=0, C_theta=bonus)
        self.learner = SoftmaxPlanner(task, constants, pessimistic=False)

    def _propose(self) -> Plan:
        return Plan(self.learner.propose(Aim(-math.inf)).policy, "zero", 0.0, level=self.level)

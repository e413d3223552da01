"""Ghosh, Zhou and Shroff 2022, after the text: softmax policies for a multiplier that is stepped once an episode."""

import math
from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.learning.constants import Constants
from episafe.learning.planner import Every, Replanning, SoftmaxPlanner
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.regression import AnyRegression
from episafe.learning.transition_counts import Confidence
from episafe.problems.sampled_problem import AnyTask, known_slack
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Plan


class Ghosh2022(Agent):
    """The planner of OPSE, optimistic in reward and utility, at a multiplier λ_k that is stepped:

        π_k = softmax(α(Q^r + λ_k Q^u)),   λ_{k+1} = min{[λ_k + η(b − V^u(s₁))]₊, χ}
        α = K/H,   η = 10/(H√K),   χ = 2H/ξ,   β = bonus·dH√ln(4 ln A·dKH/δ)

    The paper proves regret and violation Õ(√(d³H⁴K)) *with cancellation* (soft). No incumbent.

    After Ghosh, Zhou and Shroff, NeurIPS 2022: α and η as the same authors have run it in 2024, the rest from memory.
    Its β has an absolute constant that is not told; `bonus` stands for it. Differs: reward and utility are those of the
    task, where it tells them; values are clipped at the steps that are left, and V^r has OPSE's entropy, −(H/K) ln π.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term, the temperature and the step.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again, which is when λ is stepped; information is ln det Λ_h.
    """

    name: ClassVar[str] = "ghosh2022"
    certified: ClassVar[bool] = False
    learner: SoftmaxPlanner

    def __init__(
        self, task: AnyTask, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence = Confidence(num_episodes, delta, bonus)
        H, A, d = task.horizon, max(task.num_actions, 2), task.dim
        scale = bonus * d * H * math.sqrt(self.confidence.log_term(4 * math.log(A) * d * H))
        kappa = H / num_episodes
        constants = Constants(scale, scale, 0.0, 0.0, kappa=kappa, lam_max=0.0, num_halvings=0, C_theta=bonus)
        self.learner = SoftmaxPlanner(task, constants, pessimistic=False)
        self._step, self._largest = 10 / (H * math.sqrt(num_episodes)), 2 * H / known_slack(task)
        self._lam = 0.0

    def _propose(self) -> Plan:
        lam = self._lam
        utility = self.learner.bound_now(lam)
        self._lam = min(max(0.0, lam + self._step * (self.task.threshold - utility)), self._largest)
        return Plan(self.learner.policy(lam), "search", lam, utility, self.level)

    def _learned_state(self, policies: PolicyArrays) -> State:
        return self.learner.state() | under("dual", {"lam": np.float64(self._lam)})

    def _restore_learned(self, saved: Saved) -> AnyRegression | None:
        self._lam = float(saved.under("dual").numbers("lam", (), least=0))
        return self._restore_learner(saved)

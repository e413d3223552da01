"""OptPrimalDual-CMDP, after Efroni et al. 2020: a step of the policy and a step of the multiplier an episode."""

import math
from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.primal_dual import DualCounts, clipped_pass
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, Radius
from episafe.problems.policy import TablePolicy, uniform_table
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, Plan


class OptPrimalDual(Agent):
    """Mirror ascent in the policy, from the uniform one, and a gradient step in the multiplier:

        π_{k+1}(a|s) ∝ π_k(a|s) exp(t(Q^r + λ_k Q^u)),      λ_{k+1} = [λ_k + ρ(b − V^u(s₁))/(H√K)]₊,
        t = √(2 ln A/K)/(H(1+ρ)),   ρ = H/ξ

    with Q and V of π_k on P̂, for r + Hβ and u + Hβ, β = Σ_{s'} γ, clipped above at the steps that are left.

    The paper proves regret and violation Õ(√K) *with cancellation* (soft). The last policy may be unsafe for ever. No
    incumbent, and no planning: a plan costs one evaluation.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189, by a public implementation of it; the radius γ (`Radius.efroni`)
    is from memory. Differs: reward and utility are those that the task tells; ρ is made of the incumbent's slack; P̂ is
    uniform where nothing was seen; the multiplier is stepped by the value of π_k, there by that of π_{k+1}.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term and the steps.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again, which is when policy and multiplier are stepped.
    """

    name: ClassVar[str] = "optprimaldual"
    certified: ClassVar[bool] = False
    learner: DualCounts

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.learner = DualCounts(task, Confidence(num_episodes, delta, bonus))
        H, _, A = task.reward.shape
        rho = H / known_slack(task)
        self._policy_step = math.sqrt(2 * math.log(A) / num_episodes) / (H * (1 + rho))
        self._step = rho / (H * math.sqrt(num_episodes))
        self._next: Array = uniform_table(*task.reward.shape)

    def _propose(self) -> Plan:
        task, known, lam, policy = self.task, self.learner, self.learner.lam, self._next
        bonus = task.horizon * known.box(Radius.efroni(task, known.confidence)).bonus
        signals, limits = np.stack([task.reward, task.utility]) + bonus, np.arange(task.horizon, 0, -1.0)
        Q, _, V = clipped_pass(known.kernel(), signals, limits, lambda h, _: policy[h])
        weights = policy * np.exp(self._policy_step * (Q[0] + lam * Q[1]))
        self._next = weights / weights.sum(axis=-1, keepdims=True)
        utility = float(V[1, task.initial_state])
        known.step(self._step, task.threshold - utility)
        return Plan(TablePolicy(policy), "search", lam, utility, self.level)

    def _learned_state(self, policies: PolicyArrays) -> State:
        return self.learner.state() | under("primal", {"next": self._next})

    def _restore_learned(self, saved: Saved) -> None:
        self.learner = self.learner.restored(saved)
        self._next = saved.under("primal").numbers("next", self._next.shape, least=0)

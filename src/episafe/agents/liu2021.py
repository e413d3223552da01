"""The agents of Liu et al. 2021: optimistic in the reward, pessimistic in the utility, on the estimated kernel."""

import math
from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.mixing import admits
from episafe.kernels.policy_values import policy_values
from episafe.learning.planner import Every, Replanning
from episafe.learning.transition_counts import Confidence, DualCounts, TransitionCounts, clipped_pass
from episafe.problems.model_answers import optimum
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.types import Array, Plan


def _beta(said: Confidence, visits: Array) -> Array:
    """β = bonus·√(Z/(n∨1)), Z = ln(16S²AHK/δ), from n_h(s, a), (H, S, A)."""
    H, S, A = visits.shape
    beta: Array = said.bonus * np.sqrt(said.log_term(16 * S**2 * A * H) / np.maximum(visits, 1))
    return beta


class OptPessLP(Agent):
    """The incumbent while little is known of it, then the best policy of a problem on P̂, with β = √(Z/(n∨1)):

        π_sf   if  V^{π_sf, u − (1+SH)β}_{P̂}(s₁) ≤ b + ξ/2,      Z = ln(16S²AHK/δ)
        max_π V^{π, r + α_r β}_{P̂}(s₁)  s.t.  V^{π, u − (1+SH)β}_{P̂}(s₁) ≥ b      else,
        α_r = 1 + SH + 4H(1+SH)/ξ

    The paper proves zero violation with probability 1 − δ, and regret Õ(H³√(S³AK)/ξ + H⁵S³A/ξ), at bonus 1. No run of
    practical length leaves the incumbent there: it needs some (4SH²/ξ)²Z visits of each pair on the incumbent's paths.

    After Liu, Zhou, Kalathil, Kumar and Tian, NeurIPS 2021; its formulas as quoted by others, whose log term differs.
    Differs: reward and utility are those that the task tells, with the radius that also serves to learn them; P̂ is
    uniform where nothing was seen; the linear program is solved by its one-dimensional dual, to rounding.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again.
    """

    name: ClassVar[str] = "optpess-lp"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), TransitionCounts(task)
        self._slack = known_slack(task)

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        H, S, _ = task.reward.shape
        scale, beta = 1 + S * H, _beta(self.confidence, counts.visits)
        reward, utility = task.reward + (scale + 4 * H * scale / self._slack) * beta, task.utility - scale * beta
        model = counts.kernel(), reward, utility
        known = policy_values(*model, task.safe_policy.table(), task.initial_state)[1]
        if not known > task.threshold + self._slack / 2:
            return self._incumbent(f"its own utility is known to be {known:.6g} only")
        found = optimum(*model, task.threshold, task.initial_state)
        bound = policy_values(*model, found.table, task.initial_state)[1]
        if not admits(bound, task.threshold):
            return self._incumbent("no policy passes on the estimated kernel", bound)
        return Plan(TablePolicy(found.table), "search", found.lam, bound, self.level)


class OptPessPrimalDual(Agent):
    """Value iteration on P̂ for reward and utility with a bonus, and a multiplier that asks for ε_k more than b:

        π_k greedy for Q^r + (λ_k/η_k)Q^u of r + (1+SH)β and u + (1+SH)β, clipped above at H,      η_k = ξH√k
        λ_{k+1} = [λ_k + b + ε_k − V^u(s₁)]₊,      ε_k = 5H²√(S³A)(ln(k/δ') + 1)/√(k ln(k/δ')),   δ' = δ/(S²AH)

    with β = √(Z/(n∨1)), Z = ln(16S²AHK/δ). The paper proves regret Õ(H³√(S³AK)/ξ) and a violation that does not grow
    with K, *with cancellation* (soft). Policies are deterministic. It needs the slack and no incumbent.

    After Liu, Zhou, Kalathil, Kumar and Tian, NeurIPS 2021: ε_k and η_k as others have run them, the bonus from memory.
    Differs: reward and utility are those that the task tells; P̂ is uniform where nothing was seen.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies β and ε_k.
        replan: when to plan again, which is when λ is stepped.
    """

    name: ClassVar[str] = "optpess-primaldual"
    certified: ClassVar[bool] = False
    learner: DualCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), DualCounts(task)
        self._slack = known_slack(task)

    def _propose(self) -> Plan:
        task, known, k = self.task, self.learner, self.num_learned + 1
        H, S, A = task.reward.shape
        bonus = (1 + S * H) * _beta(self.confidence, known.visits)
        lam = known.lam / (self._slack * H * math.sqrt(k))

        def greedy(h: int, Q: Array) -> Array:
            return np.eye(A)[np.argmax(Q[0] + lam * Q[1], axis=1)]

        signals, limits = np.stack([task.reward, task.utility]) + bonus, np.full(H, float(H))
        _, policy, V = clipped_pass(known.kernel(), signals, limits, greedy)
        utility = float(V[1, task.initial_state])
        known.step(1.0, task.threshold + self._pessimism(k) - utility)
        return Plan(TablePolicy(policy), "search", lam, utility, self.level)

    def _pessimism(self, k: int) -> float:
        """ε_k."""
        H, S, A = self.task.reward.shape
        said = self.confidence
        log_term = math.log(k * S**2 * A * H / said.delta)
        return float(said.bonus * 5 * H**2 * math.sqrt(S**3 * A) * (log_term + 1) / math.sqrt(k * log_term))

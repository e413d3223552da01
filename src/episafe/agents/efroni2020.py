"""The agents of Efroni et al. 2020: optimism in reward and utility, by linear programs or by steps of a multiplier."""

import math
from typing import ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.extended_value_iteration import extended_greedy
from episafe.kernels.policy_values import policy_values
from episafe.learning.dope_problem import markov_table, optimistic_pessimistic
from episafe.learning.planner import Every, Replanning
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.transition_counts import Confidence, DualCounts, Radius, TransitionCounts, clipped_pass
from episafe.problems.model_answers import optimum
from episafe.problems.policy import TablePolicy, uniform_table
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, Plan


class OptCMDP(Agent):
    """Solves, before each episode, the problem of the best policy and the best kernel of a box 𝒫:

        max_π max_{P'∈𝒫} V^{π, r}_{P'}(s₁)   s.t.   V^{π, u}_{P'}(s₁) ≥ b

    The paper proves that the positive parts of regret and of violation sum to Õ(√(SANH⁴K)) each, N the number of next
    states (hard violation): it violates while it learns. No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; the radius (`Radius.efroni`) is from memory. Differs: reward and
    utility are those that the task tells, so that nothing is added to them; the extended linear program is solved by
    extended value iteration in a one-dimensional dual, to rounding; where it is infeasible, which has no probability in
    the proof, the policy of largest optimistic utility is deployed.

    Args:
        task: what the learner is told.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies the half-width of the box.
        replan: when to plan again.
    """

    name: ClassVar[str] = "optcmdp"
    certified: ClassVar[bool] = False
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), TransitionCounts(task)

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        box = counts.box(Radius.efroni(task, self.confidence))
        _, utility, parts, lam = optimistic_pessimistic(
            task.reward, task.utility, box, task.threshold, task.initial_state
        )
        return Plan(TablePolicy(markov_table(box, parts, task.initial_state)), "search", lam, utility, self.level)


class OptCMDPBonus(Agent):
    """Solves, before each episode, a problem on P̂ whose linear program is S times smaller than that of OptCMDP:

        max_π V^{π, r + Hβ}_{P̂}(s₁)   s.t.   V^{π, u + Hβ}_{P̂}(s₁) ≥ b,      β = Σ_{s'} γ

    The paper proves for it what it proves for OptCMDP, with a larger H: hard violation, Õ(√K). No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; the radius γ (`Radius.efroni`) is from memory. Differs as
    OptCMDP does; P̂ is uniform where nothing was seen.

    Args:
        task: what the learner is told.
        num_episodes: K, in the log term.
        delta: δ.
        bonus: multiplies β.
        replan: when to plan again.
    """

    name: ClassVar[str] = "optcmdp-bonus"
    certified: ClassVar[bool] = False
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), TransitionCounts(task)

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        bonus = task.horizon * counts.box(Radius.efroni(task, self.confidence)).bonus
        model = counts.kernel(), task.reward + bonus, task.utility + bonus
        found = optimum(*model, task.threshold, task.initial_state)
        utility = policy_values(*model, found.table, task.initial_state)[1]
        return Plan(TablePolicy(found.table), "search", found.lam, utility, self.level)


class OptDual(Agent):
    """The best policy and kernel of a box 𝒫 for r + λu, and a step of λ by what they promise:

        (π_k, P_k) = argmax_π max_{P'∈𝒫} V^{π, r + λ_k u}_{P'}(s₁)
        λ_{k+1} = [λ_k + (b − V^{π_k, u}_{P_k}(s₁))/t]₊,   t = H√K/ρ,   ρ = H/ξ

    The paper proves regret and violation Õ(√K) *with cancellation*: what is kept in one episode pays for another
    (soft). Policies are deterministic, and no one of them need be safe, ever. No incumbent.

    After Efroni, Mannor and Pirotta, arXiv 2003.02189; step and radius are from memory. Differs: reward and utility are
    those that the task tells; the bound ρ of the multiplier is made of the incumbent's slack.

    Args:
        task: what the learner is told, its slack ξ included.
        num_episodes: K, in the log term and the step.
        delta: δ.
        bonus: multiplies the half-width of the box.
        replan: when to plan again, which is when λ is stepped.
    """

    name: ClassVar[str] = "optdual"
    certified: ClassVar[bool] = False
    learner: DualCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(
        self, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()
    ) -> None:
        super().__init__(task, replan)
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), DualCounts(task)
        self._step = 1 / (known_slack(task) * math.sqrt(num_episodes))

    def _propose(self) -> Plan:
        task, known, lam = self.task, self.learner, self.learner.lam
        box = known.box(Radius.efroni(task, self.confidence))
        actions, _, V = extended_greedy(task.reward, task.utility, box.lower, box.upper, 1.0, lam)
        utility = float(V[task.initial_state, 1])
        known.step(self._step, task.threshold - utility)
        return Plan(TablePolicy(np.eye(task.num_actions)[actions]), "search", lam, utility, self.level)


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
        self.confidence, self.learner = Confidence(num_episodes, delta, bonus), DualCounts(task)
        H, _, A = task.reward.shape
        rho = H / known_slack(task)
        self._policy_step = math.sqrt(2 * math.log(A) / num_episodes) / (H * (1 + rho))
        self._step = rho / (H * math.sqrt(num_episodes))
        self._next: Array = uniform_table(*task.reward.shape)

    def _propose(self) -> Plan:
        task, known, lam, policy = self.task, self.learner, self.learner.lam, self._next
        bonus = task.horizon * known.box(Radius.efroni(task, self.confidence)).bonus
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

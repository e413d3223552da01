"""The agents of Efroni et al. 2020: optimism in reward and utility, by linear programs or by steps of a multiplier.

All are after Efroni, Mannor and Pirotta, arXiv 2003.02189, whose text was not available. The radius γ
(`Radius.bernstein`) is the one that the released code of Bura et al. 2022 attributes to them, with the logarithm of the
released code of Kitamura et al. 2024. Reward and utility are known, so that nothing is added to them for learning them.
The bound ρ of the multipliers is made of the incumbent's least slack ξ.
"""

import math

import numpy as np

from episafe.core.agent import register
from episafe.core.policy import uniform_table
from episafe.core.types import Array, Plan
from episafe.kernels.tabular_optimum import optimum
from episafe.linear.counts import (
    CountingAgent,
    KernelBox,
    Radius,
    best_pair,
    clipped_pass,
    extended_optimum,
    markov_table,
    needs_tables,
)


def box_of(agent: CountingAgent) -> KernelBox:
    """Return the box 𝒫 of an agent."""
    return agent.counts.box(Radius.bernstein(agent.task, agent.confidence, 6))


@register(
    name="optcmdp", label="OptCMDP",
    summary="after Efroni et al. 2020: the best policy and kernel of a box; violates limits while it learns",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.01}, needs=needs_tables,
)  # fmt: skip
class OptCMDP(CountingAgent):
    """Solves, before each episode, the problem of the best policy and the best kernel of the box 𝒫:

        max_π max_{P'∈𝒫} V^{π, r}_{P'}(s₁)   s.t.   V^{π, u_i}_{P'}(s₁) ≥ b_i

    The paper proves that the positive parts of regret and of violation (hard) each sum to Õ(√(SANH⁴K)). N is the number
    of next states. So it violates limits while it learns. It has no incumbent.

    Extended value iteration in the dual solves the extended linear program. Its value agrees with that of the code of
    Bura et al. to 1e-8. If the program is infeasible, which has probability 0 in the proof, the policy of largest
    optimistic utility is deployed.
    """

    def decide(self) -> Plan:
        """Return the solution of the problem."""
        task, box = self.task, box_of(self)
        found = extended_optimum(self.counts.signals, box, task.thresholds, task.initial_state)
        return self.as_plan(markov_table(box, found.parts, task.initial_state), found.values[1:], found.multipliers)


@register(
    name="optcmdp-bonus", label="OptCMDP-bonus",
    summary="after Efroni et al. 2020: the estimated kernel with a bonus; violates limits while it learns",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.003}, needs=needs_tables,
)  # fmt: skip
class OptCMDPBonus(CountingAgent):
    """Solves, before each episode, a problem on P̂ whose linear program is S times smaller than that of OptCMDP:

        max_π V^{π, r + Hβ}_{P̂}(s₁)   s.t.   V^{π, u_i + Hβ}_{P̂}(s₁) ≥ b_i,      β = Σ_{s'} γ

    The paper proves the same rate as for OptCMDP, Õ(√K) with hard violation, but with a larger power of H. It has no
    incumbent.

    The bonus Hβ is that of OptPrimalDual-CMDP. P̂ is uniform for pairs without data. Infeasible problems are treated as
    in OptCMDP.
    """

    def decide(self) -> Plan:
        """Return the solution of the problem."""
        task, P_hat = self.task, self.counts.kernel()
        signals = self.counts.signals + len(self.counts.times) * box_of(self).bonus
        values, table, lams = optimum(P_hat, signals[0], signals[1:], task.thresholds, task.initial_state)
        return self.as_plan(table, values[1:], lams)


@register(
    name="optdual", label="OptDual-CMDP",
    summary="after Efroni et al. 2020: extended value iteration and steps of a multiplier; may violate limits",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.01}, needs=needs_tables,
)  # fmt: skip
class OptDual(CountingAgent):
    """Deploys the best policy for r + λu over the box 𝒫 of kernels, and updates λ by its optimistic utility:

        (π_k, P_k) = argmax_π max_{P'∈𝒫} V^{π, r + λ_k u}_{P'}(s₁)
        λ_{k+1} = [λ_k + (b − V^{π_k, u}_{P_k}(s₁))/t]₊,   t = H√K/ρ,   ρ = H/ξ

    The paper proves regret and violation Õ(√K) *with cancellation* (soft): one episode may compensate for another.
    Policies are deterministic, and no single policy need be safe. It has no incumbent. The step t is that of
    OptPrimalDual-CMDP.
    """

    def decide(self) -> Plan:
        """Return the best policy for λ, and update λ."""
        task, lams = self.task, self.lams
        best = best_pair(self.counts.signals, box_of(self), task.initial_state)
        values, (actions, _) = best(np.append(1.0, lams))
        step = 1 / (float(task.slacks.min()) * math.sqrt(self.confidence.num_episodes or 1))
        self.lams = np.maximum(0.0, lams + step * (task.thresholds - values[1:]))
        return self.as_plan(np.eye(task.num_actions or 0)[actions], values[1:], lams)


@register(
    name="optprimaldual", label="OptPrimalDual-CMDP",
    summary="after Efroni et al. 2020: a step of policy and multiplier per episode; may violate limits",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.001}, needs=needs_tables,
)  # fmt: skip
class OptPrimalDual(CountingAgent):
    """Takes steps of mirror ascent in the policy, beginning with the uniform one, and gradient steps in the multiplier:

        π_{k+1}(a|s) ∝ π_k(a|s) exp(t(Q^r + λ_k Q^u)),      λ_{k+1} = [λ_k + ρ(b − V^u(s₁))/(H√K)]₊,
        t = √(2 ln A/K)/(H(1+ρ)),   ρ = H/ξ

    Q and V are those of π_k on P̂, for r + Hβ and u + Hβ with β = Σ_{s'} γ, clipped above at the remaining steps.

    The paper proves regret and violation Õ(√K) *with cancellation* (soft). The last policy may never be safe. It
    has no incumbent and does not plan: a step costs one evaluation.

    After the released code of Kitamura et al. 2024. That code has γ without the factor 2. It updates the multiplier by
    the value of π_{k+1}, and this class by the value of π_k.
    """

    _next: Array | None = None  # π_{k+1}

    def decide(self) -> Plan:
        """Return π_k, and update the policy and the multiplier."""
        task, lams, (H, _, A), K = self.task, self.lams, self.counts.shape, self.confidence.num_episodes or 1
        policy, rho = uniform_table(*self.counts.shape) if self._next is None else self._next, H / task.slacks.min()
        step, policy_step = rho / (H * math.sqrt(K)), math.sqrt(2 * math.log(A) / K) / (H * (1 + rho))
        signals = self.counts.signals + H * box_of(self).bonus
        Q, _, V = clipped_pass(self.counts.kernel(), signals, np.arange(H, 0, -1.0), lambda h, _: policy[h])
        weights = policy * np.exp(policy_step * (Q[0] + np.tensordot(lams, Q[1:], axes=1)))
        self._next = weights / weights.sum(axis=-1, keepdims=True)
        utilities = V[1:, task.initial_state]
        self.lams = np.maximum(0.0, lams + step * (task.thresholds - utilities))
        return self.as_plan(policy, utilities, lams)

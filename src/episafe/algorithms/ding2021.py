"""OPDOP (Ding et al. 2021), for tables: one step of the policy and one of the multiplier per episode, optimistic."""

import math

import numpy as np

from episafe.core.agent import register
from episafe.core.policy import uniform_table
from episafe.core.types import Array, Plan
from episafe.linear.counts import CountingAgent, clipped_pass, needs_tables


@register(
    name="opdop", label="OPDOP",
    summary="OPDOP (Ding et al. 2021): proximal steps of the policy, steps of the multiplier; may violate limits",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.001}, needs=needs_tables,
)  # fmt: skip
class OPDOP(CountingAgent):
    """Proximal policy optimization from the uniform policy, and a projected step of the multiplier:

        π^k(a|s) ∝ π̃^{k−1}(a|s) exp(α(Q_r^{k−1} + Y^{k−1}Q_g^{k−1})),      π̃ = (1−θ)π + θ/A
        Y^k = min{[Y^{k−1} + η(b − V_g^{k−1}(s₁))]₊, χ}
        Q_g^k = min{g + P̂V_g^k + Γ, steps left},      Γ = C₁H√(S ln(SAHK/δ)/(n+1)),      P̂ = n(s,a,s')/(n+1)
        α = √(ln A)/(H²√K),   η = 1/√K,   θ = 1/K,   χ = 2H/ξ,      Q⁰ = 0,   Y⁰ = 0,   V_g⁰ = b

    with Q_r^k and V_g^k of π^k, for reward and utility.

    The paper proves regret and violation Õ(S√(AH⁵T)) after T = KH steps, *with cancellation* (soft). The last policy
    may never be safe. It has no incumbent; χ is made of the incumbent's slack.

    Ding, Wei, Yang, Wang and Jovanović, AISTATS 2021, Algorithms 1 and 3 with the constants of Theorem 2. The theorem
    prints H²K in α; its proof (Lemmas 3 and 4) has H²√K, which is used here. C₁ is an absolute constant without a
    stated value: `bonus`. Differs from the paper: reward and utility are known, so that the second Γ, for learning
    them, is left out. Each of several limits has its multiplier.
    """

    _policy: Array | None = None  # π^{k−1}

    def decide(self) -> Plan:
        """Return π^k, step the multiplier, and evaluate π^k on what was seen before it."""
        task, (H, S, A), K = self.task, self.counts.shape, self.confidence.num_episodes or 1
        if self._policy is None:
            self._policy, self._Q, self._V = uniform_table(H, S, A), np.zeros_like(self.counts.signals), task.thresholds
        alpha, lams, chi = math.sqrt(math.log(A) / K) / H**2, self.lams, 2 * H / float(task.slacks.min())
        mixed = (1 - 1 / K) * self._policy + 1 / (K * A)
        weights = mixed * np.exp(alpha * (self._Q[0] + np.tensordot(lams, self._Q[1:], axes=1)))
        policy = self._policy = weights / weights.sum(axis=-1, keepdims=True)
        self.lams = np.clip(lams + (task.thresholds - self._V) / math.sqrt(K), 0.0, chi)

        seen = self.counts.visits + 1  # the paper's λ is 1
        scale = self.confidence.bonus * H * math.sqrt(S * self.confidence.log_term(S * A * H))
        P_hat, signals = self.counts.times / seen[..., None], self.counts.signals + scale / np.sqrt(seen)
        self._Q, _, V = clipped_pass(P_hat, signals, np.arange(H, 0, -1.0), lambda h, _: policy[h])
        self._V = V[1:, task.initial_state]
        return self.as_plan(policy, self._V, lams)

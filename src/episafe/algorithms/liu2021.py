"""The agents of Liu et al. 2021: optimistic in the reward, pessimistic in the utility, on the estimated kernel.

Both are after Liu, Zhou, Kalathil, Kumar and Tian, NeurIPS 2021, whose text was not available. Reward and utility are
known, with the radius that also serves to learn them; P̂ is uniform where nothing was seen; ξ is the incumbent's least
slack.
"""

import math

import numpy as np

from episafe.core.agent import register
from episafe.core.types import Array, Plan
from episafe.kernels.simulation import policy_values
from episafe.kernels.tabular_optimum import optimum, passes
from episafe.linear.counts import Confidence, CountingAgent, TransitionCounts, clipped_pass, needs_tables


def beta(counts: TransitionCounts, confidence: Confidence) -> Array:
    """Return β = bonus·√(Z/(n∨1)), Z = ln(16S²AHK/δ), shape (H, S, A)."""
    H, S, A = counts.shape
    return confidence.bonus * np.sqrt(confidence.log_term(16 * S**2 * A * H) / np.maximum(counts.visits, 1))


@register(
    name="optpess-lp", label="OptPess-LP",
    summary="after Liu et al. 2021: the incumbent at first, then a linear program on the estimated kernel",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.003}, needs=needs_tables,
)  # fmt: skip
class OptPessLP(CountingAgent):
    """Deploys the incumbent while little is known about it, then the best policy of a problem on P̂:

        π_sf   if  V^{π_sf, u − (1+SH)β}_{P̂}(s₁) ≤ b + ξ/2
        max_π V^{π, r + α_r β}_{P̂}(s₁)  s.t.  V^{π, u − (1+SH)β}_{P̂}(s₁) ≥ b      else,
        α_r = 1 + SH + 4H(1+SH)/ξ

    For bonus 1 the paper proves zero violation with probability 1 − δ, and regret Õ(H³√(S³AK)/ξ + H⁵S³A/ξ). With this
    bonus only the incumbent is deployed in runs of practical length. Another policy needs about (4SH²/ξ)²Z visits of
    each pair on the incumbent's paths.

    The formulas are those that a public notebook quotes from the paper. The released code of Bura et al. 2022 has the
    same scales and another logarithm. The linear program is solved by its dual, and its value agrees with that of their
    code to 1e-8.
    """

    def decide(self) -> Plan:
        """Return the solution of the problem, or the incumbent."""
        task, P_hat, signals = self.task, self.counts.kernel(), self.counts.signals.copy()
        (H, S, _), slack = self.counts.shape, float(task.slacks.min())
        bonus, scale = beta(self.counts, self.confidence), 1 + S * H
        signals[0] += (scale + 4 * H * scale / slack) * bonus
        signals[1:] -= scale * bonus
        table = task.incumbent.table()
        known = np.array([policy_values(P_hat, one, one, table, task.initial_state)[1] for one in signals[1:]])
        if not (known > task.thresholds + slack / 2).all():
            return self.incumbent_plan(f"the utility of the incumbent is only known to be at least {known.min():.6g}")
        values, table, lams = optimum(P_hat, signals[0], signals[1:], task.thresholds, task.initial_state)
        if not passes(values[1:], task.thresholds):
            return self.incumbent_plan("no policy passes on the estimated kernel", values[1:])
        return self.as_plan(table, values[1:], lams)


@register(
    name="optpess-primaldual", label="OptPess-PrimalDual",
    summary="after Liu et al. 2021: optimistic values, a multiplier that aims above b; violates limits at first",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.001}, needs=needs_tables,
)  # fmt: skip
class OptPessPrimalDual(CountingAgent):
    """Value iteration on P̂ for reward and utility with a bonus, and a multiplier that aims at b + ε_k:

        π_k greedy for Q^r + (λ_k/η_k)Q^u of r + (1+SH)β and u + (1+SH)β, clipped above at H,      η_k = ξH√k
        λ_{k+1} = [λ_k + b + ε_k − V^u(s₁)]₊,      ε_k = 5H²√(S³A)(ln(k/δ') + 1)/√(k ln(k/δ')),   δ' = δ/(S²AH)

    The paper proves regret Õ(H³√(S³AK)/ξ) and a violation that does not grow with K, *with cancellation* (soft).
    Policies are deterministic. It needs the slack but no incumbent. ε_k and η_k have the form of Ghosh et al. 2024
    (Appendix K), who use 1 instead of 5 and 10 instead of ξ. Neither these constants nor the bonus were checked.
    """

    def decide(self) -> Plan:
        """Return the greedy policy, and update λ."""
        task, (H, S, A), k = self.task, self.counts.shape, self.counts.num_episodes + 1
        lams = self.lams / (float(task.slacks.min()) * H * math.sqrt(k))

        def greedy(h: int, Q: Array) -> Array:
            return np.eye(A)[np.argmax(Q[0] + np.tensordot(lams, Q[1:], axes=1), axis=1)]

        signals = self.counts.signals + (1 + S * H) * beta(self.counts, self.confidence)
        _, policy, V = clipped_pass(self.counts.kernel(), signals, np.full(H, float(H)), greedy)
        utilities = V[1:, task.initial_state]
        log_term = math.log(k * S**2 * A * H / self.confidence.delta)
        scale = self.confidence.bonus * 5 * H**2 * math.sqrt(S**3 * A)
        epsilon = scale * (log_term + 1) / math.sqrt(k * log_term)
        self.lams = np.maximum(0.0, self.lams + task.thresholds + epsilon - utilities)
        return self.as_plan(policy, utilities, lams)

"""The agents of Li et al. 2023, for a limit on the utility: incumbent and candidate mixed by a draw or by steps.

After Li, Huang, Shen and Yang, ICML 2023. The paper has one signal, V^r ≥ γ, and proves zero violation and a regret
bound, at bonus 1. The first carries over to a utility; the second does not: a candidate that is greedy for the reward
alone is not the best one to mix with. Differs from the paper: candidates are greedy for Q̃ʳ + λQ̲ᵘ, with λ = 0, the
paper's, and six others; the mixture of the largest optimistic reward is deployed.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from episafe.core.agent import EVERY, Replanning, register
from episafe.core.checks import TOLERANCE
from episafe.core.policy import Mixture, TablePolicy
from episafe.core.task import ProblemLike
from episafe.core.types import INCUMBENT, Array, Plan
from episafe.kernels.mixture import payer_share
from episafe.kernels.tabular_optimum import MULTIPLIERS
from episafe.linear.counts import CountingAgent, needs_one_limit

Choice = Callable[[int, Array, Array], Array]  # (h, Q̃ʳ (n, S, A), Q̲ᵘ (n, S, A)) -> π_h (n, S, A)


class Bounded(NamedTuple):
    """A policy with its bounds.

    Attributes:
        reward, utility: Ṽʳ(s₁) and V̲ᵘ(s₁).
        policy: its table (H, S, A).
        share: of a safer policy that it is mixed with.
    """

    reward: float
    utility: float
    policy: Array
    share: float = 0.0


def with_safer(bolder: Bounded, safer: Bounded, threshold: float) -> Bounded:
    """Return the bounds of a mixture: `bolder` with the least share of `safer` whose bound reaches the threshold."""
    share = 0.0 if bolder.utility >= threshold else payer_share(bolder.utility, safer.utility, threshold)
    reward = (1.0 - share) * bolder.reward + share * safer.reward
    return bolder._replace(reward=reward, utility=(1.0 - share) * bolder.utility + share * safer.utility, share=share)


def largest(found: Mapping[float, Bounded]) -> tuple[float, Bounded]:
    """Return the first of those with the largest optimistic reward, up to rounding, and its λ."""
    most = max(one.reward for one in found.values())
    return next((lam, one) for lam, one in found.items() if one.reward > most - TOLERANCE)


class Mixing(CountingAgent):
    """The base of both agents. It bounds V^r and V^u of any policy, n visits of a pair and P̂ uniform where n = 0:

        Q̃ = min{H, g + P̂Ṽ + c(3√(Var_P̂(Ṽ)β*/n) + 14H²β/n + P̂(Ṽ−V̲)/H)}
        Q̲ = max{0, g + P̂V̲ − c(3√(Var_P̂(Ṽ)β*/n) + 22H²β/n + 2P̂(Ṽ−V̲)/H)}
        β = ln(SAH/δ') + S ln(8e(n+1)),   β* = ln(SAH/δ') + ln(8e(n+1)),   c the factor `bonus`

    Where n = 0 they are H and 0. They hold for all policies at once where c = 1.

    Args:
        problem: a problem or its task, with one limit.
        delta: δ.
        bonus: factor on every bonus.
        replan: when to plan again.
    """

    parts: int  # δ' = δ/parts

    def __init__(
        self, problem: ProblemLike, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = EVERY
    ) -> None:
        super().__init__(problem, None, delta, bonus, replan)

    def start(self) -> tuple[float, Bounded, dict[float, Bounded]]:
        """Return b, the incumbent with at least b + ξ, and the policies that are greedy for Q̃ʳ + λQ̲ᵘ, by λ."""
        task, each, actions = self.task, np.array(MULTIPLIERS)[:, None, None], np.eye(self.counts.shape[2])
        safe = self.bounded_tables(task.incumbent.table()[None])[0]
        safe = safe._replace(utility=max(float(task.stated_utilities[0]), safe.utility))
        greedy = self.bounded(len(each), lambda h, high, low: actions[np.argmax(high + each * low, axis=-1)])
        return float(task.thresholds[0]), safe, dict(zip(MULTIPLIERS, greedy, strict=True))

    def bounded_tables(self, tables: Array) -> list[Bounded]:
        """Return policies (n, H, S, A) with their bounds."""
        return self.bounded(len(tables), lambda h, *_: tables[:, h])

    def bounded(self, count: int, choose: Choice) -> list[Bounded]:
        """Return policies that are chosen step by step, the last step first, with their bounds."""
        (H, S, A), visits, c = self.counts.shape, self.counts.visits, self.confidence.bonus
        log_term, grown = np.log(S * A * H / (self.confidence.delta / self.parts)), 1 + np.log(8 * (visits + 1))
        variation, bias = (
            (log_term + grown) / np.maximum(visits, 1),
            H**2 * (log_term + S * grown) / np.maximum(visits, 1),
        )
        kernel, unseen = self.counts.kernel().reshape(H, S * A, S), visits == 0
        values, policies = np.zeros((count, 2, 2, S)), np.empty((count, H, S, A))  # Ṽ and V̲ of both signals
        for h in reversed(range(H)):
            upper, g = values[:, 0], self.counts.signals[:, h]
            moments = np.concatenate([upper, values[:, 1], upper**2], axis=1) @ kernel[h].T
            mean, mean_low, square = np.moveaxis(moments.reshape(-1, 3, 2, S, A), 1, 0)
            spread, gap = 3 * np.sqrt(np.maximum(square - mean**2, 0) * variation[h]), (mean - mean_low) / H
            high = np.minimum(H, g + mean + c * (spread + 14 * bias[h] + gap))
            low = np.maximum(0, g + mean_low - c * (spread + 22 * bias[h] + 2 * gap))
            Q = np.stack([np.where(unseen[h], float(H), high), np.where(unseen[h], 0.0, low)], axis=1)
            policies[:, h] = choose(h, Q[:, 0, 0], Q[:, 1, 1])
            values = (policies[:, h, None, None] * Q).sum(axis=-1)
        start = self.task.initial_state
        rewards, utilities = values[:, 0, 0, start].tolist(), values[:, 1, 1, start].tolist()
        return [Bounded(*one) for one in zip(rewards, utilities, policies, strict=True)]


@register(
    name="epsmix", label="EpsMix",
    summary="after Li et al. 2023: a draw between a candidate and the incumbent, by bounds with empirical variances",
    arguments=lambda problem, num_episodes: {"bonus": 0.003}, needs=needs_one_limit,
)  # fmt: skip
class EpsMix(Mixing):
    """Deploys a candidate π̄ if its lower bound passes, else the mixture with the largest weight on π̄ that passes:

        π̄ with probability ρ = (V̲ᵘ_sf − b)/(V̲ᵘ_sf − V̲ᵘ_π̄), else the incumbent

    The bounds are those of `Mixing` at δ' = δ/4. V̲ᵘ_sf is the larger of the incumbent's bound and b + ξ. The
    paper proves zero violation of the mixture, and regret Õ(√(H³SAK) + H³S²A + H³SAΔ(1/κ² + S/κ)). It proves nothing
    about a candidate alone. Algorithm 4 of the paper.
    """

    parts = 4

    def decide(self) -> Plan:
        """Return the best mixture with the incumbent."""
        b, safe, candidates = self.start()
        lam, best = largest({lam: with_safer(one, safe, b) for lam, one in candidates.items()})
        if best.share == 1:
            return self.incumbent_plan("no mixture with a candidate passes")
        candidate, bounds = TablePolicy(best.policy, "candidate"), np.array([best.utility])
        if best.share == 0:
            return Plan(candidate, "search", bounds, self.level, lam=lam)
        weights = 1 - best.share, best.share
        mixture = Mixture((candidate, self.task.incumbent), weights, ("candidate", INCUMBENT))
        return Plan(mixture, "search", bounds, self.level, lam=lam)


@register(
    name="stepmix", label="StepMix",
    summary="after Li et al. 2023: the incumbent for the first steps, a candidate after them; a Markov policy",
    arguments=lambda problem, num_episodes: {"bonus": 0.003}, needs=needs_one_limit,
)  # fmt: skip
class StepMix(Mixing):
    """Deploys π^j, the incumbent up to step j and a candidate π̄ after it, with the smallest j that passes:

        π̄ where j = 0, else (1−ρ)π^j + ρπ^{j−1}, which differ at step j only,  ρ = (V̲ᵘ_j − b)/(V̲ᵘ_j − V̲ᵘ_{j−1})

    The bounds are those of `Mixing` at δ' = δ/(3(H+1)). π^H is the incumbent, and V̲ᵘ_H is the larger of its bound
    and b + ξ. The paper proves zero violation, with Markov policies. Algorithm 1 of the paper.
    """

    def decide(self) -> Plan:
        """Return the best mixture of steps."""
        self.parts = 3 * (self.counts.shape[0] + 1)
        b, safe, candidates = self.start()
        lam, best = largest({lam: self._stepped(one, safe, b) for lam, one in candidates.items()})
        if best.policy is safe.policy:
            return self.incumbent_plan("no policy that switches to a candidate passes")
        return Plan(TablePolicy(best.policy), "search", np.array([best.utility]), self.level, lam=lam)

    def _stepped(self, candidate: Bounded, safe: Bounded, threshold: float) -> Bounded:
        """Return the mixture of π^{j−1} and π^j at the smallest j that passes; π^H is the incumbent, which does."""
        if candidate.utility >= threshold:
            return candidate
        tables = [np.concatenate([safe.policy[:j], candidate.policy[j:]]) for j in range(1, len(safe.policy))]
        steps = [candidate, *self.bounded_tables(np.reshape(tables, (-1, *safe.policy.shape))), safe]
        j = next(j for j, one in enumerate(steps) if one.utility >= threshold)
        before, now = steps[j - 1 : j + 1]
        both = with_safer(before, now, threshold)
        if now is safe and both.share == 1:
            return safe
        return both._replace(policy=(1 - both.share) * before.policy + both.share * now.policy)

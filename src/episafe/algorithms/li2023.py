"""The agents of Li et al. 2023, for a limit on the utility: incumbent and candidate mixed by a draw or by steps.

After Li, Huang, Shen and Yang, ICML 2023. The paper has one signal, V^r ≥ γ, and proves zero violation and a regret
bound, at bonus 1. The first carries over to a utility; the second does not: a candidate that is greedy for the reward
alone is not the best one to mix with. Differs from the paper: candidates are greedy for Q̃ʳ + λQ̲ᵘ, with λ = 0, the
paper's, and six others; the mixture of the largest optimistic reward is deployed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from episafe.core.agent import EVERY, Replanning, register
from episafe.core.checks import TOLERANCE
from episafe.core.policy import Mixture, TablePolicy
from episafe.core.task import ProblemLike, Task
from episafe.core.types import INCUMBENT, Array, Plan
from episafe.kernels.mixture import payer_share
from episafe.kernels.tabular_optimum import MULTIPLIERS
from episafe.linear.counts import Confidence, CountingAgent, TransitionCounts, needs_one_limit

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


class MixingBounds:
    """Upper and lower bounds of V^r and V^u of any policy, with n visits of a pair and P̂ uniform where n = 0:

        Q̃ = min{H, g + P̂Ṽ + c(3√(Var_P̂(Ṽ)β*/n) + 14H²β/n + P̂(Ṽ−V̲)/H)}
        Q̲ = max{0, g + P̂V̲ − c(3√(Var_P̂(Ṽ)β*/n) + 22H²β/n + 2P̂(Ṽ−V̲)/H)}
        β = ln(SAH/δ') + S ln(8e(n+1)),   β* = ln(SAH/δ') + ln(8e(n+1)),   c the factor `bonus`

    Where n = 0 they are H and 0. They hold for all policies at once where c = 1.

    Args:
        task: the task of the agent.
        counts: what was seen.
        confidence: δ and c.
        parts: δ' = δ/parts.
    """

    def __init__(self, task: Task, counts: TransitionCounts, confidence: Confidence, parts: int) -> None:
        H, S, A = counts.shape
        self._signals, self._start = counts.signals, task.initial_state
        self._bonus, visits, delta = confidence.bonus, counts.visits, confidence.delta / parts
        self._kernel = counts.kernel().reshape(H, S * A, S)
        first, grown, n = np.log(S * A * H / delta), 1 + np.log(8 * (visits + 1)), np.maximum(visits, 1)
        self._spread, self._bias = (first + grown) / n, H**2 * (first + S * grown) / n
        self._unseen = visits == 0

    def of_tables(self, tables: Array) -> list[Bounded]:
        """Return policies (n, H, S, A) with their bounds."""
        return self._chosen(len(tables), lambda h, *_: tables[:, h])

    def of_greedy(self, lams: Sequence[float]) -> list[Bounded]:
        """Return the policies that are greedy for Q̃ʳ + λQ̲ᵘ, one for each λ, with their bounds."""
        actions, each = np.eye(self._signals.shape[3]), np.array(lams)[:, None, None]
        return self._chosen(len(lams), lambda h, high, low: actions[np.argmax(high + each * low, axis=-1)])

    def _chosen(self, count: int, choose: Choice) -> list[Bounded]:
        """Return policies that are chosen step by step, the last step first."""
        _, H, S, A = self._signals.shape
        values, policies = np.zeros((count, 2, 2, S)), np.empty((count, H, S, A))
        for h in reversed(range(H)):
            Q = self._step(h, values)
            policies[:, h] = choose(h, Q[:, 0, 0], Q[:, 1, 1])
            values = (policies[:, h, None, None] * Q).sum(axis=-1)
        rewards, utilities = values[:, 0, 0, self._start].tolist(), values[:, 1, 1, self._start].tolist()
        return [Bounded(*one) for one in zip(rewards, utilities, policies, strict=True)]

    def _step(self, h: int, after: Array) -> Array:
        """Return Q̃ and Q̲ (n, 2, 2, S, A) at step h, of both signals, from Ṽ and V̲ (n, 2, 2, S) after it."""
        _, H, S, A = self._signals.shape
        upper = after[:, 0]
        moments = np.concatenate([upper, after[:, 1], upper**2], axis=1) @ self._kernel[h].T
        mean, mean_low, square = np.moveaxis(moments.reshape(-1, 3, 2, S, A), 1, 0)
        spread = 3 * np.sqrt(np.maximum(square - mean**2, 0) * self._spread[h])
        gap, g, c = (mean - mean_low) / H, self._signals[:, h], self._bonus
        high = np.minimum(H, g + mean + c * (spread + 14 * self._bias[h] + gap))
        low = np.maximum(0, g + mean_low - c * (spread + 22 * self._bias[h] + 2 * gap))
        unseen = self._unseen[h]
        return np.stack([np.where(unseen, float(H), high), np.where(unseen, 0.0, low)], axis=1)


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
    """The base of both agents: the bounds, the incumbent with b + ξ, and one candidate per λ.

    Args:
        problem: a problem or its task, with one limit.
        delta: δ.
        bonus: factor on every bonus.
        replan: when to plan again.
    """

    def __init__(
        self, problem: ProblemLike, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = EVERY
    ) -> None:
        super().__init__(problem, None, delta, bonus, replan)

    def start(self, parts: int) -> tuple[float, MixingBounds, Bounded, dict[float, Bounded]]:
        """Return b, the bounds at δ/parts, the incumbent with at least b + ξ, and the candidates by λ."""
        problem = MixingBounds(self.task, self.counts, self.confidence, parts)
        safe = problem.of_tables(self.task.incumbent.table()[None])[0]
        safe = safe._replace(utility=max(float(self.task.stated_utilities[0]), safe.utility))
        candidates = dict(zip(MULTIPLIERS, problem.of_greedy(MULTIPLIERS), strict=True))
        return float(self.task.thresholds[0]), problem, safe, candidates


@register(
    name="epsmix", label="EpsMix",
    summary="after Li et al. 2023: a draw between a candidate and the incumbent, by bounds with empirical variances",
    arguments=lambda problem, num_episodes: {"bonus": 0.003}, needs=needs_one_limit,
)  # fmt: skip
class EpsMix(Mixing):
    """Deploys a candidate π̄ if its lower bound passes, else the mixture with the largest weight on π̄ that passes:

        π̄ with probability ρ = (V̲ᵘ_sf − b)/(V̲ᵘ_sf − V̲ᵘ_π̄), else the incumbent

    The bounds are those of `MixingBounds` at δ' = δ/4. V̲ᵘ_sf is the larger of the incumbent's bound and b + ξ. The
    paper proves zero violation of the mixture, and regret Õ(√(H³SAK) + H³S²A + H³SAΔ(1/κ² + S/κ)). It proves nothing
    about a candidate alone. Algorithm 4 of the paper.
    """

    def decide(self) -> Plan:
        """Return the best mixture with the incumbent."""
        b, _, safe, candidates = self.start(4)
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

    The bounds are those of `MixingBounds` at δ' = δ/(3(H+1)). π^H is the incumbent, and V̲ᵘ_H is the larger of its bound
    and b + ξ. The paper proves zero violation, with Markov policies. Algorithm 1 of the paper.
    """

    def decide(self) -> Plan:
        """Return the best mixture of steps."""
        b, problem, safe, candidates = self.start(3 * (self.counts.shape[0] + 1))
        lam, best = largest({lam: _stepped(problem, one, safe, b) for lam, one in candidates.items()})
        if best.policy is safe.policy:
            return self.incumbent_plan("no policy that switches to a candidate passes")
        return Plan(TablePolicy(best.policy), "search", np.array([best.utility]), self.level, lam=lam)


def _stepped(problem: MixingBounds, candidate: Bounded, safe: Bounded, threshold: float) -> Bounded:
    """Return the mixture of π^{j−1} and π^j at the smallest j that passes; π^H is the incumbent, which does."""
    if candidate.utility >= threshold:
        return candidate
    tables = [np.concatenate([safe.policy[:j], candidate.policy[j:]]) for j in range(1, len(safe.policy))]
    steps = [candidate, *problem.of_tables(np.reshape(tables, (-1, *safe.policy.shape))), safe]
    j = next(j for j, one in enumerate(steps) if one.utility >= threshold)
    before, now = steps[j - 1 : j + 1]
    both = with_safer(before, now, threshold)
    if now is safe and both.share == 1:
        return safe
    return both._replace(policy=(1 - both.share) * before.policy + both.share * now.policy)

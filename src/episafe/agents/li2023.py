"""The agents of Li et al. 2023, for a constraint on the utility: incumbent and candidate mixed by coin or by steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from episafe.agents.base import Agent
from episafe.checks import TOLERANCE
from episafe.kernels.mixing import admits, mixed, nudged, share_reaching
from episafe.learning.box_problem import MULTIPLIERS
from episafe.learning.planner import Every, Replanning
from episafe.learning.transition_counts import Confidence, TransitionCounts
from episafe.problems.policy import MixturePolicy, TablePolicy
from episafe.problems.task import Task
from episafe.types import Array, Plan

Choice = Callable[[int, Array, Array], Array]  # (h, Q̃ʳ (n, S, A), Q̲ᵘ (n, S, A)) ↦ π_h (n, S, A)


class Bounded(NamedTuple):
    """What is known of a policy.

    Attributes:
        reward, utility: Ṽʳ(s₁) and V̲ᵘ(s₁).
        policy: its table (H, S, A).
        values: Ṽ and V̲ of both signals, step by step (H+1, 2, 2, S).
        share: of a safer one that it is mixed with.
    """

    reward: float
    utility: float
    policy: Array
    values: Array
    share: float = 0.0


class MixingBounds:
    """Upper and lower bounds of V^r and V^u of any policy, with n visits of a pair and P̂ uniform where n = 0:

        Q̃ = min{H, g + P̂Ṽ + m(3√(Var_P̂(Ṽ)β*/n) + 14H²β/n + P̂(Ṽ−V̲)/H)}
        Q̲ = max{0, g + P̂V̲ − m(3√(Var_P̂(Ṽ)β*/n) + 22H²β/n + 2P̂(Ṽ−V̲)/H)}
        β = ln(SAH/δ') + S ln(8e(n+1)),   β* = ln(SAH/δ') + ln(8e(n+1)),   m the multiplier

    Where n = 0 they are H and 0. They hold for all policies at once where m = 1.

    Args:
        task: what the learner is told.
        counts: what was seen.
        said: δ and m.
        parts: δ' = δ/parts.
    """

    def __init__(self, task: Task, counts: TransitionCounts, said: Confidence, parts: int) -> None:
        H, S, A = task.reward.shape
        self._signals, self._start = np.stack([task.reward, task.utility]), task.initial_state
        self._bonus, visits, delta = said.bonus, counts.visits, said.delta / parts
        self._kernel = counts.kernel().reshape(H, S * A, S)
        first, grown, n = np.log(S * A * H / delta), np.log(8 * np.e * (visits + 1)), np.maximum(visits, 1)
        self._spread, self._bias = (first + grown) / n, H**2 * (first + S * grown) / n
        self._unseen = visits == 0

    def of_table(self, table: Array) -> Bounded:
        """A policy (H, S, A) with its bounds."""
        return self._chosen(1, lambda h, *_: table[h])[0]

    def of_greedy(self, lams: Sequence[float]) -> list[Bounded]:
        """The policies that are greedy for Q̃ʳ + λQ̲ᵘ, one for each λ, with their bounds."""
        actions, each = np.eye(self._signals.shape[3]), np.array(lams)[:, None, None]
        return self._chosen(len(lams), lambda h, high, low: actions[np.argmax(high + each * low, axis=-1)])

    def of_steps(self, first: Array, then: Bounded) -> list[Bounded]:
        """The policies that are table `first` (H, S, A) for 1, 2, …, H−1 steps and `then` after them."""
        H = len(first)
        values = then.values[:0]
        for h in reversed(range(H - 1)):
            values = _averaged(first[h], self._step(h, np.concatenate([then.values[h + 1 : h + 2], values])))
        tables = (np.concatenate([first[:j], then.policy[j:]]) for j in range(1, H))
        return [self._bounded(table, one[None]) for table, one in zip(tables, values, strict=True)]

    def _chosen(self, count: int, choose: Choice) -> list[Bounded]:
        """Policies that are chosen step by step, the last one first."""
        _, H, S, A = self._signals.shape
        values, policies = np.zeros((count, H + 1, 2, 2, S)), np.empty((count, H, S, A))
        for h in reversed(range(H)):
            Q = self._step(h, values[:, h + 1])
            policies[:, h] = choose(h, Q[:, 0, 0], Q[:, 1, 1])
            values[:, h] = _averaged(policies[:, h, None, None], Q)
        return [self._bounded(*one) for one in zip(policies, values, strict=True)]

    def _bounded(self, policy: Array, values: Array) -> Bounded:
        start = values[0, :, :, self._start]
        return Bounded(float(start[0, 0]), float(start[1, 1]), policy, values)

    def _step(self, h: int, after: Array) -> Array:
        """Q̃ and Q̲ (n, 2, 2, S, A) at step h, of both signals, from Ṽ and V̲ (n, 2, 2, S) after it."""
        _, H, S, A = self._signals.shape
        upper = after[:, 0]
        moments = np.concatenate([upper, after[:, 1], upper**2], axis=1) @ self._kernel[h].T
        mean, mean_low, square = np.moveaxis(moments.reshape(-1, 3, 2, S, A), 1, 0)
        spread = 3 * np.sqrt(np.maximum(square - mean**2, 0) * self._spread[h])
        gap, g, m = (mean - mean_low) / H, self._signals[:, h], self._bonus
        high = np.minimum(H, g + mean + m * (spread + 14 * self._bias[h] + gap))
        low = np.maximum(0, g + mean_low - m * (spread + 22 * self._bias[h] + 2 * gap))
        unseen = self._unseen[h]
        return np.stack([np.where(unseen, float(H), high), np.where(unseen, 0.0, low)], axis=1)


def _averaged(policy: Array, Q: Array) -> Array:
    """Σ_a π(a|s)·Q(s, a)."""
    averaged: Array = (policy * Q).sum(axis=-1)
    return averaged


def as_told(task: Task, incumbent: Bounded) -> Bounded:
    """The incumbent with the b + ξ that the task tells of it, where that is more than its own bound."""
    known = task.threshold + (task.slack or 0.0)
    return incumbent._replace(utility=max(known, incumbent.utility))


def with_safer(bolder: Bounded, safer: Bounded, threshold: float) -> Bounded:
    """The first with the least share of `safer`, which passes, with which the bound of both passes in float64."""
    share = 0.0
    if not admits(bolder.utility, threshold):
        share = share_reaching(bolder.utility, safer.utility, threshold)
        share = float(nudged(bolder.utility, safer.utility, share, threshold))
    reward, utility = (float(mixed(getattr(bolder, g), getattr(safer, g), share)) for g in ("reward", "utility"))
    return bolder._replace(reward=reward, utility=utility, share=share)


def largest(found: Mapping[float, Bounded]) -> tuple[float, Bounded]:
    """The first of those with the largest optimistic reward, up to rounding, and its λ."""
    most = max(one.reward for one in found.values())
    return next((lam, one) for lam, one in found.items() if one.reward > most - TOLERANCE)


class EpsMix(Agent):
    """A candidate π̄ where its lower bound passes, else a coin that is as often π̄ as the bounds allow:

        π̄ with probability ρ = (V̲ᵘ_sf − b)/(V̲ᵘ_sf − V̲ᵘ_π̄), the incumbent otherwise

    with the bounds of `MixingBounds` at δ' = δ/4, and V̲ᵘ_sf the larger of its own and b + ξ, which the task tells.

    The paper has one signal, V^r ≥ γ, and proves zero violation, over the coin, and regret
    Õ(√(H³SAK) + H³S²A + H³SAΔ(1/κ² + S/κ)), at bonus 1. The first carries over to a utility; the second does not: a
    candidate that is greedy for the reward alone is not the best that a coin can be tossed with. So here candidates are
    greedy for Q̃ʳ + λQ̲ᵘ, with λ = 0, the paper's, and six others; the coin of the largest optimistic reward is tossed.

    After Li, Huang, Shen and Yang, ICML 2023, Algorithm 4. What a candidate does by itself is not bounded.

    Args:
        task: what the learner is told.
        delta: δ.
        bonus: multiplies every bonus.
        replan: when to plan again.
    """

    name: ClassVar[str] = "epsmix"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: Task, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        task.only("threshold")
        self.confidence, self.learner = Confidence(None, delta, bonus), TransitionCounts(task)

    def _propose(self) -> Plan:
        task = self.task
        problem = MixingBounds(task, self.learner, self.confidence, 4)
        safe = as_told(task, problem.of_table(task.safe_policy.table()))
        candidates = zip(MULTIPLIERS, problem.of_greedy(MULTIPLIERS), strict=True)
        lam, coin = largest({lam: with_safer(one, safe, task.threshold) for lam, one in candidates})
        if coin.share == 1:
            return self._incumbent("no mixture with a candidate passes")
        candidate = TablePolicy(coin.policy)
        if coin.share == 0:
            return Plan(candidate, "search", lam, coin.utility, self.level)
        mixture = MixturePolicy((candidate, task.safe_policy), (1 - coin.share, coin.share), ("candidate", "incumbent"))
        return Plan(mixture, "search", lam, coin.utility, self.level)


class StepMix(Agent):
    """Of the policies π^j, the incumbent up to step j and a candidate π̄ after it, the smallest j whose bound passes:

        π̄ where j = 0, else (1−ρ)π^j + ρπ^{j−1}, which differ at step j only,  ρ = (V̲ᵘ_j − b)/(V̲ᵘ_j − V̲ᵘ_{j−1})

    with the bounds of `MixingBounds` at δ' = δ/(3(H+1)); π^H is the incumbent, and V̲ᵘ_H the larger of its own and the
    b + ξ that the task tells.

    The paper has one signal, V^r ≥ γ, and proves zero violation, without a coin over episodes, and regret, at bonus 1;
    as for EpsMix the first carries over to a utility and the second does not. So here candidates are greedy for
    Q̃ʳ + λQ̲ᵘ, with λ = 0, the paper's, and six others; the one of the largest optimistic reward is deployed.

    After Li, Huang, Shen and Yang, ICML 2023, Algorithm 1.

    Args:
        task: what the learner is told.
        delta: δ.
        bonus: multiplies every bonus.
        replan: when to plan again.
    """

    name: ClassVar[str] = "stepmix"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: Task, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        task.only("threshold")
        self.confidence, self.learner = Confidence(None, delta, bonus), TransitionCounts(task)

    def _propose(self) -> Plan:
        task = self.task
        problem = MixingBounds(task, self.learner, self.confidence, 3 * (task.horizon + 1))
        safe = as_told(task, problem.of_table(task.safe_policy.table()))
        candidates = zip(MULTIPLIERS, problem.of_greedy(MULTIPLIERS), strict=True)
        lam, best = largest({lam: _stepped(problem, one, safe, task.threshold) for lam, one in candidates})
        if best.policy is safe.policy:
            return self._incumbent("no policy that steps over to a candidate passes")
        return Plan(TablePolicy(best.policy), "search", lam, best.utility, self.level)


def _stepped(problem: MixingBounds, candidate: Bounded, safe: Bounded, threshold: float) -> Bounded:
    """The mixture of π^{j−1} and π^j at the smallest j that passes; π^H is the incumbent, which does."""
    if admits(candidate.utility, threshold):
        return candidate
    steps = [candidate, *problem.of_steps(safe.policy, candidate), safe]
    j = next(j for j, one in enumerate(steps) if admits(one.utility, threshold))
    before, now = steps[j - 1 : j + 1]
    both = with_safer(before, now, threshold)
    if now is safe and both.share == 1:
        return safe
    return both._replace(policy=(1 - both.share) * before.policy + both.share * now.policy)

"""Bounds of values from both sides by empirical variances, after Li et al. 2023, for reward and utility."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.mixing import admits, nudged, share_reaching
from episafe.learning.transition_counts import TransitionCounts
from episafe.problems.task import Task
from episafe.types import Array

Promising = TypeVar("Promising", bound="HasReward")
Choice = Callable[[int, Array, Array], Array]  # (h, Q̃ʳ (S, A), Q̲ᵘ (S, A)) ↦ π_h (S, A)


class HasReward(Protocol):
    """What promises a reward."""

    @property
    def reward(self) -> float:
        """Ṽʳ(s₁)."""


class Bounded(NamedTuple):
    """Ṽʳ(s₁) and V̲ᵘ(s₁) of a policy, and its table (H, S, A)."""

    reward: float
    utility: float
    policy: Array


class MixingBounds:
    """Upper and lower bounds of V^r and V^u of any policy, with n visits of a pair and P̂ uniform where n = 0:

        Q̃ = min{H, g + P̂Ṽ + m(3√(Var_P̂(Ṽ)β*/n) + 14H²β/n + P̂(Ṽ−V̲)/H)}
        Q̲ = max{0, g + P̂V̲ − m(3√(Var_P̂(Ṽ)β*/n) + 22H²β/n + 2P̂(Ṽ−V̲)/H)}
        β = ln(SAH/δ') + S ln(8e(n+1)),   β* = ln(SAH/δ') + ln(8e(n+1)),   m the multiplier

    Where n = 0 they are H and 0. They hold for all policies at once where m = 1.

    Args:
        task: what the learner is told.
        counts: what was seen, and m.
        delta: δ'.
    """

    def __init__(self, task: Task, counts: TransitionCounts, delta: float) -> None:
        H, S, A = task.reward.shape
        self._signals, self._start = np.stack([task.reward, task.utility]), task.initial_state
        self._bonus, visits = counts.confidence.bonus, counts.visits
        self._kernel = counts.kernel().reshape(H, S * A, S)
        first, grown, n = np.log(S * A * H / delta), np.log(8 * np.e * (visits + 1)), np.maximum(visits, 1)
        self._spread, self._bias = (first + grown) / n, H**2 * (first + S * grown) / n
        self._unseen = visits == 0

    def of(self, choose: Choice) -> Bounded:
        """The policy that is chosen step by step, the last one first, with its bounds."""
        _, H, S, A = self._signals.shape
        upper, lower, policy = np.zeros((2, S)), np.zeros((2, S)), np.empty((H, S, A))
        for h in reversed(range(H)):
            high, low = self._step(h, upper, lower)
            policy[h] = choose(h, high[0], low[1])
            upper, lower = ((policy[h] * Q).sum(axis=-1) for Q in (high, low))
        return Bounded(float(upper[0, self._start]), float(lower[1, self._start]), policy)

    def of_table(self, table: Array) -> Bounded:
        """A policy (H, S, A) with its bounds."""
        return self.of(lambda h, *_: table[h])

    def of_greedy(self, lam: float) -> Bounded:
        """The policy that is greedy for Q̃ʳ + λQ̲ᵘ, with its bounds."""
        actions = np.eye(self._signals.shape[3])
        return self.of(lambda h, high, low: actions[np.argmax(high + lam * low, axis=1)])

    def _step(self, h: int, upper: Array, lower: Array) -> tuple[Array, Array]:
        """Q̃ and Q̲ (2, S, A) at step h, from Ṽ and V̲ (2, S) after it."""
        _, H, S, A = self._signals.shape
        moments = np.concatenate([upper, lower, upper**2]) @ self._kernel[h].T
        mean, mean_low, square = moments.reshape(3, 2, S, A)
        spread = 3 * np.sqrt(np.maximum(square - mean**2, 0) * self._spread[h])
        gap, g, m = (mean - mean_low) / H, self._signals[:, h], self._bonus
        high = np.minimum(H, g + mean + m * (spread + 14 * self._bias[h] + gap))
        low = np.maximum(0, g + mean_low - m * (spread + 22 * self._bias[h] + 2 * gap))
        return np.where(self._unseen[h], float(H), high), np.where(self._unseen[h], 0.0, low)


def as_told(task: Task, incumbent: Bounded) -> Bounded:
    """The incumbent with the b + ξ that the task tells of it, where that is more than its own bound."""
    known = task.threshold + (task.slack or 0.0)
    return incumbent._replace(utility=max(known, incumbent.utility))


def share_of_safer(bolder: Bounded, safer: Bounded, threshold: float) -> float:
    """The least share of `safer`, which passes, with which the bound of both together passes in float64."""
    if admits(bolder.utility, threshold):
        return 0.0
    share = share_reaching(bolder.utility, safer.utility, threshold)
    return float(nudged(bolder.utility, safer.utility, share, threshold))


def largest(found: Mapping[float, Promising]) -> tuple[float, Promising]:
    """The first of those with the largest optimistic reward, up to rounding, and its λ."""
    most = max(one.reward for one in found.values())
    return next((lam, one) for lam, one in found.items() if one.reward > most - TOLERANCE)

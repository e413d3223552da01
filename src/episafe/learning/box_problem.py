"""The best policies by a confidence box of kernels: optimistic in the reward, pessimistic in the utility."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.transition_box import TransitionBox, greedy_bounds, policy_bounds
from episafe.problems.dual_search import Mixture, best_mixture
from episafe.types import Array

MULTIPLIERS = (0.0, 0.05, 0.2, 0.7, 2.5, 10.0, 40.0)  # that every search begins with; they touch the regret alone


class Candidate(NamedTuple):
    """V̄ʳ(s₁) and V̲ᵘ(s₁) of a policy, and its table (H, S, A)."""

    reward: float
    utility: float
    policy: Array


class BoxProblem:
    """max over π of V̄ʳ(s₁) s.t. V̲ᵘ(s₁) ≥ b, each by a kernel of its own from the box: see `kernels.transition_box`.

    Backward induction that is greedy for V̄ʳ + λV̲ᵘ is best in that direction where the two kernels are alike, and nearly
    so elsewhere. So all that was found is kept, and a search begins with several λ.

    Args:
        signals: reward and utility (2, H, S, A).
        lower, upper: the box (steps, S, A, S).
        initial_state: s₁.
    """

    def __init__(self, signals: Array, lower: Array, upper: Array, initial_state: int) -> None:
        self._signals, self._start = signals, initial_state
        self._box = TransitionBox(lower, upper, 1 - lower.sum(axis=-1))
        self._found: dict[bytes, Candidate] = {}

    def evaluated(self, policy: Array) -> Candidate:
        """A policy (H, S, A) with its bounds."""
        reward, utility = policy_bounds(self._signals, policy, self._box)[:, self._start].tolist()
        return Candidate(reward, utility, policy)

    def best_mixture(self, threshold: float, *others: Candidate) -> Mixture[Array]:
        """The best mixture of what is found and of `others`, which are preferred where they are as good."""

        def best(reward_weight: float, utility_weight: float) -> Candidate:
            self._look(reward_weight, utility_weight)
            known = (*others, *self._found.values())
            return max(known, key=lambda one: reward_weight * one.reward + utility_weight * one.utility)

        for lam in MULTIPLIERS:
            self._look(1.0, lam)
        return best_mixture(best, threshold)

    def _look(self, reward_weight: float, utility_weight: float) -> None:
        """Find the policy that is greedy for this direction."""
        actions, V = greedy_bounds(self._signals, np.array([reward_weight, utility_weight]), self._box)
        name = actions.tobytes()
        if name not in self._found:
            reward, utility = V[:, self._start].tolist()
            self._found[name] = Candidate(reward, utility, np.eye(self._signals.shape[3])[actions])

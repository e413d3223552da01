"""The best policies by a confidence box of kernels: optimistic in the reward, pessimistic in the utility."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.mixture_weights import mixture_bounds, solved_program
from episafe.kernels.transition_box import TransitionBox, greedy_bounds, policy_bounds
from episafe.problems.dual_search import Mixture, best_mixture
from episafe.types import Amount, Array, amount, amounts

ROUNDS = 30  # of the linear program of several constraints
MULTIPLIERS = (0.0, 0.05, 0.2, 0.7, 2.5, 10.0, 40.0)  # that every search begins with; they touch the regret alone
SeveralMixture = tuple[Array, list[tuple[float, Array]], Array]  # its bounds (m,), its parts by share, multipliers (m,)


class Candidate(NamedTuple):
    """V̄ʳ(s₁) and V̲ᵘ(s₁) of a policy, (m,) of several constraints, and its table (H, S, A)."""

    reward: float
    utility: Amount
    policy: Array


class BoxProblem:
    """max over π of V̄ʳ(s₁) s.t. V̲ᵘ(s₁) ≥ b, each by a kernel of its own from the box: see `kernels.transition_box`.

    Backward induction that is greedy for V̄ʳ + Σ_c λ_c V̲_c is best in that direction where the kernels are alike, and
    nearly so elsewhere. So all that was found is kept, and a search begins with several λ.

    Args:
        signals: reward and utilities (1 + m, H, S, A).
        lower, upper: the box (steps, S, A, S).
        initial_state: s₁.
    """

    def __init__(self, signals: Array, lower: Array, upper: Array, initial_state: int) -> None:
        self._signals, self._start = signals, initial_state
        self._box = TransitionBox(lower, upper, 1 - lower.sum(axis=-1))
        self._found: dict[bytes, Candidate] = {}

    def evaluated(self, policy: Array) -> Candidate:
        """A policy (H, S, A) with its bounds."""
        reward, *utilities = policy_bounds(self._signals, policy, self._box)[:, self._start].tolist()
        return Candidate(reward, amount(utilities), policy)

    def best_mixture(self, threshold: float, *others: Candidate) -> Mixture[Array]:
        """The best mixture of what is found and of `others`, which are preferred where they are as good."""

        def best(reward_weight: float, utility_weight: float) -> Candidate:
            self._look(np.array([reward_weight, utility_weight]))
            known = (*others, *self._found.values())
            return max(known, key=lambda one: reward_weight * one.reward + utility_weight * one.utility)

        for lam in MULTIPLIERS:
            self._look(np.array([1.0, lam]))
        return best_mixture(best, threshold)

    def safest(self, thresholds: Array, *others: Candidate) -> Candidate:
        """Of `others` and of what a first look around finds, the policy with the most room where it has least."""
        m = len(thresholds)
        for lam in MULTIPLIERS:
            for direction in (*np.eye(m), np.ones(m)):
                self._look(np.append(1.0, lam * direction))
        self._look(np.append(0.0, np.ones(m)))
        return max((*others, *self._found.values()), key=lambda one: float((one.utility - thresholds).min()))

    def best_mixture_of_several(self, thresholds: Array, base: Candidate, *others: Candidate) -> SeveralMixture:
        """The best mixture of `base`, which keeps every constraint, of `others` and of all that is found.

        A small linear program mixes what was found; its multipliers are the direction to look in next.
        """
        for _ in range(ROUNDS):
            known = [base, *others, *self._found.values()]
            lower = np.array([amounts(one.utility) for one in known])
            scores, in_use = np.array([one.reward for one in known]), np.ones(len(known), dtype=np.int64)
            weights, multipliers = solved_program(scores, lower, thresholds, in_use)
            if not self._look(np.append(1.0, multipliers)):
                break
        parts = [(float(weights[j]), known[j].policy) for j in np.flatnonzero(weights).tolist()]
        return mixture_bounds(weights, lower), parts, multipliers

    def _look(self, weights: Array) -> bool:
        """Find the policy that is greedy for this direction; whether it is a new one."""
        actions, V = greedy_bounds(self._signals, weights, self._box)
        name = actions.tobytes()
        if name in self._found:
            return False
        reward, *utilities = V[:, self._start].tolist()
        self._found[name] = Candidate(reward, amount(utilities), np.eye(self._signals.shape[3])[actions])
        return True

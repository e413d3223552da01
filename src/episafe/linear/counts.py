"""What tabular agents learn: how often each (h, s, a) led to each s', radii made of it, and the best pairs of a box.

Shapes: counts (H, S, A, S), signals (1 + m, H, S, A) with the reward first, policies (H, S, A).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from episafe.core.agent import EVERY, Agent, Replanning
from episafe.core.checks import as_count, as_probability, as_scale, require
from episafe.core.policy import TablePolicy
from episafe.core.task import ProblemLike, Task, task_of
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.kernels.tabular import Greedy, extended_greedy, extended_occupancy
from episafe.kernels.tabular_optimum import (
    Best,
    BestMixture,
    Parts,
    best_mixture,
    markov_policy,
)

Choice = Callable[[int, Array], Array]  # (h, Q (1 + m, S, A)) -> π_h (S, A)


def needs_tables(problem: ProblemLike) -> str:
    """Return "" or why a tabular agent cannot play a problem."""
    task = task_of(problem)
    if not task.is_listed:
        return "it counts every (s, a, s'), so it needs listed states: use es.LinearCMDP"
    if not task.knows_reward or not task.knows_utility:
        return "it plans with known rewards and utilities: give them as tables (H, S, A)"
    return ""


def needs_one_limit(problem: ProblemLike) -> str:
    """Return "" or why an agent with one multiplier cannot play a problem."""
    several = task_of(problem).num_constraints > 1
    return (
        "it supports one limit: use DOPE, or another agent that supports several" if several else needs_tables(problem)
    )


def known_signals(task: Task, needs: Callable[[Task], str] = needs_tables) -> Array:
    """Return reward and utilities as one array (1 + m, H, S, A); raise InvalidProblem if the task is no table."""
    require(not needs(task), needs(task))
    assert task.utilities is not None
    return np.concatenate([task.reward[None], task.utilities])


@dataclass(frozen=True)
class Confidence:
    """What a published radius depends on beside the counts.

    Attributes:
        delta: δ, the probability with which it may fail.
        bonus: factor on every bonus; 1 is the published one.
        num_episodes: K, in its logarithms; None where they have none.
    """

    delta: float
    bonus: float
    num_episodes: int | None = None

    def __post_init__(self) -> None:
        as_probability("delta", self.delta)
        as_scale("bonus", self.bonus)
        if self.num_episodes is not None:
            as_count("num_episodes", self.num_episodes)

    def log_term(self, factor: float) -> float:
        """Return ln(factor·K/δ)."""
        assert self.num_episodes is not None
        return math.log(factor * self.num_episodes / self.delta)

    def settings(self) -> Settings:
        """Return δ, the factor and K where there is one, by the names of the agents' arguments."""
        counted = {} if self.num_episodes is None else {"num_episodes": self.num_episodes}
        return counted | {"delta": self.delta, "bonus": self.bonus}


@dataclass(frozen=True)
class Radius:
    """Half-width of a box of kernels, γ = min{cap, deviation·√(p̂(1−p̂)/(n∨1)) + bias/(n∨1)}.

    The default is that of the OPSE paper, without constants or logarithms, plus the 1/(n∨1) of its released code. With
    the radius of the text alone the box is a single point after one visit.
    """

    deviation: float = 1.0
    bias: float = 1.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        fits = self.deviation >= 0 and self.bias >= 0 and self.cap >= 0
        require(fits, f"deviation, bias and cap must be >= 0, got {self}")

    @classmethod
    def bernstein(cls, task: Task, confidence: Confidence, factor: float, cap: float = math.inf) -> "Radius":
        """Return min{cap, bonus·(2√(p̂(1−p̂)L/(n∨1)) + 14L/(3(n∨1)))}, L = ln(factor·SAHK/δ).

        The factor is 2 and the cap `bonus` in Bura et al.; Efroni et al. have 6 and no cap.
        """
        triples = (task.num_states or 0) * (task.num_actions or 0) * (task.horizon or 0)
        log_term, bonus = confidence.log_term(factor * triples), confidence.bonus
        return cls(bonus * 2 * math.sqrt(log_term), bonus * 14 * log_term / 3, cap)


PLAIN = Radius()


class KernelBox(NamedTuple):
    """Confidence set of the kernel: `lower`, `upper`, both (H, S, A, S), and `bonus` β (H, S, A) = Σ_{s'} γ."""

    lower: Array
    upper: Array
    bonus: Array


class TransitionCounts:
    """Counts n_h(s, a, s') of all episodes, with the signals that the task knows.

    Attributes:
        signals: reward and utilities (1 + m, H, S, A).
        times, visits: n_h(s, a, s'), shape (H, S, A, S), and n_h(s, a), shape (H, S, A).
        num_episodes: how many episodes were counted.
    """

    def __init__(self, task: Task, needs: Callable[[Task], str] = needs_tables) -> None:
        self.signals = known_signals(task, needs)
        self.shape: tuple[int, int, int] = self.signals.shape[1:]
        self.times: Array = np.zeros((*self.shape, self.shape[1]))
        self.visits: Array = np.zeros(self.shape)
        self.num_episodes = 0

    def observe(self, episode: Episode) -> None:
        """Count the transitions of an episode in canonical form."""
        at = np.arange(self.shape[0]), episode.states[:-1], episode.actions
        self.times[*at, episode.states[1:]] += 1
        self.visits[at] += 1
        self.num_episodes += 1

    def kernel(self) -> Array:
        """Return P̂_h(s'|s,a) = n_h(s,a,s')/n_h(s,a), shape (H, S, A, S); uniform where nothing was seen."""
        P_hat = self.times / np.maximum(self.visits, 1)[..., None]
        P_hat[self.visits == 0] = 1 / self.shape[1]
        return P_hat

    def box(self, radius: Radius) -> KernelBox:
        """Return the box P̂ ± γ, cut to [0, 1], and β = Σ_{s'} γ.

        Where a pair was never visited, p̂ = 0 and the box is all of [0, 1] for every γ.
        """
        n = np.maximum(self.visits, 1)[..., None]
        p_hat = self.times / n
        gamma = np.minimum(radius.cap, radius.deviation * np.sqrt(p_hat * (1 - p_hat) / n) + radius.bias / n)
        upper = np.where(self.visits[..., None] > 0, np.minimum(1.0, p_hat + gamma), 1.0)
        return KernelBox(np.maximum(0.0, p_hat - gamma), upper, np.cumsum(gamma, axis=-1)[..., -1])


class CountingAgent(Agent):
    """An agent that learns by counting transitions; subclasses write `decide`.

    Args:
        problem: a problem or its task.
        num_episodes: K, in log terms and steps; None where there are none.
        delta: δ.
        bonus: factor on every bonus; 1 is the published one.
        replan: when to plan again, which is when multipliers are stepped; information is ln(n_h(s,a) ∨ 1).

    Attributes:
        lams: multipliers (m,), of agents that step them.
    """

    def __init__(
        self, problem: ProblemLike, num_episodes: int | None, delta: float = 0.05, bonus: float = 1.0,
        replan: Replanning = EVERY,
    ) -> None:  # fmt: skip
        super().__init__(problem, replan)
        self.counts = TransitionCounts(self.task, self.facts.needs)
        self.confidence = Confidence(delta, bonus, num_episodes)
        self.lams: Array = np.zeros(self.task.num_constraints)

    def as_plan(self, table: Array, bounds: Array, lams: Array) -> Plan:
        """Return the plan of a policy (H, S, A), with what is known of its utilities and its multipliers, both (m,)."""
        return Plan(TablePolicy(table), "search", bounds, self.level, lam=float(lams.sum()))

    def observe(self, episode: Episode) -> None:
        """Count the transitions of an episode."""
        self.counts.observe(episode)

    def information(self) -> Array:
        """Return ln(n_h(s, a) ∨ 1), shape (H, S, A), by which `Doubling` decides."""
        return np.log(np.maximum(self.counts.visits, 1))

    def settings(self) -> Settings:
        """Return the general settings with K, δ and the factor on bonuses."""
        return super().settings() | self.confidence.settings()


# the best policy and the best kernel of a box


def extended_optimum(signals: Array, box: KernelBox, thresholds: Array, initial_state: int) -> BestMixture[Greedy]:
    """Return max over π and P' in the box of V^r_{P'}(s₁) s.t. V^u_{P'}(s₁) ≥ b: a mixture of (π, P') pairs.

    The pairs are the vertices of the extended occupancies z_h(s,a,s'), a convex set, so that the dual is exact. It
    replaces a linear program of HS²A variables. Without a feasible mixture it is the one that misses b by least.
    """
    return best_mixture(best_pair(signals, box, initial_state), thresholds)


def best_pair(signals: Array, box: KernelBox, initial_state: int) -> Best[Greedy]:
    """Return the function: weights (1 + m,) -> values (1 + m,) of the best pair (π, P') for the weighted signals."""

    def best(weights: Array) -> tuple[Array, Greedy]:
        actions, order, V = extended_greedy(signals, weights, box.lower, box.upper)
        return V[:, initial_state], (actions, order)

    return best


def markov_table(box: KernelBox, parts: Parts[Greedy], initial_state: int) -> Array:
    """Return π_h(a|s) = Σ_{s'} z_h(s,a,s') / Σ_{a,s'} z_h(s,a,s') of the mixed occupancy z; uniform where it is 0/0."""
    H, S, A = box.bonus.shape
    mass, (steps, states) = np.zeros((H, S, A)), np.indices((H, S))
    for weight, (actions, order) in parts:
        reached = extended_occupancy(box.lower, box.upper, actions, order, initial_state)
        mass[steps, states, actions] += weight * reached
    return markov_policy(mass, elsewhere=1 / A)


def clipped_pass(P: Array, signals: Array, limits: Array, choose: Choice) -> tuple[Array, Array, Array]:
    """Return Q^g_h = min{g + PV^g_{h+1}, limits_h} of each signal g, a policy chosen by Q, and V^g_1.

    Args:
        P: (H, S, A, S).
        signals: (G, H, S, A).
        limits: (H,).
        choose: π_h (S, A) by Q_h (G, S, A).

    Returns:
        Q (G, H, S, A), π (H, S, A) and V^g_h = Σ_a π(a|s) Q^g_h at the first step, (G, S).
    """
    G, H, S, A = signals.shape
    V, Q, policy = np.zeros((G, S)), np.empty(signals.shape), np.empty((H, S, A))
    for h in reversed(range(H)):
        later = (P[h].reshape(S * A, S) @ V.T).T.reshape(G, S, A)
        Q[:, h] = np.minimum(signals[:, h] + later, limits[h])
        policy[h] = choose(h, Q[:, h])
        V = (policy[h] * Q[:, h]).sum(axis=-1)
    return Q, policy, V

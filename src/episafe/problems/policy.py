"""Policies: what acts. Anything with `probabilities(h, state)`, for a finite task also a table; and mixtures."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from episafe.checks import as_distributions
from episafe.types import Array


class Policy(Protocol):
    """A Markov policy π_h(a|s), steps counted from 0."""

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,), at any state, seen before or not."""
        ...

    def table(self) -> Array:
        """π as an array (H, S, A), every row filled, for a finite task."""
        ...

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h(·|state)."""
        ...


class Acting(ABC):
    """What every policy can do that has probabilities: draw an action."""

    @abstractmethod
    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h(·|state): the first a with Σ_{b ≤ a} π_b > U, U uniform in [0, 1)."""
        sums = np.cumsum(self.probabilities(h, state))
        return int(np.searchsorted(sums / sums[-1], rng.random(), side="right"))


class TablePolicy(Acting):
    """A policy given by its table (H, S, A)."""

    def __init__(self, table: Any) -> None:
        self._table = as_distributions("policy", table, (None, None, None))

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        H, S, _ = self._table.shape
        in_range("step", h, H)
        in_range("state", state, S)
        row: Array = self._table[h, state]
        return row

    def table(self) -> Array:
        """The table itself (H, S, A), read-only."""
        return self._table


def in_range(name: str, value: Any, below: int) -> None:
    """Refuse what is no index in [0, below): a negative one would silently mean another."""
    if not 0 <= value < below:
        raise ValueError(f"{name} must be in [0, {below}), got {value!r}")


class MixturePolicy(Acting):
    """One of several policies for a whole episode, drawn by a coin before it begins.

    Its expected utility is Σ weight·(that of the component). It is no Markov policy, so it has neither probabilities
    nor a table: draw a component, and tell `learn` which one acted.

    Args:
        components: the policies.
        weights: their probabilities.
    """

    def __init__(self, components: Sequence[Policy], weights: Any) -> None:
        self.components = tuple(components)
        self.weights = as_distributions("weights", weights, (len(self.components),))

    def draw(self, rng: np.random.Generator) -> tuple[int, Policy]:
        """Toss the coin: the index of a component and that policy."""
        above = np.cumsum(self.weights) > rng.random()
        index = int(np.argmax(above)) if above.any() else len(self.components) - 1
        return index, self.components[index]

    def probabilities(self, h: int, state: Any) -> Array:
        """Not to be had: a component acts for a whole episode."""
        raise ValueError("a mixture acts through one component: draw it with .draw(rng) before the episode")

    def table(self) -> Array:
        """Not to be had: a component acts for a whole episode."""
        raise ValueError("a mixture has no table: take those of its .components, or draw one with .draw(rng)")


def components_of(policy: Policy) -> tuple[tuple[Policy, ...], list[float]]:
    """Components and weights of a mixture; of any other policy, itself with weight 1."""
    if isinstance(policy, MixturePolicy):
        return policy.components, [float(weight) for weight in policy.weights]
    return (policy,), [1.0]


def uniform_table(horizon: int, num_states: int, num_actions: int) -> Array:
    """π_h(a|s) = 1/A, shape (H, S, A)."""
    return np.full((horizon, num_states, num_actions), 1 / num_actions)


def deterministic_table(actions: Any, num_actions: int) -> Array:
    """Table (H, S, A) of the policy that takes `actions` (H, S)."""
    table: Array = np.eye(num_actions)[np.asarray(actions)]
    return table

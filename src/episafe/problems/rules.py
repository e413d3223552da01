"""Problems given by rules: what chance may bring and how the system moves. Small ones are listed, all can be played."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any

import numpy as np

from episafe.arrays import Array
from episafe.errors import InvalidProblem
from episafe.problems.cmdp import LinearCMDP

State = tuple[int, ...]
Chance = tuple[Any, Any]  # the values that something may take, and their probabilities
MAX_LISTED = 1_000  # states that `listed` will make arrays of


class Rules(ABC):
    """A system that a decision and chance move; write one to have your own problem listed or played.

    Attributes:
        horizon: H.
        num_actions: A.
        shape: how many values each number of a state takes.
        start: the first state.
    """

    horizon: int
    num_actions: int
    shape: State
    start: State

    @abstractmethod
    def chances(self, h: int, state: State) -> list[Chance]:
        """What chance decides in this step, each by itself: values and probabilities."""

    @abstractmethod
    def move(self, h: int, state: State, action: int, luck: tuple[Any, ...]) -> tuple[State, float, float]:
        """Next state, reward and utility in [0, 1], given one value of each chance."""

    @abstractmethod
    def incumbent(self, h: int, state: State) -> int:
        """The action of the policy in use today."""

    def after(self, state: State, action: int) -> Hashable:
        """All that the next state depends on. Where several pairs share it, they share what is learned."""
        return (state, action)

    def probabilities(self, h: int, state: Any) -> Array:
        """The incumbent as a distribution on actions, (A,)."""
        return np.eye(self.num_actions)[self.incumbent(h, tuple(int(x) for x in state))]


def listed(rules: Rules, threshold: float, *, origin: Mapping[str, str | int | float] | None = None) -> LinearCMDP:
    """The rules as arrays: every state that can be reached, with exact P, mean reward and mean utility.

    Features mark `rules.after(state, action)`; where that is the pair itself they are one-hot and not built.
    """
    index = _reachable(rules)
    H, S, A = rules.horizon, len(index), rules.num_actions
    P, reward, utility = np.zeros((H, S, A, S)), np.zeros((H, S, A)), np.zeros((H, S, A))
    incumbent = np.zeros((H, S, A))
    for h, (state, s) in product(range(H), index.items()):
        incumbent[h, s, rules.incumbent(h, state)] = 1.0
        for luck, probability in _outcomes(rules, h, state):
            for a in range(A):
                following, r, u = rules.move(h, state, a, luck)
                P[h, s, a, index[following]] += probability
                reward[h, s, a] += probability * r
                utility[h, s, a] += probability * u
    P /= P.sum(axis=3, keepdims=True)  # products of probabilities sum to 1 up to rounding
    return LinearCMDP(
        P, reward, utility, phi=_features(rules, index), initial_state=index[rules.start], threshold=threshold,
        safe_policy=incumbent, origin=origin,
    )  # fmt: skip


def _outcomes(rules: Rules, h: int, state: State) -> list[tuple[tuple[Any, ...], float]]:
    """Every combination of chances with its probability; impossible ones are left out."""
    each = [list(zip(values, probabilities, strict=True)) for values, probabilities in rules.chances(h, state)]
    found = [(tuple(v for v, _ in pairs), float(np.prod([p for _, p in pairs]))) for pairs in product(*each)]
    return [(luck, probability) for luck, probability in found if probability > 0]


def _reachable(rules: Rules) -> dict[State, int]:
    """The states that can be reached at any step from the start, numbered."""
    index, layer = {rules.start: 0}, {rules.start}
    for h in range(rules.horizon):
        reached = {
            rules.move(h, state, a, luck)[0]
            for state in layer
            for luck, _ in _outcomes(rules, h, state)
            for a in range(rules.num_actions)
        }
        for state in sorted(reached - index.keys()):
            index[state] = len(index)
        if len(index) > MAX_LISTED:
            raise InvalidProblem(
                f"more than {MAX_LISTED} states can be reached, too many for arrays: play the rules with "
                "episafe.envs.gymnasium.RulesEnv and es.from_gymnasium"
            )
        layer = set(index)
    return index


def _features(rules: Rules, index: dict[State, int]) -> Array | None:
    """φ (S, A, d) that marks what the next state depends on; None where that is the state and the action."""
    names: dict[Hashable, int] = {}
    pairs = np.array(
        [[names.setdefault(rules.after(s, a), len(names)) for a in range(rules.num_actions)] for s in index]
    )
    if len(names) == pairs.size:
        return None
    phi: Array = np.eye(len(names))[pairs]
    return phi


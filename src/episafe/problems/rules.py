"""Problems given by rules: what chance may bring and how the system moves. Small ones are listed, all can be played."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from episafe.checks import TOLERANCE
from episafe.errors import InvalidProblem, UnlistedChance
from episafe.problems.cmdp import LinearCMDP, require_room
from episafe.problems.listed_move import NOWHERE, ListedMove, chance_key, is_exogenous
from episafe.types import Amount, Array, amount, amounts

State = tuple[int, ...]
Chance = tuple[Any, Any]  # the values that something may take, and their probabilities
# a move: step, state, action, next state, probability, reward, utility, and what chance brings
Moved = tuple[int, int, int, int, float, float, Amount, tuple[Any, ...]]
MAX_LISTED = 1_000  # states that `listed` will make arrays of


class Rules(ABC):
    """A system that a decision and chance move; write one to have your own problem listed or played.

    Attributes:
        horizon: H.
        num_actions: A.
        shape: how many values each number of a state takes.
        start: the first state.
        time_homogeneous: whether chances and moves are the same at every step.
        names: what people read of the constraints, where moves have several utilities.
    """

    horizon: int
    num_actions: int
    shape: State
    start: State
    time_homogeneous: bool = False
    names: tuple[str, ...] = ()

    @abstractmethod
    def chances(self, h: int, state: State) -> list[Chance]:
        """What chance decides in this step, each by itself: values and probabilities."""

    @abstractmethod
    def move(self, h: int, state: State, action: int, luck: tuple[Any, ...]) -> tuple[State, float, Amount]:
        """Next state, reward and utility in [0, 1], given one value of each chance, and nothing else that is random.

        The utility is a number, or a tuple of one for each constraint.
        """

    @abstractmethod
    def incumbent(self, h: int, state: State) -> Array:
        """The policy in use today: probabilities of the actions, (A,)."""

    def after(self, state: State, action: int) -> Hashable:
        """All that the next state depends on. Where several pairs share it, they share what is learned."""
        return (state, action)


def listed(
    rules: Rules,
    threshold: Any,
    *,
    slack: Any = None,
    least_total: Any = 0.0,
    origin: Mapping[str, str | int | float] | None = None,
) -> LinearCMDP:
    """The rules as arrays: every state that moves lead to, with exact P, mean reward and mean utility.

    Where chance does not depend on what is done, the problem is exogenous and its task tells `move`. Features mark
    `rules.after(state, action)`; where that is the pair itself they are one-hot and not built. States are numbered as
    they are found: `problem.state_names[s]` is the state of the rules with number s. With several utilities give lists
    of as many thresholds, or mappings by `rules.names`; so too slacks and least totals.

    Args:
        rules: the system.
        threshold: b, the expected total utility of an episode that is to be kept.
        slack: what the incumbent has above the threshold at least, as measured on the real system. None: what it has
            under the law of `rules.chances`, which is right in a simulation; where that law is a guess, so is this.
        least_total: what the total utility of every episode is at least, whatever is done.
        origin: plain values that are kept with every record.
    """
    return LinearCMDP(**tables(rules), threshold=threshold, slack=slack, least_total=least_total, origin=origin)


def tables(rules: Rules) -> dict[str, Any]:
    """What a `LinearCMDP` is made of, all but the limits."""
    index, moves = _explored(rules)
    H, S, A = rules.horizon, len(index), rules.num_actions
    require_room(f"P of {H} steps, {S} states and {A} actions", 8 * H * S * A * S)
    steps, m = 1 if rules.time_homogeneous else H, np.size(moves[0][6])
    P, reward, utility = np.zeros((steps, S, A, S)), np.zeros((steps, S, A)), np.zeros((steps, S, A, m))
    for h, s, a, following, probability, r, u, _ in moves:
        P[h, s, a, following] += probability
        reward[h, s, a] += probability * r
        utility[h, s, a] += probability * np.asarray(u)
    exogenous = _exogenous(rules, index, moves, steps)
    P, reward, utility = (np.repeat(array, H // steps, axis=0) for array in (P, reward, utility))
    P /= P.sum(axis=3, keepdims=True)  # products of probabilities sum to 1 up to rounding
    return {
        "P": P,
        "reward": reward,
        "utility": utility[..., 0] if m == 1 else list(np.moveaxis(utility, -1, 0)),
        "phi": _features(rules, index),
        "initial_state": index[rules.start],
        "safe_policy": [[rules.incumbent(h, state) for state in index] for h in range(H)],
        "time_homogeneous": rules.time_homogeneous,
        "names": rules.names,
        "state_names": tuple(index),
        **exogenous,
    }


def _exogenous(rules: Rules, index: dict[State, int], moves: list[Moved], steps: int) -> dict[str, Any]:
    """The moves as arrays, and the law of chance; nothing where it depends on what is done."""
    values: dict[Hashable, tuple[Any, ...]] = {}
    for *_, luck in moves:
        values.setdefault(chance_key(luck), luck)
    number = {name: i for i, name in enumerate(values)}
    shape = (steps, len(index), rules.num_actions, len(number))
    next_states, rewards, utilities = np.full(shape, NOWHERE), np.zeros(shape), np.zeros(shape + np.shape(moves[0][6]))
    law = np.zeros((shape[0], shape[1], shape[3]))
    for h, s, a, following, probability, r, u, luck in moves:
        i = number[chance_key(luck)]
        next_states[h, s, a, i], rewards[h, s, a, i], utilities[h, s, a, i] = following, r, u
        law[h, s, i] += probability * (a == 0)
    law /= law.sum(axis=2, keepdims=True)
    unlisted = partial(_moved, rules, tuple(index), index)
    move = ListedMove(tuple(values.values()), next_states, rewards, utilities, unlisted)
    return {"move": move, "law": law} if is_exogenous(move, law, index[rules.start], rules.horizon) else {}


def _moved(
    rules: Rules, states: tuple[State, ...], index: dict[State, int], h: int, state: int, action: int, luck: Any
) -> tuple[int, float, Amount]:
    """`rules.move` by the numbers of states, whatever chance brings."""
    following, reward, utility = rules.move(h, states[state], action, luck)
    if following not in index:
        raise UnlistedChance(
            f"at step {h}, state {states[state]}, action {action} chance {luck!r} leads to {following}, where no value "
            "in `chances` leads, so that no policy knows that state"
        )
    return index[following], reward, amount(amounts(utility))


def _explored(rules: Rules) -> tuple[dict[State, int], list[Moved]]:
    """The states that moves lead to, numbered, and every move."""
    index, waiting, moves = {rules.start: 0}, [rules.start], []
    while waiting:
        state = waiting.pop()
        for h in range(1 if rules.time_homogeneous else rules.horizon):
            for (luck, probability), a in product(_outcomes(rules, h, state), range(rules.num_actions)):
                following, r, u = rules.move(h, state, a, luck)
                if following not in index:
                    _require_inside(rules.shape, following, f"at step {h}, state {state}, action {a}, chance {luck}")
                    index[following] = len(index)
                    waiting.append(following)
                moves.append((h, index[state], a, index[following], probability, r, u, luck))
        if len(index) > MAX_LISTED:
            raise InvalidProblem(
                f"more than {MAX_LISTED} states can be reached, too many for arrays: play the rules with "
                "episafe.envs.gymnasium.RulesEnv and es.from_gymnasium"
            )
    return index, moves


def _require_inside(shape: State, state: Any, place: str) -> None:
    if len(state) != len(shape) or not all(0 <= number < size for number, size in zip(state, shape, strict=True)):
        raise InvalidProblem(
            f"{place}: move leads to {state}, and shape {shape} has numbers from 0 to less than each of these: correct "
            "move or shape"
        )


def _outcomes(rules: Rules, h: int, state: State) -> list[tuple[tuple[Any, ...], float]]:
    """Every combination of chances with its probability; impossible ones are left out."""
    each = [_law(h, state, *chance) for chance in rules.chances(h, state)]
    combinations = [(tuple(v for v, _ in pairs), math.prod(float(p) for _, p in pairs)) for pairs in product(*each)]
    return [(luck, probability) for luck, probability in combinations if probability > 0]


def _law(h: int, state: State, values: Any, probabilities: Any) -> list[tuple[Any, float]]:
    """Each value that something may take, with its probability."""
    given, p = list(values), np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(given),) or not (p >= 0).all() or abs(p.sum() - 1) > TOLERANCE:
        raise InvalidProblem(
            f"chances at step {h}, state {state}: {len(given)} values have the probabilities {p.tolist()}, and these "
            f"sum to {p.sum():.6g}: give one for each value, none negative, that sum to 1"
        )
    return list(zip(given, p.tolist(), strict=True))


def _features(rules: Rules, index: dict[State, int]) -> Array | None:
    """φ (S, A, d) that marks what the next state depends on; None where that is the state and the action."""
    names: dict[Hashable, int] = {}
    pairs = np.array(
        [[names.setdefault(rules.after(s, a), len(names)) for a in range(rules.num_actions)] for s in index]
    )
    if len(names) == pairs.size:
        return None
    return np.eye(len(names))[pairs]


def mostly(usual: int, other: int, num_actions: int, variation: float) -> Array:
    """Probabilities (A,) of a policy that takes one action, and another with probability `variation`."""
    p = np.zeros(num_actions)
    p[usual] += 1 - variation
    p[other] += variation
    return p

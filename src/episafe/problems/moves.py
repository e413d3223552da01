"""Exogenous chance in listed problems: how the system moves given chance, and the law of chance."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from episafe.core.checks import as_distributions, as_unit_range, require
from episafe.core.errors import InvalidEpisode
from episafe.core.types import Array, IntArray, Move, key_of
from episafe.kernels.replay import MoveTables, add_moves

NOWHERE = -1  # the next state of a value that chance cannot take there


@dataclass(frozen=True, eq=False, repr=False)
class ListedMove:
    """move(h, state, action, w) -> (next state, reward, utilities (m,)), as arrays. It does not contain the law of w.

    Attributes:
        values: the W values that chance can take.
        next_states: (n, S, A, W) with n = H, or n = 1 if all steps are the same; −1 where w is impossible.
        rewards: (n, S, A, W) in [0, 1].
        utilities: (n, S, A, W, m) in [0, 1].
        unlisted: the same function for values that are not in the arrays; None if there is none. Not saved.
    """

    values: tuple[object, ...]
    next_states: IntArray
    rewards: Array
    utilities: Array
    unlisted: Move | None = None
    _number: dict[Hashable, int] = field(init=False)

    def __post_init__(self) -> None:
        number = {key_of(w): i for i, w in enumerate(self.values)}
        shape = np.shape(self.next_states)
        whole = len(shape) == 4 and shape[3] == len(number) and np.asarray(self.next_states).dtype.kind == "i"
        require(whole, f"next_states must be whole numbers (n, S, A, {len(number)}), got shape {shape}")
        next_states = np.array(self.next_states, dtype=np.int64)
        inside = next_states.min() >= NOWHERE and next_states.max() < shape[1]
        require(inside, f"next_states must be below {shape[1]}, the number of states, or −1 for none")
        next_states.setflags(write=False)
        rewards = as_unit_range("rewards of move", self.rewards, shape)
        utilities = as_unit_range("utilities of move", self.utilities, (*shape, None))
        self.__dict__.update(next_states=next_states, rewards=rewards, utilities=utilities, _number=number)

    def __call__(self, h: int, state: int, action: int, w: object) -> tuple[int, float, Array]:
        """Return the next state, the reward and the utilities (m,) given chance w."""
        i = self._number.get(key_of(w), NOWHERE)
        at = (self.row(h), state, action, i)
        following = NOWHERE if i < 0 else int(self.next_states[at])
        if following == NOWHERE and self.unlisted is not None:
            following, reward, utility = self.unlisted(h, state, action, w)
            return following, reward, np.atleast_1d(np.asarray(utility, dtype=np.float64))
        if following == NOWHERE:
            raise InvalidEpisode(
                f"move does not know chance {w!r} at step {h} in state {state}: its values are such as "
                f"{self.values[0]!r}"
            )
        return following, float(self.rewards[at]), self.utilities[at]

    def row(self, h: int) -> int:
        """Return the row of the arrays that step h uses."""
        return h if len(self.next_states) > 1 else 0

    def support(self, h: int, state: int) -> list[object]:
        """Return the values that chance can take at a step in a state."""
        possible = (self.next_states[self.row(h), state] != NOWHERE).all(axis=0)
        return [self.values[i] for i in np.flatnonzero(possible).tolist()]

    def means(self, law: Array) -> tuple[Array, Array, Array]:
        """Return P (n, S, A, S), mean rewards (n, S, A) and utilities (m, n, S, A) under a law (n, S, W)."""
        (n, S, A, _), m = self.next_states.shape, self.utilities.shape[4]
        P, signals = np.zeros((n, S, A, S)), np.zeros((n, S, A, 1 + m))
        tables = MoveTables(self.next_states, self.rewards, self.utilities)
        add_moves(tables, np.array(law, dtype=np.float64), P, signals)
        return P, signals[..., 0], np.moveaxis(signals[..., 1:], -1, 0)


class ChanceLaw:
    """The law of chance of a listed problem, which simulators know and learners do not.

    Args:
        move: how the problem moves.
        law: ℙ(w_h = w | s_h = s), (n, S, W). Chance must not depend on the actions.
        start: s₁.
        horizon: H.
    """

    def __init__(self, move: ListedMove, law: object, start: int, horizon: int) -> None:
        n, S, _, W = move.next_states.shape
        self.move, self.law = move, as_distributions("law", law, (n, S, W))
        require(n in (1, horizon), f"move has {n} rows: give 1, if all steps are the same, or {horizon}, one per step")
        known = ((self.law[:, :, None, :] == 0) | (move.next_states != NOWHERE)).all()
        require(known, "the law has values that move does not know: give their next states")
        fault = "chance depends on the actions, so it is not exogenous: leave move and law out"
        require(is_exogenous(move, self.law, start, horizon), fault)
        self.running = np.cumsum(self.law, axis=2)  # (n, S, W)
        self._start, self._horizon = start, horizon

    def draw(self, rng: np.random.Generator) -> tuple[int, tuple[object, ...]]:
        """Draw a trace (start, (w_1, …, w_H)). It does not depend on the actions, so action 0 is used."""
        chances, state = [], self._start
        for h in range(self._horizon):
            row = self.move.row(h)
            sums = self.running[row, state]
            i = int(np.searchsorted(sums, rng.random() * sums[-1], "right"))
            chances.append(self.move.values[i])
            state = int(self.move.next_states[row, state, 0, i])
        return self._start, tuple(chances)


def is_exogenous(move: ListedMove, law: Array, start: int, horizon: int) -> bool:
    """Return whether the future of chance depends on its past alone, and not on the actions.

    Backward over h, two states are of one kind if chance has the same law in both and, for each of its values, leads
    to states of one kind. Chance is exogenous if all actions lead to states of one kind, in every reachable state.
    """
    possible, reached = law > 0, [np.arange(law.shape[1]) == start]
    for h in range(horizon - 1):
        row = move.row(h)
        comes = reached[h][:, None, None] & possible[row][:, None, :]
        following = move.next_states[row][np.broadcast_to(comes, move.next_states[row].shape)]
        now = np.zeros(law.shape[1], dtype=bool)
        now[following] = True
        reached.append(now)
    kinds, rounded = np.zeros(law.shape[1], dtype=np.int64), np.round(law, 12)
    for h in reversed(range(horizon)):
        row = move.row(h)
        ahead = np.where(possible[row][:, None, :], kinds[move.next_states[row]], NOWHERE)  # (S, A, W)
        if (ahead != ahead[:, :1])[reached[h]].any():
            return False
        described, names = np.concatenate([rounded[row], ahead[:, 0]], axis=1), dict[bytes, int]()
        kinds = np.array([names.setdefault(state.tobytes(), len(names)) for state in described])
    return True

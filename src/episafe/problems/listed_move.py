"""How a listed problem moves given chance, as arrays; and whether its chance is exogenous."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import TOLERANCE, as_distributions, as_unit_range
from episafe.errors import InvalidProblem, UnlistedChance
from episafe.storage.json_values import as_text, from_text
from episafe.types import Amount, Array, IntArray, Move, amount, amounts

NOWHERE = -1  # the next state where the law does not bring this value
ARRAYS = ("move_values", "move_next_states", "move_rewards", "move_utilities")  # names in files


@dataclass(frozen=True, eq=False, repr=False)
class ListedMove:
    """move(h, state, action, w) ↦ (next state, reward, utility). The law of w is not in here.

    Attributes:
        values: all that chance may bring, W values.
        next_states: (n, S, A, W), n = 1 where all steps are alike, else H; −1 where the law does not bring w.
        rewards: (n, S, A, W) in [0, 1].
        utilities: the same, or (n, S, A, W, m) where there are several constraints.
        unlisted: the same function for what the arrays do not say, as where chance brings more than the law of a
            simulation; None where nobody knows. No file holds it.
    """

    values: tuple[Any, ...]
    next_states: IntArray
    rewards: Array
    utilities: Array
    unlisted: Move | None = None
    _number: dict[Hashable, int] = field(init=False)

    def __post_init__(self) -> None:
        number = {chance_key(w): i for i, w in enumerate(self.values)}
        shape = np.shape(self.next_states)
        if len(shape) != 4 or shape[3] != len(number) or np.asarray(self.next_states).dtype.kind != "i":
            raise InvalidProblem(f"next_states must be whole numbers (n, S, A, {len(number)}), got shape {shape}")
        if np.min(self.next_states) < NOWHERE or np.max(self.next_states) >= shape[1]:
            raise InvalidProblem(f"next_states must be below {shape[1]}, the number of states, or −1 for none")
        next_states = np.array(self.next_states, dtype=np.int64)
        next_states.setflags(write=False)
        rewards = as_unit_range("rewards of move", self.rewards, shape)
        several = np.shape(self.utilities)[4:] if np.ndim(self.utilities) == 5 else ()
        utilities = as_unit_range("utilities of move", self.utilities, (*shape, *several))
        utilities = utilities[..., 0] if several == (1,) else utilities
        self.__dict__.update(next_states=next_states, rewards=rewards, utilities=utilities, _number=number)

    @property
    def num_constraints(self) -> int:
        """m."""
        return 1 if self.utilities.ndim == 4 else int(self.utilities.shape[4])

    def of_constraint(self, c: int) -> "ListedMove":
        """The same moves as if constraint c were the only one."""
        utilities = self.utilities if self.utilities.ndim == 4 else self.utilities[..., c]
        unlisted = None if self.unlisted is None else partial(_of_constraint, self.unlisted, c)
        return ListedMove(self.values, self.next_states, self.rewards, utilities, unlisted)

    def __call__(self, h: int, state: int, action: int, w: Any) -> tuple[int, float, Amount]:
        """Next state, reward and utility, (m,) of several constraints, given what chance brings."""
        i = self._number.get(chance_key(w), NOWHERE)
        at = (self.row(h), state, action, i)
        following = NOWHERE if i < 0 else int(self.next_states[at])
        if following == NOWHERE and self.unlisted is not None:
            return self.unlisted(h, state, action, w)
        if following == NOWHERE:
            raise UnlistedChance(
                f"nothing here says what {w!r} does at step {h} in state {state}; values of chance are such as "
                f"{self.values[0]!r}"
            )
        return following, float(self.rewards[at]), amount(np.atleast_1d(self.utilities[at]))

    def of_all_actions(self, h: int, state: int, w: Any) -> tuple[IntArray, Array] | None:
        """Of every action: next states (A,), rewards and utilities (A, 1 + m); None where the arrays do not say."""
        i = self._number.get(chance_key(w), NOWHERE)
        at = self.row(h), state
        if i < 0 or (self.next_states[at][:, i] == NOWHERE).any():
            return None
        return self.next_states[at][:, i], np.column_stack([self.rewards[at][:, i], self.utilities[at][:, i]])

    def leaves_out(self, h: int, state: int, w: Any) -> bool:
        """Whether the law brings w, and not at this step in this state."""
        i = self._number.get(chance_key(w), NOWHERE)
        return i >= 0 and bool((self.next_states[self.row(h), state, :, i] == NOWHERE).any())

    def row(self, h: int) -> int:
        """Which row of the arrays step h has."""
        return h if len(self.next_states) > 1 else 0

    def means(self, law: Array) -> tuple[Array, Array, Array]:
        """P (n, S, A, S), mean reward (n, S, A) and utility (n, S, A) or (n, S, A, m) under a law (n, S, W)."""
        n, S, A, _ = self.next_states.shape
        weights = np.where(self.next_states == NOWHERE, 0.0, law[:, :, None, :])
        P = np.zeros((n, S, A, S + 1))  # the last column is what cannot be
        np.add.at(P, (*np.indices(self.next_states.shape)[:3], self.next_states), weights)
        each = weights.reshape(*weights.shape, *(1,) * (self.utilities.ndim - 4))
        return P[..., :S], (weights * self.rewards).sum(axis=3), (each * self.utilities).sum(axis=3)

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as named arrays, from which `from_arrays` makes it again."""
        values = np.frombuffer(as_text(list(self.values)).encode(), np.uint8)
        return dict(zip(ARRAYS, (values, self.next_states, self.rewards, self.utilities), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "ListedMove | None":
        """What `as_arrays` gave; None where it is not among them."""
        if ARRAYS[0] not in arrays:
            return None
        values, next_states, rewards, utilities = (arrays[name] for name in ARRAYS)
        return cls(tuple(from_text(values.tobytes().decode())), next_states, rewards, utilities)


class ExogenousLaw:
    """The law of chance of a listed problem: known to the world, never to a learner.

    Args:
        move: how the problem moves.
        law: ℙ(w_h = w | s_h = s), (n, S, W). It must not depend on what was done.
        start: s₁.
        horizon: H.
    """

    def __init__(self, move: ListedMove, law: Any, start: int, horizon: int) -> None:
        n, S, _, W = move.next_states.shape
        self.move, self.law = move, as_distributions("law", law, (n, S, W))
        if n not in (1, horizon):
            raise InvalidProblem(f"move has {n} rows: give 1, if all steps are alike, or {horizon}, one a step")
        if ((self.law[:, :, None, :] > 0) & (move.next_states == NOWHERE)).any():
            raise InvalidProblem("the law brings what move does not know: give its next states")
        if not is_exogenous(move, self.law, start, horizon):
            raise InvalidProblem("what chance brings depends on what was done: give no move, chance is not exogenous")
        self._start, self._horizon = start, horizon

    def require_means(self, P: Array, reward: Array, utility: Array) -> None:
        """Refuse a kernel, a reward or a utility (H, …), of several constraints (H, …, m), that is not their mean."""
        for name, told, made in zip(
            ("P", "reward", "utility"), (P, reward, utility), self.move.means(self.law), strict=True
        ):
            if np.abs(told - made).max() > TOLERANCE:
                raise InvalidProblem(f"{name} is not the mean of move under the law: make both from the same rules")

    def draw(self, rng: np.random.Generator) -> tuple[int, tuple[Any, ...]]:
        """A trace. It does not depend on the actions, so that action 0 is as good a way as any."""
        chances, state = [], self._start
        for h in range(self._horizon):
            row = self.move.row(h)
            i = int(np.searchsorted(self.running[row, state], rng.random() * self.running[row, state, -1], "right"))
            chances.append(self.move.values[i])
            state = int(self.move.next_states[row, state, 0, i])
        return self._start, tuple(chances)

    @cached_property
    def running(self) -> Array:
        """Sums of the law along its last axis, (n, S, W)."""
        return np.cumsum(self.law, axis=2)


def is_exogenous(move: ListedMove, law: Array, start: int, horizon: int) -> bool:
    """Whether what chance will bring depends on what it brought, and not on what was done.

    Backward over h, states are alike if chance has the same law in both and, whatever it brings, leads to states that
    are alike. Chance is exogenous if all actions lead to states that are alike, wherever one can come to.
    """
    possible, reached = law > 0, [np.arange(law.shape[1]) == start]
    for h in range(horizon - 1):
        row = move.row(h)
        comes = reached[h][:, None, None] & possible[row][:, None, :]
        following = move.next_states[row][np.broadcast_to(comes, move.next_states[row].shape)]
        reached.append(np.isin(np.arange(law.shape[1]), following))
    kinds, rounded = np.zeros(law.shape[1], dtype=np.int64), np.round(law, 12)
    for h in reversed(range(horizon)):
        row = move.row(h)
        ahead = np.where(possible[row][:, None, :], kinds[move.next_states[row]], NOWHERE)  # (S, A, W)
        if (ahead != ahead[:, :1])[reached[h]].any():
            return False
        described, names = np.concatenate([rounded[row], ahead[:, 0]], axis=1), dict[bytes, int]()
        kinds = np.array([names.setdefault(state.tobytes(), len(names)) for state in described])
    return True


def _of_constraint(move: Move, c: int, h: int, state: int, action: int, w: Any) -> tuple[int, float, Amount]:
    following, reward, utility = move(h, state, action, w)
    return following, reward, float(amounts(utility)[c])


def chance_key(w: Any) -> Hashable:
    """What a value of chance is looked up by: itself, or its text where it cannot be hashed, as arrays and lists."""
    try:
        hash(w)
    except TypeError:
        return as_text(w)
    return w

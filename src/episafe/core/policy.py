"""Policies. `as_policy` converts an argument of the user to one of these classes."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from episafe.core.checks import as_distributions, require
from episafe.core.errors import InvalidProblem
from episafe.core.types import Array, Document, IntArray, State, StateFunction, View, index_of, is_outside, key_of


class Policy(ABC):
    """A policy: probabilities of the actions at each step and state."""

    name: str = ""  # what records call it

    @abstractmethod
    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""

    def act(self, h: int, state: State, rng: np.random.Generator) -> int:
        """Draw an action from π_h(·|state)."""
        return draw_index(self.probabilities(h, state), rng)

    def table(self) -> Array:
        """Return the table (H, S, A); raise if the states are not listed."""
        raise TypeError(
            f"{type(self).__name__} has no table, since its states are not listed: use probabilities(h, state)"
        )

    def document(self) -> Document:
        """Return the policy as JSON values, from which `es.load_policy` rebuilds it; raise TypeError if opaque."""
        raise TypeError(f"{type(self).__name__} cannot be written as data: it is given by a function")

    def save(self, path: str | Path) -> None:
        """Write the policy as a JSON file."""
        Path(path).write_text(json.dumps(self.document(), separators=(",", ":")) + "\n")


class TablePolicy(Policy):
    """A policy given by its table (H, S, A)."""

    def __init__(self, table: object, name: str = "") -> None:
        self._table, self.name = as_distributions("policy", table, (None, None, None)), name

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        return self._table[h, index_of(state)]

    def table(self) -> Array:
        """Return the table (H, S, A), read-only."""
        return self._table

    def document(self) -> Document:
        """Return the table as JSON values."""
        return {"kind": "table", "name": self.name, "table": self._table.tolist()}


class StepPolicy(Policy):
    """The same action probabilities (H, A) in every state of a step: a schedule."""

    def __init__(self, rows: object, name: str = "") -> None:
        self.rows, self.name = as_distributions("policy", rows, (None, None)), name

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h, shape (A,)."""
        return self.rows[h]

    def document(self) -> Document:
        """Return the rows as JSON values."""
        return {"kind": "steps", "name": self.name, "rows": self.rows.tolist()}


class StatesPolicy(Policy):
    """A table (H, S, A) over S given states. If states are numbers, the nearest given state decides in any other state.

    If states are not numbers, `elsewhere` decides in any other state.
    """

    def __init__(self, states: Sequence[State], table: Array, elsewhere: Policy, name: str = "") -> None:
        self.states, self._table, self.elsewhere, self.name = list(states), table, elsewhere, name
        self.index = {key_of(state): i for i, state in enumerate(self.states)}
        self._vectors: tuple[IntArray, Array, Array] | None = None  # numbers, scaled vectors and scale of the states

    def add(self, state: State) -> int:
        """Add a state; return its number."""
        self.index[key_of(state)], self._vectors = len(self.states), None
        self.states.append(state)
        return len(self.states) - 1

    def nearest(self, state: State) -> int | None:
        """Return the number of the nearest state; None if states are no numbers."""
        vector = _vector(state)
        if vector is None:
            return None
        if self._vectors is None:
            own = [(i, one) for i, known in enumerate(self.states) if (one := _vector(known)) is not None]
            same = [(i, one) for i, one in own if one.shape == vector.shape]
            points = np.array([one for _, one in same]).reshape(len(same), len(vector))
            scale = np.maximum(np.ptp(points, axis=0), 1e-9) if len(same) else np.ones(len(vector))
            self._vectors = np.array([i for i, _ in same], dtype=np.int64), points / scale, scale
        numbers, points, scale = self._vectors
        if not len(numbers) or points.shape[1] != len(vector):
            return None
        return int(numbers[((points - vector / scale) ** 2).sum(axis=1).argmin()])

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        i = self.index.get(key_of(state))
        i = self.nearest(state) if i is None else i
        return self.elsewhere.probabilities(h, state) if i is None else self._table[h, i]

    def document(self) -> Document:
        """Return the states, and the actions with their probabilities at each step and state, as JSON values."""
        rows = [[[[a, row[a]] for a in range(len(row)) if row[a]] for row in step] for step in self._table.tolist()]
        states, A = [_plain(state) for state in self.states], self._table.shape[2]
        return {"kind": "states", "name": self.name, "states": states, "num_actions": A, "rows": rows}

    @classmethod
    def of(cls, document: Document, elsewhere: Policy) -> "StatesPolicy":
        """Return the policy that `document` describes."""
        actions, rows = range(document["num_actions"]), document["rows"]
        dense = np.array([[[dict(row).get(a, 0.0) for a in actions] for row in step] for step in rows])
        table = as_distributions("policy", dense, (None, None, None))
        return cls([_state(one) for one in document["states"]], table, elsewhere, document["name"])


def _vector(state: State) -> Array | None:
    """Return the numbers of a state; None if it contains anything else."""
    parts = state if isinstance(state, tuple) else (state,)
    if not all(isinstance(part, int | float | np.ndarray) for part in parts):
        return None
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])


def _plain(state: State) -> object:
    """Return a state as JSON values."""
    if isinstance(state, np.ndarray):
        return {"array": state.tolist(), "dtype": state.dtype.str}
    return [_plain(part) for part in state] if isinstance(state, tuple) else state


def _state(value: object) -> State:
    """Return the state that `_plain` wrote."""
    if isinstance(value, dict):
        array = np.array(value["array"], dtype=value["dtype"])
        array.setflags(write=False)
        return array
    return tuple(map(_state, value)) if isinstance(value, list | tuple) else value  # type: ignore[return-value]


class FunctionPolicy(Policy):
    """A policy given by a function (h, state) -> probabilities (A,), or an object that has such a method.

    Its answers are checked. `first_step` is the step at which the function counts 0: 1 where the task has a dummy
    first step (a random start), which users' functions do not count.
    """

    def __init__(self, function: StateFunction, num_actions: int, first_step: int = 0, name: str = "") -> None:
        self.function, self.num_actions, self.first_step, self.name = function, num_actions, first_step, name
        self._checked: dict[bytes, Array] = {}

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,), checked to be a distribution."""
        if is_outside(state):
            return np.full(self.num_actions, 1 / self.num_actions)
        given = np.asarray(self.function(h - self.first_step, state), dtype=np.float64)
        row = self._checked.get(given.tobytes())
        if row is None:
            row = as_distributions(f"policy at step {h}, state {state!r}", given, (self.num_actions,))
            if len(self._checked) >= 10_000:
                self._checked.clear()
            self._checked[row.tobytes()] = row
        return row


UNKNOWN: Final = object()  # stands for what is given elsewhere


class OpaquePolicy(Policy):
    """A policy that only its owner can run: `given` is a function, a network, the address of a service, a name.

    `UNKNOWN` stands for a policy that this process does not know.
    """

    def __init__(self, given: object, name: str = "") -> None:
        self.given, self.name = given, name or (given if isinstance(given, str) else "")

    def probabilities(self, h: int, state: State) -> Array:
        """Raise: only the totals of its episodes are known."""
        if self.given is UNKNOWN:
            raise InvalidProblem(f"this process does not know the policy {self.name!r}: give it to the agent")
        raise TypeError(f"the policy {self.name!r} is opaque: run d.policy.given and report es.Episode.of_totals(…)")


class Mixture:
    """One of several policies for a whole episode, drawn before it begins by the weights (n,).

    Its expected utility is Σ weight · (that of the component). Records call the components by `names`.
    """

    def __init__(self, components: Sequence[Policy], weights: object, names: Sequence[str] | None = None) -> None:
        self.components = tuple(components)
        self.weights = as_distributions("weights", weights, (len(self.components),))
        self.names = tuple(one.name for one in self.components) if names is None else tuple(names)

    def draw(self, rng: np.random.Generator) -> tuple[int, Policy]:
        """Draw the component that acts: its index and the policy."""
        index = int(self.draw_many(rng, 1)[0])
        return index, self.components[index]

    def draw_many(self, rng: np.random.Generator, number: int) -> IntArray:
        """Draw the components of `number` episodes, exactly as repeated calls of `draw` would."""
        found = np.searchsorted(np.cumsum(self.weights), rng.random(number), side="right")
        return np.minimum(found, len(self.components) - 1)

    def probabilities(self, h: int, state: State) -> Array:
        """Raise TypeError."""
        raise TypeError("a mixture acts through one component: draw it with .draw(rng) before the episode")

    def table(self) -> Array:
        """Raise TypeError."""
        raise TypeError("a mixture has no table: take those of its .components")


def as_policy(
    given: object, num_actions: int, first_step: int = 0, shape: tuple[int, ...] | None = None, view: View | None = None
) -> Policy:
    """Return a policy from an argument of the user: a Policy, a table, a function, or an object with `probabilities`.

    If the states are listed, `shape` is (H, S, A) and the policy is evaluated in all states to build a table. A user's
    function is called with `view(state)`.
    """
    require(
        not isinstance(given, Mixture), "a mixture cannot be a candidate or an incumbent: give one of its components"
    )
    policy, function = given, getattr(given, "probabilities", given)
    if not isinstance(policy, Policy) and callable(function):
        shown = function if view is None else (lambda h, state: function(h, view(state)))
        name = getattr(given, "name", "")
        policy = FunctionPolicy(shown, num_actions, first_step, name if isinstance(name, str) else "")
    elif not isinstance(policy, Policy):
        policy = TablePolicy(policy)
    if shape is None:
        return policy
    if isinstance(policy, TablePolicy):
        as_distributions("policy", policy.table(), shape)
        return policy
    H, S, _ = shape
    return TablePolicy([[policy.probabilities(h, s) for s in range(S)] for h in range(H)], policy.name)


def draw_index(probabilities: Array, rng: np.random.Generator) -> int:
    """Return the first i with Σ_{j ≤ i} p_j > U, U uniform in [0, 1)."""
    sums = np.cumsum(probabilities)
    return int(np.searchsorted(sums / sums[-1], rng.random(), side="right"))


def uniform_table(horizon: int, num_states: int, num_actions: int) -> Array:
    """Return π_h(a|s) = 1/A, shape (H, S, A)."""
    return np.full((horizon, num_states, num_actions), 1 / num_actions)

"""Policies: what acts. `as_policy` turns whatever a user gives into one of the classes here."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from episafe.core.checks import as_distributions
from episafe.core.errors import InvalidProblem
from episafe.core.types import Array, IntArray, State, is_outside


class Policy(ABC):
    """A policy: probabilities of the actions at each step and state.

    Attributes:
        name: what records call it.
    """

    name: str = ""

    @abstractmethod
    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""

    def act(self, h: int, state: State, rng: np.random.Generator) -> int:
        """Draw an action from π_h(·|state)."""
        return draw_index(self.probabilities(h, state), rng)

    def table(self) -> Array:
        """Return the table (H, S, A); raise if the states are not listed."""
        raise TypeError(f"{type(self).__name__} has no table, its states are not listed: use probabilities(h, state)")

    def document(self) -> dict[str, Any]:
        """Return the policy as JSON values, from which `es.load_policy` rebuilds it; raise TypeError if opaque."""
        raise TypeError(f"{type(self).__name__} cannot be written as data: it is given by a function")

    def save(self, path: str | Path) -> None:
        """Write the policy as a JSON file."""
        Path(path).write_text(json.dumps(self.document(), separators=(",", ":")) + "\n")


class TablePolicy(Policy):
    """A policy given by its table (H, S, A)."""

    def __init__(self, table: Any, name: str = "") -> None:
        self._table, self.name = as_distributions("policy", table, (None, None, None)), name

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h(·|state), shape (A,)."""
        return self._table[h, state]  # type: ignore[index]  # a listed state is an int

    def table(self) -> Array:
        """Return the table (H, S, A), read-only."""
        return self._table

    def document(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return {"kind": "table", "name": self.name, "table": self._table.tolist()}


class StepPolicy(Policy):
    """The same action probabilities (H, A) in every state of a step: a schedule."""

    def __init__(self, rows: Any, name: str = "") -> None:
        self.rows, self.name = as_distributions("policy", rows, (None, None)), name

    def probabilities(self, h: int, state: State) -> Array:
        """Return π_h, shape (A,)."""
        return self.rows[h]

    def document(self) -> dict[str, Any]:
        """Return the rows as JSON values."""
        return {"kind": "steps", "name": self.name, "rows": self.rows.tolist()}


class FunctionPolicy(Policy):
    """A policy given by a function (h, state) -> probabilities (A,), or an object that has such a method.

    Its answers are checked. `first_step` is the step at which the function counts 0: 1 where the task has a dummy
    first step (a random start), which users' functions do not know of.
    """

    def __init__(
        self, function: Callable[[int, Any], Any], num_actions: int, first_step: int = 0, name: str = ""
    ) -> None:
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


class OpaquePolicy(Policy):
    """A policy that only its owner can run: a function, a network, the address of a service, a name.

    Attributes:
        given: what the user gave.
    """

    def __init__(self, given: object, name: str = "") -> None:
        self.given, self.name = given, name or (given if isinstance(given, str) else "")

    def probabilities(self, h: int, state: State) -> Array:
        """Raise: only totals of its episodes are seen."""
        raise TypeError(f"the policy {self.name!r} is opaque: run d.policy.given and report es.Episode.of_totals(…)")


class Mixture:
    """One of several policies for a whole episode, drawn before the episode begins.

    Its expected utility is Σ weight · (that of the component).

    Attributes:
        components: the policies.
        weights: their probabilities (n,).
        names: what records call them.
    """

    def __init__(self, components: Sequence[Policy], weights: Any, names: Sequence[str] | None = None) -> None:
        self.components = tuple(components)
        self.weights = as_distributions("weights", weights, (len(self.components),))
        self.names = tuple(one.name for one in self.components) if names is None else tuple(names)

    def draw(self, rng: np.random.Generator) -> tuple[int, Policy]:
        """Draw the component that acts: its index and the policy."""
        index = int(np.searchsorted(np.cumsum(self.weights), rng.random(), side="right"))
        index = min(index, len(self.components) - 1)
        return index, self.components[index]

    def draw_many(self, rng: np.random.Generator, number: int) -> IntArray:
        """Draw the components of `number` episodes, as `draw` would one after another."""
        found = np.searchsorted(np.cumsum(self.weights), rng.random(number), side="right")
        return np.minimum(found, len(self.components) - 1)

    def probabilities(self, h: int, state: State) -> Array:
        """Raise: a component acts for a whole episode."""
        raise TypeError("a mixture acts through one component: draw it with .draw(rng) before the episode")

    def table(self) -> Array:
        """Raise: a component acts for a whole episode."""
        raise TypeError("a mixture has no table: take those of its .components")


def as_policy(
    given: Any,
    num_actions: int,
    first_step: int = 0,
    shape: tuple[int, ...] | None = None,
    view: Callable[[Any], Any] | None = None,
) -> Policy:
    """Return a policy for whatever a user gives: a Policy, a table, a function, or an object with `probabilities`.

    Where the states are listed, `shape` is (H, S, A) and the policy's answers in all states become a table. A user's
    function is called with `view(state)`.
    """
    if isinstance(given, Mixture):
        raise InvalidProblem("a mixture cannot be a candidate or an incumbent: give one of its components")
    if not isinstance(given, Policy):
        name = given.name if isinstance(vars(type(given)).get("name", ""), str) and hasattr(given, "name") else ""
        function = given.probabilities if hasattr(given, "probabilities") else given
        if callable(function):
            shown = function if view is None else (lambda h, state: function(h, view(state)))
            given = FunctionPolicy(shown, num_actions, first_step, name)
        else:
            given = TablePolicy(given)
    if shape is None:
        return given
    if isinstance(given, TablePolicy):
        as_distributions("policy", given.table(), shape)
        return given
    H, S, _ = shape
    return TablePolicy([[given.probabilities(h, s) for s in range(S)] for h in range(H)], given.name)


def draw_index(probabilities: Array, rng: np.random.Generator) -> int:
    """Return the first i with Σ_{j ≤ i} p_j > U, U uniform in [0, 1)."""
    sums = np.cumsum(probabilities)
    return int(np.searchsorted(sums / sums[-1], rng.random(), side="right"))


def uniform_table(horizon: int, num_states: int, num_actions: int) -> Array:
    """Return π_h(a|s) = 1/A, shape (H, S, A)."""
    return np.full((horizon, num_states, num_actions), 1 / num_actions)

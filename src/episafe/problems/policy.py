"""Policies: what acts. Anything with `probabilities(h, state)`, for a finite task also a table; and mixtures."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from episafe.checks import TOLERANCE, as_distributions, require_takes
from episafe.errors import InvalidProblem
from episafe.problems.policy_file import write_policy
from episafe.problems.states import Outside, StateReader, is_sealed
from episafe.types import Array, IntArray

SINGLE_PRECISION = 1e-6  # by which probabilities of single precision may miss 1
REMEMBERED = 1_000  # rows that a function answered, which are not checked again
NOT_ASKED = (object(), np.zeros(0))  # the state that a policy was asked at, and its answer
DOUBLE = np.dtype(np.float64)
ASKED_TWICE = 64  # answers of a policy, the first ones; later one in as many


class Policy(Protocol):
    """A Markov policy π_h(a|s), steps counted from 0; or a mixture, of which one component acts for a whole episode.

    Attributes:
        name: what records call it; "" where nobody named it.
        has_table: whether it lists states itself; one that does not is asked in each.
        is_checked: whether its rows are distributions whatever it was given; said by a class of itself alone, since a
            subclass may answer something else. Rows of others are checked when they are asked for.
        certificate: what its file says is proved of it; empty for a policy that was not loaded.
    """

    name: str = ""
    has_table: bool = True
    is_checked: bool = False
    certificate: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,), at any state, seen before or not."""

    @abstractmethod
    def table(self) -> Array:
        """π as an array (H, S, A), every row filled, for a finite task."""

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h(·|state)."""
        return draw_index(self.probabilities(h, state), rng)

    def along(self, steps: Sequence[tuple[int, Any, int]]) -> list[float]:
        """π_h(a_h|s_h) at the steps (h, s_h, a_h) of an episode."""
        return [self.probabilities(h, state)[action] for h, state, action in steps]

    def named(self, name: str) -> "Component":
        """The same policy under a name."""
        return Component(self, name)

    @property
    def policy(self) -> "Policy":
        """The policy behind a component's name; of a policy, itself."""
        return self

    @property
    def components(self) -> "tuple[Policy, ...]":
        """The policies that the coin is about; itself where there is no coin."""
        return (self,)

    @property
    def weights(self) -> Array:
        """The probabilities of the components."""
        return np.ones(1)

    def draw(self, rng: np.random.Generator) -> "tuple[int, Policy]":
        """Which component acts in the next episode, and what acts; a plain policy gives (0, itself), without a coin."""
        return 0, self

    def toss(self, rng: np.random.Generator, number: int) -> IntArray:
        """Which component acts in each of so many episodes, as `draw` would say one after another."""
        return np.zeros(number, dtype=np.int64)

    def component(self, index: int) -> "Policy":
        """What acts where the coin fell so, as `draw` gives it."""
        return self

    def save(self, path: str | Path, certificate: Mapping[str, Any] | None = None) -> None:
        """Write it as JSON, atomically; docs/policies.md has the schema, and `es.load_policy` reads it.

        Args:
            path: of the file.
            certificate: what is proved of it, as plain values; `session.save_policy` says what a session knows.
        """
        write_policy(Path(path), self, certificate)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values, by a `kind`; refused where it is given by a function."""
        raise InvalidProblem(
            f"a {type(self).__name__} is code, and a file of a policy holds numbers: save a table, a learned policy or "
            "a mixture of these; of a mixture with such a component save its .components one by one"
        )


class Component(Policy):
    """A policy under a name: what a mixture's coin says acts. Also what makes any policy of a user one of ours.

    Where nobody asks for probabilities, `policy` may be anything that acts: a function, a network, a service's address.

    Args:
        policy: who acts.
        name: what records call it.
        read: makes a state, as its task has it, of whatever it is asked at: it must act where it is judged.
        asked: how often somebody's own policy was asked; it is asked twice now and then, and must answer alike.
    """

    is_checked = True
    policy: Any = None

    def __init__(
        self, policy: Any, name: str = "", read: StateReader | None = None, asked: list[int] | None = None
    ) -> None:
        self.name, self.policy, self.read, self.asked = name, policy, read, [0] if asked is None else asked
        self.has_table = getattr(policy, "has_table", True)
        self._is_checked = _is_checked(policy)

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,); an error where somebody's own policy answers what is no distribution.

        It would act by what it answers divided by the sum, and be judged by the answer itself.
        """
        state = state if self.read is None else self.read(state)
        if self._is_checked:
            return self.policy.probabilities(h, state)
        row = self._checked(h, state)
        if is_asked_twice(self.asked):
            require_alike(row, self._checked(h, state), h, state, self.name)
        return row

    def _checked(self, h: int, state: Any) -> Array:
        row = _divided(self.policy.probabilities(h, state))
        return as_distributions(f"policy{_called(self.name)} at step {h}", row, (None,))

    def named(self, name: str) -> "Component":
        """The same policy under another name."""
        return Component(self.policy, name, self.read, self.asked)

    def table(self) -> Array:
        """π as an array (H, S, A)."""
        return self.policy.table()

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h(·|state); by whoever has no probabilities, as it acts by itself.

        What somebody's own class calls `act` may be something else than what its probabilities say.
        """
        if not self._is_checked and hasattr(self.policy, "probabilities"):
            return super().act(h, state, rng)
        return self.policy.act(h, state if self.read is None else self.read(state), rng)

    def as_json(self) -> dict[str, Any]:
        """That of the policy itself."""
        return self.policy.as_json() if hasattr(self.policy, "as_json") else super().as_json()


def is_asked_twice(asked: list[int]) -> bool:
    """Count an answer of somebody's own policy, and say whether it is asked again: the first ones, then one in many."""
    asked[0] = number = asked[0] + 1
    return number <= ASKED_TWICE or number % ASKED_TWICE == 0


def require_alike(row: Array, again: Array, h: int, state: Any, name: str = "") -> None:
    """An error where a policy answers otherwise when it is asked again, by more than the rounding of single precision.

    It is asked to act and again to be judged.
    """
    if row.shape != again.shape or np.abs(again - row).max() > SINGLE_PRECISION:
        raise InvalidProblem(
            f"policy{_called(name)} at step {h}, state {state!r}: it answers {row.tolist()}, and asked again "
            f"{again.tolist()}. A policy is a function of the state: give the probabilities that it draws by, or "
            "deterministic actions"
        )


def _called(name: str) -> str:
    return f" {name!r}" if name else ""


def _divided(row: Any) -> Any:
    """A row that sums to 1 up to the rounding of single precision, divided by its sum, as it acts; others as given."""
    total = float(np.sum(row, dtype=np.float64))
    return np.asarray(row, dtype=np.float64) / total if TOLERANCE < abs(total - 1) <= SINGLE_PRECISION else row


@dataclass(frozen=True, eq=False)
class FunctionPolicy(Policy):
    """A policy given by a function (h, state) ↦ π_h(·|state), shape (A,).

    Before an episode has begun and after it has ended actions are alike: there it is uniform, and nobody asks. Of a
    random start, which takes a step of the task (`steps_before`), h counts from the first observation. Where states are
    `read`, it is asked at what that makes of them, as it will be judged.

    It must answer alike whenever it is asked, for it is asked to act and again to learn, and what was answered last is
    kept. So it is asked twice now and then: one that draws its action by itself is refused, and gives probabilities.
    """

    function: Callable[[int, Any], Any]
    num_actions: int
    steps_before: int = 0
    read: StateReader | None = None
    _last: dict[int, tuple[Any, Array]] = field(default_factory=dict, init=False, repr=False)
    _rows: dict[bytes, Array] = field(default_factory=dict, init=False, repr=False)
    _asked: list[int] = field(default_factory=lambda: [0], init=False, repr=False)
    has_table = False
    is_checked = True

    def __post_init__(self) -> None:
        require_takes("a policy", self.function, "policy(h, state)", 0, None)

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), checked to be a distribution; of the state that was asked for last at this step, as then."""
        state = state if self.read is None else self.read(state)
        last, known = self._last.get(h, NOT_ASKED)
        is_known = last is state
        row = known if is_known else self._checked(h, state)
        if is_asked_twice(self._asked):
            require_alike(row, self._checked(h, state), h, state)
        if not is_known and (self.read is not None or not isinstance(state, np.ndarray) or is_sealed(state)):
            self._last[h] = state, row
        return row

    def _checked(self, h: int, state: Any) -> Array:
        """A row that was checked before is not checked again."""
        A, shape = self.num_actions, (self.num_actions,)
        given = np.full(A, 1 / A) if type(state) is Outside else self.function(h - self.steps_before, state)
        if type(given) is not np.ndarray or given.dtype != DOUBLE or given.shape != shape:
            return as_distributions(f"policy at step {h}, state {state!r}", given, shape)
        content = given.tobytes()
        row = self._rows.get(content)
        if row is None:
            if len(self._rows) >= REMEMBERED:
                self._rows.clear()
            row = self._rows[content] = as_distributions(f"policy at step {h}, state {state!r}", given, shape)
        return row

    def table(self) -> Array:
        """Not to be had: the states are not listed."""
        raise ValueError("a policy given by a function has no table of states: use probabilities(h, state)")


class TablePolicy(Policy):
    """A policy given by its table (H, S, A)."""

    is_checked = True

    def __init__(self, table: Any) -> None:
        self._table = as_distributions("policy", table, (None, None, None))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._table.setflags(write=False)  # which a pickle does not say

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        H, S, _ = self._table.shape
        in_range("step", h, H)
        in_range("state", state, S)
        return self._table[h, state]

    def table(self) -> Array:
        """The table itself (H, S, A), read-only."""
        return self._table

    def as_json(self) -> dict[str, Any]:
        """Its table."""
        return table_as_json(self._table)


def in_range(name: str, value: Any, below: int) -> None:
    """Refuse what is no index in [0, below): a negative one would silently mean another."""
    if type(value) is int and 0 <= value < below:
        return
    if not hasattr(value, "__index__") or isinstance(value, bool | np.bool_) or not 0 <= value < below:
        raise ValueError(f"{name} must be a whole number in [0, {below}), got {value!r}")


class StepPolicy(Policy):
    """Probabilities of the actions at each step, (H, A), whatever the state: a plan for the weekdays, say."""

    has_table = False
    is_checked = True

    def __init__(self, rows: Any) -> None:
        self.rows = as_distributions("policy", rows, (None, None))
        self._sure = [int(row.argmax()) if row.max() == 1.0 else None for row in self.rows]

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h, shape (A,)."""
        in_range("step", h, len(self.rows))
        return self.rows[h]

    def act(self, h: int, state: Any, rng: np.random.Generator) -> int:
        """An action drawn from π_h; without a draw where only one is possible."""
        sure = self._sure[h]
        return super().act(h, state, rng) if sure is None else sure

    def table(self) -> Array:
        """Refused: it knows no states."""
        raise TypeError("a StepPolicy knows no states, and has no table of them: ask probabilities(h, state)")

    def as_json(self) -> dict[str, Any]:
        """Its rows."""
        horizon, num_actions = self.rows.shape
        return {"kind": "steps", "horizon": horizon, "num_actions": num_actions, "steps": self.rows.tolist()}


class MixturePolicy(Policy):
    """One of several policies for a whole episode, drawn by a coin before it begins.

    Its expected utility is Σ weight·(that of the component). It is no Markov policy, so it has neither probabilities
    nor a table: draw a component, and tell `learn` which one acted.

    Args:
        components: the policies.
        weights: their probabilities.
        names: what records call them; None for the names that they have themselves.
    """

    components: tuple[Policy, ...] = ()
    weights: Array = np.empty(0)

    def __init__(self, components: Sequence[Policy], weights: Any, names: Sequence[str] | None = None) -> None:
        self.components = tuple(components)
        self.weights = as_distributions("weights", weights, (len(self.components),))
        self.names = tuple(getattr(one, "name", "") for one in self.components) if names is None else tuple(names)
        if len(self.names) != len(self.components):
            raise InvalidProblem(f"a mixture of {len(self.components)} policies has {len(self.names)} names: one each")

    def draw(self, rng: np.random.Generator) -> tuple[int, Component]:
        """Toss the coin: the first component whose running sum of weights is above it, under its name."""
        index = bisect_right(list(accumulate(self.weights.tolist())), rng.random(), 0, len(self.components) - 1)
        return index, self.component(index)

    def toss(self, rng: np.random.Generator, number: int) -> IntArray:
        """Which component acts in each of so many episodes, as `draw` would say one after another."""
        found = np.searchsorted(np.cumsum(self.weights), rng.random(number), side="right")
        return np.minimum(found, len(self.components) - 1)

    def component(self, index: int) -> Component:
        """A component under its name."""
        acting, name = self.components[index], self.names[index]
        return acting.named(name) if hasattr(acting, "named") else Component(acting, name)

    def probabilities(self, h: int, state: Any) -> Array:
        """Not to be had: a component acts for a whole episode."""
        raise ValueError("a mixture acts through one component: draw it with .draw(rng) before the episode")

    def table(self) -> Array:
        """Not to be had: a component acts for a whole episode."""
        raise ValueError("a mixture has no table: take those of its .components, or draw one with .draw(rng)")

    def as_json(self) -> dict[str, Any]:
        """Its weights and its components, each as a policy of its own."""
        named = [{"name": name, **one.as_json()} for name, one in zip(self.names, self.components, strict=True)]
        return {"kind": "mixture", "weights": self.weights.tolist(), "components": named}


def table_as_json(table: Array) -> dict[str, Any]:
    """A table (H, S, A) as plain values."""
    H, S, A = table.shape
    return {"kind": "table", "horizon": H, "num_states": S, "num_actions": A, "table": table.tolist()}


def as_policy(policy: Any) -> Policy:
    """The policy itself or, where it is somebody else's that has probabilities alone, what makes it one of ours."""
    return policy if hasattr(policy, "draw") else Component(policy)


def counts_as_task(policy: Any) -> bool:
    """Whether it counts steps as its task does, the dummy first step of a random start among them.

    So do policies of ours, learned, loaded or made by hand. Functions and objects of others know of no dummy step: they
    count from the first observation.
    """
    return Policy in type(policy).__mro__


def as_checked(policy: Any, read: StateReader | None = None) -> Policy:
    """The policy itself where its rows are distributions whatever it was given, else what checks each.

    Where states are to be `read`, what does so before it asks.
    """
    is_ready = _is_checked(policy) and (read is None or getattr(policy, "read", None) is not None)
    return policy if is_ready else Component(policy, read=read)


def _is_checked(policy: Any) -> bool:
    """What its very class says of itself: a subclass may answer something else."""
    return bool(vars(type(policy)).get("is_checked", False))


def draw_index(probabilities: Any, rng: np.random.Generator) -> int:
    """The first i with Σ_{j ≤ i} p_j > U, U uniform in [0, 1)."""
    sums = np.cumsum(probabilities)
    return int(np.searchsorted(sums / sums[-1], rng.random(), side="right"))


def as_table(name: str, policy: Any, shape: tuple[int, ...]) -> Array:
    """The table (H, S, A) of a policy, or an array as one, checked."""
    policy = over_states(policy, shape)
    if callable(policy) and not hasattr(policy, "table"):
        raise InvalidProblem(f"{name} is a function, and the states are listed: give a table {shape} of probabilities")
    return as_distributions(name, policy.table() if hasattr(policy, "table") else policy, shape)


def over_states(policy: Any, shape: tuple[int, ...]) -> Any:
    """A policy without a table as that of its answers in each of the states 0..S−1, (H, S, A); others as given."""
    if not hasattr(policy, "probabilities") or getattr(policy, "has_table", hasattr(policy, "table")):
        return policy
    horizon, num_states, _ = shape
    return TablePolicy([[policy.probabilities(h, s) for s in range(num_states)] for h in range(horizon)])


def uniform_table(horizon: int, num_states: int, num_actions: int) -> Array:
    """π_h(a|s) = 1/A, shape (H, S, A)."""
    return np.full((horizon, num_states, num_actions), 1 / num_actions)

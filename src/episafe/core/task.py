"""What a learner is told of a problem: everything but the transition probabilities."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from episafe.core.checks import (
    TOLERANCE,
    as_array,
    as_count,
    as_features,
    as_indices,
    as_number,
    as_slack,
    as_unit_range,
    check_norm,
    is_number,
)
from episafe.core.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.core.policy import OpaquePolicy, Policy, as_policy
from episafe.core.types import (
    ENDED,
    START,
    Array,
    Encoder,
    Episode,
    IntArray,
    Move,
    PerLimit,
    State,
    StateFunction,
    Support,
    View,
    is_outside,
)

Signal = Array | StateFunction | None  # (H, S, A) of listed states; a function; None if it is observed only
Cell = Callable[[Any], Hashable]  # state -> the group that it belongs to


@dataclass(frozen=True, eq=False)
class Constraint:
    """One limit: the expected total utility of every deployed policy is at least `threshold`.

    Attributes:
        utility: u (H, S, A) in [0, 1]; or (h, state) -> u_h(state, ·), shape (A,); None if it is observed only.
        threshold: b, the limit on the expected total utility of an episode.
        slack: ξ > 0, by which the incumbent's expected utility exceeds b; None if unknown.
        name: what reports call it.
        least_total: a total utility that every episode is certain to reach.
        floor: the least total utility that any deployed component may have in any episode; None for no such demand.
    """

    utility: Signal = field(repr=False)
    threshold: float
    slack: float | None
    name: str = ""
    least_total: float = 0.0
    floor: float | None = None

    def __post_init__(self) -> None:
        threshold, least = as_number("threshold", self.threshold), as_number("least_total", self.least_total)
        if least >= threshold and least != 0:
            raise InvalidProblem(
                f"least_total {least:g} is not below the threshold {threshold:g}: give the worst total of an episode, "
                "or 0 if it is unknown"
            )
        floor = None if self.floor is None else as_number("floor", self.floor)
        self.__dict__.update(threshold=threshold, slack=as_slack(self.slack), least_total=least, floor=floor)


@dataclass(frozen=True)
class OneHot:
    """One indicator per state and action: exact for finite states, held as counts.

    Attributes:
        cell: state -> hashable value, to group states; None to tell all states apart.
        size: how many values `cell` takes; None for listed states, or if unknown.
    """

    cell: Cell | None = None
    size: int | None = None


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """Features of listed states: `phi` (S, A, d), norms at most 1."""

    phi: Array

    @property
    def dim(self) -> int:
        """Return d."""
        return int(self.phi.shape[2])


@dataclass(frozen=True, eq=False)
class FunctionFeatures:
    """Features of states that are not listed: `function` state -> φ(state, ·), shape (A, d), norms at most 1."""

    function: View
    dim: int


Features = OneHot | TableFeatures | FunctionFeatures


@dataclass(frozen=True)
class Carry:
    """A running total that is appended to the encoded state, so that policies see (state, total).

    Attributes:
        initial: the total before the first step.
        update: (total, reward, utilities (m,)) -> the total after the step.
    """

    initial: float
    update: Callable[[float, float, Array], float]


@dataclass(frozen=True, eq=False)
class Task:
    """What a learner is told of a problem; one class for problems of every kind. All fields are checked.

    Attributes:
        horizon: H, steps per episode (with the dummy first step, where the start is random). None for `Rollout`.
        num_actions: A. None for `Rollout`.
        constraints: the m limits.
        incumbent: the policy in use today, which keeps every limit with its slack.
        initial_state: s_1; START if the start is random.
        num_states: S, if the states are the numbers 0..S−1; else None.
        reward: r (H, S, A) in [0, 1], or (h, state) -> (A,); None if it is observed only.
        features: one-hot, a table (S, A, d), or a function of the state.
        time_homogeneous: whether transitions (and signals) are the same at every step; steps then share their data.
        encode: observation -> state; the one border for observations.
        view: state -> observation, which functions of users are called with; None if the two are the same.
        move: how the system moves given chance, where chance is exogenous.
        support: (h, state) -> the values that chance can take there.
        carry: a running total that deployments append to the encoded state.
        outside: (reward, (u_1, …, u_m)) per step in START and ENDED, where the problem has them.
        norm_bound: B with ‖Σ_s' μ_h(s') g(s')‖ ≤ B max g for all g ≥ 0; √d by default, inf if P is not linear in φ.
        state_names, action_names, units: for people, in reports; units by "reward" and the names of the limits.
    """

    horizon: int | None
    num_actions: int | None
    constraints: tuple[Constraint, ...]
    incumbent: Policy
    initial_state: State = 0
    num_states: int | None = None
    reward: Signal = None
    features: Features = OneHot()
    time_homogeneous: bool = False
    encode: Encoder | None = None
    view: View | None = None
    move: Move | None = None
    support: Support | None = None
    carry: Carry | None = None
    outside: Mapping[tuple[str], tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    norm_bound: float | None = None
    state_names: Sequence[Hashable] = ()
    action_names: Sequence[str] = ()
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fixed: dict[str, Any] = {"constraints": named_constraints(self.constraints)}
        if self.horizon is not None and self.num_actions is not None:
            H, A = as_count("horizon", self.horizon), as_count("num_actions", self.num_actions)
            shape = None
            if self.num_states is not None:
                shape = H, as_count("num_states", self.num_states), A
                fixed |= self._checked_tables(shape, fixed["constraints"])
            fixed["incumbent"] = as_policy(self.incumbent, A, int(self.random_start), shape, self.view)
            for one in fixed["constraints"]:
                if one.threshold + (one.slack or 0.0) > H + TOLERANCE:
                    said = f"threshold {one.threshold:g} + slack {one.slack or 0:g}"
                    raise Infeasible(f"{said} of {one.name} exceeds the horizon {H}: a step has utility at most 1")
        self.__dict__.update(fixed)
        if self.norm_bound is None:
            self.__dict__["norm_bound"] = math.sqrt(self.dim) if self.dim else math.inf
        if self.encode is None:
            listed = self.num_states is not None
            names = {name: i for i, name in enumerate(self.state_names)}
            encode = index_encoder(self.num_states or 0, names) if listed else encoder_like(self.initial_state)
            self.__dict__["encode"] = encode

    def _checked_tables(self, shape: tuple[int, int, int], constraints: tuple[Constraint, ...]) -> dict[str, Any]:
        _, S, A = shape
        features = self.features
        if isinstance(features, TableFeatures):
            phi = as_features(features.phi, S, A)
            flat = phi.reshape(S * A, -1)
            one_hot = (
                flat.shape[1] == S * A and np.array_equal(flat @ flat.T, np.eye(S * A)) and set(flat.flat) <= {0, 1}
            )
            features = OneHot() if one_hot else TableFeatures(phi)
        told = tuple(
            one
            if one.utility is None
            else replace(one, utility=as_unit_range(f"utility {one.name}", one.utility, shape))
            for one in constraints
        )
        reward = None if self.reward is None else as_unit_range("reward", self.reward, shape)
        if not (is_number(self.initial_state) and 0 <= self.initial_state < S):
            raise InvalidProblem(f"initial_state must be in [0, {S}), got {self.initial_state!r}")
        return {
            "features": features,
            "constraints": told,
            "reward": reward,
            "initial_state": int(self.initial_state),
        }

    # limits, all of shape (m,)

    @cached_property
    def num_constraints(self) -> int:
        """Return m."""
        return len(self.constraints)

    @cached_property
    def thresholds(self) -> Array:
        """Return b, shape (m,)."""
        return np.array([one.threshold for one in self.constraints])

    @cached_property
    def slacks(self) -> Array:
        """Return ξ, shape (m,); raise if one is unknown."""
        for one in self.constraints:
            if one.slack is None:
                raise InvalidProblem(
                    f"the slack of {one.name} is unknown: measure it with es.measure_slack and give slack=…"
                )
        return np.array([one.slack for one in self.constraints], dtype=np.float64)

    @cached_property
    def stated_utilities(self) -> Array:
        """Return what the incumbent reaches, b + ξ, shape (m,); b where the slack is unknown."""
        return np.array([one.threshold + (one.slack or 0.0) for one in self.constraints])

    @cached_property
    def least_totals(self) -> Array:
        """Return the totals that every episode is certain to reach, shape (m,)."""
        return np.array([one.least_total for one in self.constraints])

    def with_limits(self, thresholds: Sequence[float], slacks: Sequence[float | None]) -> "Task":
        """Return the same task with other thresholds and slacks."""
        limits = zip(self.constraints, thresholds, slacks, strict=True)
        return replace(self, constraints=tuple(replace(one, threshold=b, slack=xi) for one, b, xi in limits))

    def of_constraint(self, c: int) -> "Task":
        """Return the same task with constraint c alone."""
        outside = {state: (r, (u[c],)) for state, (r, u) in self.outside.items()}
        return replace(self, constraints=(self.constraints[c],), outside=outside)

    # states, features and signals

    @property
    def is_listed(self) -> bool:
        """Return whether the states are the numbers 0..S−1."""
        return self.num_states is not None

    @property
    def random_start(self) -> bool:
        """Return whether the first step is a dummy one, whose transition is the start."""
        return is_outside(self.initial_state)

    @property
    def one_hot(self) -> bool:
        """Return whether features are one-hot, so that Gram matrices are diagonal counts."""
        return isinstance(self.features, OneHot)

    @cached_property
    def dim(self) -> int:
        """Return d; S·A for one-hot features, 0 if that is unknown."""
        if isinstance(self.features, OneHot):
            return (self.num_states or self.features.size or 0) * (self.num_actions or 0)
        return self.features.dim

    @cached_property
    def utilities(self) -> Array | None:
        """Return the known utilities (m, H, S, A) of a listed task; None if they are observed only."""
        told = [one.utility for one in self.constraints]
        if not self.is_listed or any(one is None for one in told):
            return None
        return told[0][None] if len(told) == 1 else np.stack(told)

    @cached_property
    def knows_reward(self) -> bool:
        """Return whether the reward is known and need not be observed."""
        return self.reward is not None

    @cached_property
    def knows_utility(self) -> bool:
        """Return whether every utility is known and need not be observed."""
        return all(one.utility is not None for one in self.constraints)

    def key(self, state: State) -> Hashable:
        """Return what one-hot features tell apart: the state, its cell, or the bytes of an array."""
        if self.num_states is not None:
            return int(state)
        if self._cell is not None and not is_outside(state):
            state = self._cell(state)
        return (state.dtype.str, state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state

    @cached_property
    def _cell(self) -> Cell | None:
        return self.features.cell if isinstance(self.features, OneHot) else None

    def phi(self, state: State) -> Array:
        """Return φ(state, ·), shape (A, d)."""
        features = self.features
        if isinstance(features, TableFeatures):
            return features.phi[state]
        if isinstance(features, OneHot):
            return np.eye(self.num_actions or 0, self.dim, int(state) * (self.num_actions or 0))
        if is_outside(state):
            return np.zeros((self.num_actions or 0, features.dim))
        phi = np.asarray(features.function(state), dtype=np.float64)
        if phi.shape != (self.num_actions, features.dim) or not np.vecdot(phi, phi).max() <= 1 + TOLERANCE:
            name = f"features at {state!r}"  # written only now: an array takes longer to write than to check
            phi = as_array(name, phi, (self.num_actions, features.dim))
            check_norm(name, phi)
        return phi

    def reward_at(self, h: int, state: State) -> Array:
        """Return r_h(state, ·), shape (A,); NaN where it is observed only."""
        if isinstance(self.reward, np.ndarray):
            return self.reward[h, state]
        return self._signal(self.reward, h, state, 0)

    def utility_at(self, h: int, state: State) -> Array:
        """Return u_h(state, ·) of every limit, shape (m, A); NaN where it is observed only."""
        if self.utilities is not None:
            return self.utilities[:, h, state]
        return np.array([self._signal(one.utility, h, state, 1 + c) for c, one in enumerate(self.constraints)])

    def _signal(self, function: Signal, h: int, state: State, column: int) -> Array:
        """Return signal `column` (the reward, then the utilities) of every action."""
        A = self.num_actions or 0
        if is_outside(state):
            reward, utilities = self.outside[state]
            return np.full(A, (reward, *utilities)[column])
        if function is None:
            return np.full(A, np.nan)
        signal = np.asarray(function(h, state), dtype=np.float64)
        if signal.shape != (A,) or not (signal.min() >= 0.0 and signal.max() <= 1.0):
            signal = as_unit_range(f"signal at step {h}, state {state!r}", signal, (A,))
        return signal

    def as_policy(self, given: object) -> Policy:
        """Return a policy for a candidate that a user gives; a table, where the states are listed."""
        if self.num_actions is None:
            return given if isinstance(given, Policy) else OpaquePolicy(given)
        shape = (self.horizon, self.num_states, self.num_actions) if self.is_listed else None
        return as_policy(given, self.num_actions, int(self.random_start), shape, self.view)  # type: ignore[arg-type]

    def read(self, episode: Episode, encoded: bool = False) -> Episode:
        """Return the episode in canonical form, checked; raise InvalidEpisode if it does not fit.

        States are encoded, unless `encoded` says that they are.

        States become (H+1,) integers or a tuple of encoded states, actions (H,), rewards (H,), utilities (H, m), and
        the totals are set: total_utility (m,), total_reward. Signals that the task knows are filled in.
        """
        if episode.checked_by is self:
            return episode
        m, H = self.num_constraints, self.horizon
        if episode.states is None or H is None or self.num_actions is None:
            if episode.total_utility is None:
                raise InvalidEpisode("the episode has neither states nor a total utility: use es.Episode.of_totals(…)")
            utility, reward = _finite("total_utility", episode.total_utility, (m,)), episode.total_reward
            return self._checked(replace(episode, total_utility=utility, total_reward=float(reward or 0.0)))
        actions = as_indices("actions", episode.actions, H, self.num_actions)
        if len(episode.states) != H + 1:
            raise InvalidEpisode(
                f"states must have length {H + 1} (one more than the horizon), got {len(episode.states)}"
            )
        if self.num_states is not None:
            states: Any = as_indices("states", episode.states, H + 1, self.num_states)
        else:
            encode = (lambda state: state) if encoded or self.encode is None else self.encode
            states = tuple(state if is_outside(state) else encode(state) for state in episode.states)
        traced = self.move is not None and episode.trace is not None
        rewards = self._signals(
            "rewards", episode.rewards, (H,), lambda h: self.reward_at(h, states[h])[actions[h]], traced
        )
        utilities = self._signals(
            "utilities", episode.utilities, (H, m), lambda h: self.utility_at(h, states[h])[:, actions[h]], traced
        )
        totals: dict[str, Any] = {"total_utility": np.cumsum(utilities, axis=0)[-1]}
        totals["total_reward"] = float(np.cumsum(rewards)[-1])
        steps = {"states": states, "actions": actions, "rewards": rewards, "utilities": utilities}
        return self._checked(replace(episode, **steps, **totals))

    def _checked(self, episode: Episode) -> Episode:
        episode.__dict__["checked_by"] = self
        return episode

    def _signals(
        self, name: str, given: Any, shape: tuple[int, ...], known: Callable[[int], Any], traced: bool
    ) -> Array:
        if given is not None:
            return _finite(name, given, shape)
        if traced:  # with chance, signals are not their means; Hindsight compares them with what move gives
            raise InvalidEpisode(f"the episode has a trace, so its {name} must be reported too: give {name}=…")
        if not (self.knows_reward if name == "rewards" else self.knows_utility):
            raise InvalidEpisode(f"the task does not know the {name}: report them with every episode ({name}=…)")
        return np.array([known(h) for h in range(shape[0])], dtype=np.float64).reshape(shape)


def task_of(problem: object) -> Task:
    """Return the task of a problem, or the task itself."""
    if isinstance(problem, Task):
        return problem
    task = getattr(problem, "task", None)
    if not isinstance(task, Task):
        raise TypeError(f"an agent needs a problem or its .task, got {type(problem).__name__}")
    return task


def named_constraints(given: object) -> tuple[Constraint, ...]:
    """Return the constraints, at least one, each with a name of its own."""
    several = tuple(given) if isinstance(given, Sequence) else (given,)
    if not several or not all(isinstance(one, Constraint) for one in several):
        raise InvalidProblem("constraints must be one es.Constraint(utility, threshold, slack) or a list of them")
    default = ["utility"] if len(several) == 1 else [f"limit {c + 1}" for c in range(len(several))]
    named = tuple(one if one.name else replace(one, name=name) for one, name in zip(several, default, strict=True))
    if len({one.name for one in named}) < len(named):
        raise InvalidProblem(f"the names of the limits are not unique: {', '.join(one.name for one in named)}")
    return named


def make_constraints(
    utility: Any, threshold: Any, slack: Any, names: Sequence[str] = (), least_total: Any = 0.0, floor: Any = None
) -> tuple[Constraint, ...]:
    """Return constraints from user arguments: one of each, or lists of m (or mappings by name)."""
    if np.ndim(threshold) == 0 and not isinstance(threshold, Mapping):
        return named_constraints(Constraint(utility, threshold, slack, names[0] if names else "", least_total, floor))
    if isinstance(threshold, Mapping):
        names = names or tuple(threshold)
    m = len(threshold)
    columns = [
        _column(name, value, m, names) for name, value in _arguments(utility, threshold, slack, least_total, floor)
    ]
    labels = list(names) or [""] * m
    return named_constraints(
        [Constraint(u, b, xi, label, least, low) for u, b, xi, least, low, label in zip(*columns, labels, strict=True)]
    )


def _arguments(utility: Any, threshold: Any, slack: Any, least_total: Any, floor: Any) -> list[tuple[str, Any]]:
    named = {"utility": utility, "threshold": threshold, "slack": slack, "least_total": least_total, "floor": floor}
    return list(named.items())


def _column(name: str, value: Any, m: int, names: Sequence[str]) -> list[Any]:
    """Return one value per limit."""
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise InvalidProblem(f"{name} is given for {', '.join(map(str, value))}, the limits are {', '.join(names)}")
        return [value[label] for label in names]
    if value is None or (np.ndim(value) == 0 and is_number(value) and name in ("least_total", "floor")):
        return [value] * m
    if not isinstance(value, Sequence | np.ndarray) or len(value) != m:
        raise InvalidProblem(f"threshold has {m} entries, so {name} must be a list of {m}")
    return list(value)


def index_encoder(num_states: int, names: Mapping[Any, int]) -> Callable[[Any], int]:
    """Return the encoder of listed states: a number, or the name of a state."""

    def encode(observation: object) -> int:
        found = names.get(observation, observation) if names and isinstance(observation, Hashable) else observation
        if not isinstance(found, int | np.integer) or isinstance(found, bool) or not 0 <= found < num_states:
            raise InvalidEpisode(f"a state must be a whole number in [0, {num_states}), got {observation!r}")
        return int(found)

    return encode


def encoder_like(example: object) -> Callable[[Any], State]:
    """Return an encoder to the type of an example state: numbers, texts, tuples and arrays."""
    if isinstance(example, np.ndarray):
        dtype, shape = example.dtype, example.shape

        def encode_array(observation: Any) -> State:
            array = np.array(observation, dtype=dtype)
            if array.shape != shape:
                raise InvalidEpisode(f"a state must have shape {shape}, got {array.shape}")
            array.setflags(write=False)
            return array

        return encode_array
    if isinstance(example, tuple) and not is_outside(example):
        parts = [encoder_like(part) for part in example]

        def encode_tuple(observation: Any) -> tuple[Any, ...]:
            if len(observation) != len(parts):
                raise InvalidEpisode(f"a state must have {len(parts)} parts, got {observation!r}")
            return tuple(part(one) for part, one in zip(parts, observation, strict=True))

        return encode_tuple
    if isinstance(example, bool | int | np.integer) or example is None:
        return _plain
    return type(example) if isinstance(example, float | str) else _plain


def _plain(observation: Any) -> Any:
    """Return NumPy scalars as Python numbers, lists as tuples, and other hashable values unchanged."""
    if isinstance(observation, np.generic):
        return observation.item()
    if isinstance(observation, list):
        return tuple(_plain(part) for part in observation)
    if isinstance(observation, np.ndarray):
        array = observation.copy()
        array.setflags(write=False)
        return array
    return observation


def _finite(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return an observed signal as an array; one limit needs no second axis."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidEpisode(f"{name} must be numbers, got {value!r}") from error
    if shape[-1] == 1 and array.ndim == len(shape) - 1:
        array = array[..., None]
    if array.shape != shape:
        raise InvalidEpisode(f"{name} must have shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidEpisode(f"{name} must be finite, got {value!r}")
    return array


__all__ = ["ENDED", "START", "Carry", "Constraint", "Features", "FunctionFeatures", "OneHot", "TableFeatures", "Task"]

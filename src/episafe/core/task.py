"""What an agent knows about a problem: everything except the transition probabilities."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from episafe.core.checks import (
    TOLERANCE,
    as_array,
    as_count,
    as_indices,
    as_number,
    as_scale,
    as_unit_range,
    check_norm,
    is_number,
    require,
)
from episafe.core.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.core.policy import OpaquePolicy, Policy, as_policy
from episafe.core.types import (
    Array,
    Encoder,
    Episode,
    IntArray,
    Move,
    PerLimit,
    State,
    StateFunction,
    Support,
    Unit,
    View,
    index_of,
    is_outside,
)

MOST_RECENT = 1000  # states whose cells are kept
Cell = Callable[[Any], Hashable]  # state -> the group that it belongs to


@dataclass(frozen=True, eq=False)
class Constraint:
    """One limit: the expected total utility of every deployed policy is at least `threshold`.

    Attributes:
        utility: u (H, S, A) in [0, 1]; or (h, state) -> u_h(state, ·), shape (A,); None if it is only observed.
        threshold: b, the limit on the expected total utility of an episode.
        slack: ξ > 0, by which the incumbent's expected utility exceeds b; None if unknown.
        name: the name of the limit in messages and on pages.
        least_total: a total utility that every episode is certain to reach.
        cut: larger reported totals (`Episode.of_totals`) count as this value, see `es.tail`; None for no cut.
        floor: a total that no episode of any deployed policy may be below; None if no floor is required.
    """

    utility: Any = field(repr=False)
    threshold: float
    slack: float | None
    name: str = ""
    least_total: float = 0.0
    floor: float | None = None
    cut: float | None = None

    def __post_init__(self) -> None:
        threshold, least = as_number("threshold", self.threshold), as_number("least_total", self.least_total)
        text = f"least_total {least:g} is not below the threshold {threshold:g}"
        require(least < threshold or least == 0, f"{text}: give the worst total of an episode, or 0 if it is unknown")
        floor = None if self.floor is None else as_number("floor", self.floor)
        slack = None if self.slack is None else as_scale("slack", self.slack, positive=True)
        self.__dict__.update(threshold=threshold, slack=slack, least_total=least, floor=floor)


@dataclass(frozen=True)
class OneHot:
    """One indicator per state and action, or per `cell` and action: exact for finite states, held as counts."""

    cell: Cell | None = None  # None to tell all states apart
    size: int | None = None  # how many values `cell` takes; None for listed states, or if unknown


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
    """A running total from 0 that is appended to every state except START and ENDED: policies see (state, total).

    Attributes:
        inner: the task without the total.
        step: (h, (state, total), action, chance, utilities of `inner` or None if known) -> the total after the
            step, and its utilities (m,).
    """

    inner: "Task"
    step: Callable[[int, Any, int, Any, Array | None], tuple[float, Array]]


@dataclass(frozen=True, eq=False)
class Task:
    """What an agent knows about a problem, of any kind. All fields are checked.

    Attributes:
        horizon: H, steps per episode (with the dummy first step, if the start is random). None for `Rollout`.
        num_actions: A. None for `Rollout`.
        constraints: the m limits.
        incumbent: the policy in use today, which keeps every limit with its slack.
        initial_state: s_1; START if the start is random.
        num_states: S, if the states are the numbers 0..S−1; else None.
        reward: r (H, S, A) in [0, 1], or (h, state) -> (A,); None if it is only observed.
        features: one-hot, a table (S, A, d), or a function of the state.
        time_homogeneous: whether transitions (and signals) are the same at every step; steps then share their data.
        encode: observation -> state; every observation passes through it.
        view: state -> observation, the argument of users' functions; None if the two are the same.
        move: how the system moves given chance, if chance is exogenous.
        support: (h, state) -> the values that chance can take there.
        carry: a running total that is part of every state; an observation is then (observation, total).
        outside: (reward, (u_1, …, u_m)) per step in START and ENDED, if the problem has these states.
        norm_bound: B with ‖Σ_s' μ_h(s') g(s')‖ ≤ B max g for all g ≥ 0; √d by default, inf if P is not linear in φ.
        state_names, action_names, units: for display; units by "reward" and the names of the limits.
        num_constraints, thresholds: m, and b, shape (m,).
        least_totals: the totals that every episode is certain to reach, shape (m,).
        floors: the totals that no episode of a deployed policy may be below, shape (m,); −∞ if none is required.
        stated_utilities: the stated utilities of the incumbent, b + ξ, shape (m,); b if the slack is unknown.
    """

    horizon: int | None
    num_actions: int | None
    constraints: tuple[Constraint, ...]
    incumbent: Policy
    initial_state: Any = 0
    num_states: int | None = None
    reward: Any = None
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
    units: Mapping[str, Any] = field(default_factory=dict)
    num_constraints: int = field(init=False, repr=False)
    thresholds: Array = field(init=False, repr=False)
    least_totals: Array = field(init=False, repr=False)
    floors: Array = field(init=False, repr=False)
    stated_utilities: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        told = self.__dict__  # frozen for others; here the fields get their checked values
        limits = told["constraints"] = named_constraints(self.constraints)
        told["num_constraints"], told["thresholds"] = len(limits), np.array([one.threshold for one in limits])
        told["least_totals"] = np.array([one.least_total for one in limits])
        told["floors"] = np.array([-math.inf if one.floor is None else one.floor for one in limits])
        told["stated_utilities"] = np.array([one.threshold + (one.slack or 0.0) for one in limits])
        told |= {"state_names": tuple(self.state_names), "action_names": tuple(self.action_names)}
        told["units"] = {name: one if isinstance(one, Unit) else Unit(one) for name, one in self.units.items()}
        if self.horizon is not None and self.num_actions is not None:
            H, A = as_count("horizon", self.horizon), as_count("num_actions", self.num_actions)
            if self.num_states is not None:
                self._check_tables(H, as_count("num_states", self.num_states), A)
            told["incumbent"] = self.as_policy(self.incumbent)
            for one in self.constraints:
                text = f"threshold {one.threshold:g} + slack {one.slack or 0:g} of {one.name} exceeds the horizon {H}"
                fits = one.threshold + (one.slack or 0.0) <= H + TOLERANCE
                require(fits, f"{text}: a step has utility at most 1", Infeasible)
        if self.norm_bound is None:
            told["norm_bound"] = math.sqrt(self.dim) if self.dim else math.inf
        if self.encode is None:
            listed = self.num_states is not None
            told["encode"] = self._number if listed else encoder_like(self.initial_state)

    def unit(self, name: str) -> Unit:
        """Return the unit of the reward ("reward") or of a limit."""
        return self.units.get(name, Unit())

    def _check_tables(self, H: int, S: int, A: int) -> None:
        told, features = self.__dict__, self.features
        if isinstance(features, TableFeatures):
            phi = as_array("phi", features.phi, (S, A, None))
            check_norm("phi", phi)
            flat, eye = phi.reshape(S * A, -1), np.eye(S * A)
            one_hot = flat.shape == eye.shape and np.array_equal(flat @ flat.T, eye) and set(flat.flat) <= {0, 1}
            told["features"] = OneHot() if one_hot else TableFeatures(phi)
        told["constraints"] = tuple(
            replace(one, utility=_if_given(f"utility {one.name}", one.utility, (H, S, A))) for one in self.constraints
        )
        told["reward"] = _if_given("reward", self.reward, (H, S, A))
        told["initial_state"] = as_count("initial_state", self.initial_state, 0, S)
        names = set(self.state_names)
        require(len(names) in (0, S), f"state_names has {len(names)} different names for {S} states: give each its own")

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {name: i for i, name in enumerate(self.state_names)}

    def _number(self, observation: object) -> int:
        """Return the number of a listed state, given by its number or its name."""
        found = self._numbers.get(observation, observation) if isinstance(observation, Hashable) else observation
        if isinstance(found, int | np.integer) and type(found) is not bool and 0 <= found < (self.num_states or 0):
            return int(found)
        raise InvalidEpisode(f"a state must be a whole number in [0, {self.num_states}), got {observation!r}")

    # limits

    @cached_property
    def slacks(self) -> Array:
        """Return ξ, shape (m,); raise if one is unknown."""
        unknown = [one.name for one in self.constraints if one.slack is None]
        require(not unknown, f"the slack of {unknown} is unknown: give slack=… (es.measure_slack measures it)")
        return np.array([one.slack for one in self.constraints], dtype=np.float64)

    @property
    def limit_names(self) -> list[str]:
        """Return the names of the limits."""
        return [one.name for one in self.constraints]

    def with_limits(self, thresholds: Sequence[float], slacks: Sequence[float | None]) -> "Task":
        """Return the same task with other thresholds and slacks."""
        limits = zip(self.constraints, thresholds, slacks, strict=True)
        return replace(self, constraints=tuple(replace(one, threshold=b, slack=xi) for one, b, xi in limits))

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
        """Return the known utilities (m, H, S, A) of a listed task; None if they are only observed."""
        told = [one.utility for one in self.constraints]
        if not self.is_listed or any(one is None for one in told):
            return None
        return told[0][None] if len(told) == 1 else np.stack(told)

    @property
    def knows_reward(self) -> bool:
        """Return whether the reward is known and need not be observed."""
        return self.reward is not None

    @cached_property
    def knows_utility(self) -> bool:
        """Return whether every utility is known and need not be observed."""
        return all(one.utility is not None for one in self.constraints)

    def key(self, state: State) -> Hashable:
        """Return the key that one-hot features use for a state: the state, its cell, or the bytes of an array."""
        if self.num_states is not None:
            return index_of(state)
        found: Any = state
        if self._cell is not None and not is_outside(state):
            last, found = self._recent.get(id(state), (None, None))
            if last is not state:  # the same object is asked for several times: by policies, evidence and learning
                found = self._cell(state)
                if len(self._recent) >= MOST_RECENT:
                    self._recent.clear()
                self._recent[id(state)] = state, found
        return (found.dtype.str, found.shape, found.tobytes()) if isinstance(found, np.ndarray) else found

    @cached_property
    def _recent(self) -> dict[int, tuple[State, Any]]:
        return {}

    @cached_property
    def _cell(self) -> Cell | None:
        return self.features.cell if isinstance(self.features, OneHot) else None

    def phi(self, state: State) -> Array:
        """Return φ(state, ·), shape (A, d)."""
        features = self.features
        if isinstance(features, TableFeatures):
            return features.phi[index_of(state)]
        if isinstance(features, OneHot):
            return np.eye(self.num_actions or 0, self.dim, index_of(state) * (self.num_actions or 0))
        if is_outside(state):
            return np.zeros((self.num_actions or 0, features.dim))
        phi = np.asarray(features.function(state), dtype=np.float64)
        if phi.shape != (self.num_actions, features.dim) or not np.vecdot(phi, phi).max() <= 1 + TOLERANCE:
            name = f"features at {state!r}"  # written only now: an array takes longer to write than to check
            phi = as_array(name, phi, (self.num_actions, features.dim))
            check_norm(name, phi)
        return phi

    def reward_at(self, h: int, state: State) -> Array:
        """Return r_h(state, ·), shape (A,); NaN if it is only observed."""
        if isinstance(self.reward, np.ndarray):
            return self.reward[h, index_of(state)]
        return self._signal(self.reward, h, state, 0)

    def utility_at(self, h: int, state: State) -> Array:
        """Return u_h(state, ·) of every limit, shape (m, A); NaN if it is only observed."""
        if self.utilities is not None:
            return self.utilities[:, h, index_of(state)]
        return np.array([self._signal(one.utility, h, state, 1 + c) for c, one in enumerate(self.constraints)])

    def _signal(self, function: StateFunction | None, h: int, state: State, column: int) -> Array:
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
        """Return a policy for a user's candidate; a table if the states are listed."""
        if self.num_actions is None:
            return given if isinstance(given, Policy) else OpaquePolicy(given)
        shape = (self.horizon or 0, self.num_states, self.num_actions) if self.num_states is not None else None
        return as_policy(given, self.num_actions, int(self.random_start), shape, self.view)

    def read(self, episode: Episode, encoded: bool = False) -> Episode:
        """Return the episode in canonical form, checked; raise InvalidEpisode if it does not fit.

        States become (H+1,) integers or a tuple of states, and are encoded if they are not yet. Actions are (H,),
        rewards (H,), utilities (H, m). Signals that the task knows are filled in, and the totals: utility (m,) and
        reward.
        """
        if episode.checked_by is self:
            return episode
        m, H = self.num_constraints, self.horizon
        if episode.states is None or H is None or self.num_actions is None:
            text = "the episode has neither states nor a total utility: use es.Episode.of_totals(…)"
            require(episode.total_utility is not None, text, InvalidEpisode)
            cuts = [math.inf if one.cut is None else one.cut for one in self.constraints]
            utility = np.minimum(_finite("total_utility", episode.total_utility, (m,)), cuts)
            reward = float(_finite("total_reward", episode.total_reward or 0.0, (1,))[0])
            return self._checked(replace(episode, total_utility=utility, total_reward=reward))
        actions = as_indices("actions", episode.actions, H, self.num_actions)
        if len(episode.states) != H + 1:
            raise InvalidEpisode(f"states must have length {H + 1} (the horizon + 1), got {len(episode.states)}")
        states: IntArray | tuple[State, ...] = episode.states
        if self.num_states is not None:
            states = as_indices("states", states, H + 1, self.num_states)
        elif not encoded and self.encode is not None:
            states = tuple(state if is_outside(state) else self.encode(state) for state in states)
        if (rewards := episode.rewards) is None:
            self._require_known("rewards", self.knows_reward, episode)
            rewards = [self.reward_at(h, states[h])[actions[h]] for h in range(H)]
        if (utilities := episode.utilities) is None:
            self._require_known("utilities", self.knows_utility, episode)
            utilities = [self.utility_at(h, states[h])[:, actions[h]] for h in range(H)]
        steps = states, actions, _finite("rewards", rewards, (H,)), _finite("utilities", utilities, (H, m))
        totals = np.cumsum(steps[3], axis=0)[-1], float(np.cumsum(steps[2])[-1])
        return self._checked(Episode(*steps, episode.component, episode.trace, *totals))

    def _checked(self, episode: Episode) -> Episode:
        episode.__dict__["checked_by"] = self
        return episode

    def _require_known(self, name: str, known: bool, episode: Episode) -> None:
        traced = self.move is not None and episode.trace is not None  # with chance, signals are not their means
        if traced or not known:
            why = "the episode has a trace" if traced else f"the task does not know the {name}"
            raise InvalidEpisode(f"{name} must be reported, because {why}: give {name}=… with every episode")


@runtime_checkable
class Problem(Protocol):
    """A problem of any kind; an agent sees only its task."""

    @property
    def task(self) -> Task:
        """Return the task."""


ProblemLike = Problem | Task


def task_of(problem: ProblemLike) -> Task:
    """Return the task of a problem, or the task itself."""
    task = problem.task if isinstance(problem, Problem) else problem
    require(isinstance(task, Task), f"an agent needs a problem or its .task, got {type(problem).__name__}", TypeError)
    return task


def _if_given(name: str, value: object, shape: tuple[int, ...]) -> Array | None:
    return None if value is None else as_unit_range(name, value, shape)


def named_constraints(given: object) -> tuple[Constraint, ...]:
    """Return the constraints, at least one, with distinct names."""
    several = tuple(given) if isinstance(given, Sequence) else (given,)
    all_right = several and all(isinstance(one, Constraint) for one in several)
    require(all_right, "constraints must be one es.Constraint(utility, threshold, slack) or a list of them")
    default = ["utility"] if len(several) == 1 else [f"limit {c + 1}" for c in range(len(several))]
    named = tuple(one if one.name else replace(one, name=name) for one, name in zip(several, default, strict=True))
    names = [one.name for one in named]
    require(len(set(names)) == len(names), f"the names of the limits are not unique: {', '.join(names)}")
    return named


def make_constraints(
    utility: object,
    threshold: PerLimit,
    slack: PerLimit,
    names: Sequence[str] = (),
    least_total: PerLimit = 0.0,
    floor: PerLimit = None,
) -> tuple[Constraint, ...]:
    """Return constraints from user arguments: one of each, or lists of m (or mappings by name)."""
    if isinstance(threshold, np.ndarray) and threshold.ndim == 0:
        threshold = float(threshold)
    m = len(threshold) if isinstance(threshold, list | tuple | Mapping | np.ndarray) else None
    names = names or (tuple(threshold) if isinstance(threshold, Mapping) else [""] * (m or 1))
    given = {"utility": utility, "threshold": threshold, "slack": slack, "least_total": least_total, "floor": floor}
    columns = [
        [value] if m is None else per_limit(name, value, names, name in ("least_total", "floor"))
        for name, value in given.items()
    ]
    rows = zip(*columns, names if m is not None else names[:1], strict=True)
    return named_constraints([Constraint(u, b, xi, name, least, at_least) for u, b, xi, least, at_least, name in rows])


def per_limit(name: str, value: object, names: Sequence[str], for_all: bool = False) -> list[Any]:
    """Return one value per limit, given in order or by name; with `for_all` one number stands for all limits."""
    if isinstance(value, Mapping):
        given = ", ".join(map(str, value))
        require(set(value) == set(names), f"{name} is given for {given}, the limits are {', '.join(names)}")
        return [value[label] for label in names]
    if value is None or (is_number(value) and (for_all or len(names) == 1)):
        return [value] * len(names)
    if isinstance(value, Sequence | np.ndarray) and len(value) == len(names):
        return list(value)
    raise InvalidProblem(f"there are {len(names)} limits, so {name} must be a list of {len(names)}, got {value!r}")


def encoder_like(example: object) -> Encoder:
    """Return an encoder that converts states to the type of an example: number, text, tuple or array.

    If the example is of another type, NumPy scalars become Python numbers and lists become tuples.
    """
    if isinstance(example, float | str):
        return type(example)
    if isinstance(example, tuple) and not is_outside(example):
        parts = [encoder_like(part) for part in example]

        def encode(observation: Sequence[object]) -> State:
            if len(observation) != len(parts):
                raise InvalidEpisode(f"a state must have {len(parts)} parts, got {observation!r}")
            return tuple([encode_part(one) for encode_part, one in zip(parts, observation, strict=True)])

        return encode
    return partial(_plain, example if isinstance(example, np.ndarray) else None)


def _plain(example: NDArray[Any] | None, observation: Any) -> State:
    if example is not None or isinstance(observation, np.ndarray):
        array = np.array(observation, dtype=None if example is None else example.dtype)
        if example is not None and array.shape != example.shape:
            raise InvalidEpisode(f"a state must have shape {example.shape}, got {array.shape}")
        array.setflags(write=False)
        return array
    if isinstance(observation, list):
        return tuple([_plain(None, part) for part in observation])
    return observation.item() if isinstance(observation, np.generic) else observation


def _finite(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return an observed signal as an array; one limit needs no second axis."""
    try:
        array = np.asarray(value)
        one = shape[-1] == 1 and array.ndim == len(shape) - 1
        return as_array(name, array[..., None] if one else array, shape)
    except ValueError as error:
        raise InvalidEpisode(str(error)) from error

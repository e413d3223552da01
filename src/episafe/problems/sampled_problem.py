"""Problems given by functions: states are anything, and nothing of the size of the state space is stored."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.checks import (
    TOLERANCE,
    as_count,
    as_finite,
    as_flag,
    as_norm_bound,
    as_unit_range,
    within_unit_norm,
)
from episafe.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.gym.step_reader import Reading
from episafe.problems.episodic_task import EpisodicTask, Signal
from episafe.problems.policy import FunctionPolicy, Policy, as_checked, counts_as_task
from episafe.problems.short_repr import short_repr, task_facts
from episafe.problems.states import Outside, StateReader, asked_like, is_sealed, key, reader_like
from episafe.problems.task import Constraint, Task, as_constraints, constraints_of
from episafe.storage.json_values import keys_as_bytes
from episafe.types import Array, Episode, Move, amount

REMEMBERED = 1_000  # cells of the states met last, which policy, certificate and regression look up
NOT_MET = (object(), None)  # a state, and its cell
PLACES = 32  # of an episode, that an incumbent given by a function is known by
SignalFunction = Callable[[int, Any], Any]  # (h, state) ↦ r_h(state, ·) or u_h(state, ·), shape (A,)


@dataclass(frozen=True, eq=False, repr=False)
class SampledTask(EpisodicTask):
    """What a learner is told of a problem given by functions; the counterpart of `Task`.

    Attributes:
        horizon, num_actions, dim: H, A, d.
        initial_state: s₁.
        constraint: utility, threshold and slack, or a list of several; a utility is (h, state) ↦ u_h(state, ·), shape
            (A,), in [0, 1], or None where it is not known and has to be learned from the utilities of episodes.
        safe_policy: the incumbent π_sf.
        feature_function: state ↦ φ(state, ·), shape (A, d), norms at most 1; None for one-hot features of whatever
            states are met.
        reward_function: (h, state) ↦ r_h(state, ·), shape (A,), in [0, 1]; None where it has to be learned.
        outside: the reward and the utilities a step of the states START and ENDED, where the problem has them.
        cell_function: state ↦ what one-hot features tell apart; None for the state itself.
        time_homogeneous: whether transitions, and reward and utility where they are learned, are the same at every
            step; what is seen at one step then counts for all.
        norm_bound: B with ‖∫ g dμ_h‖₂ ≤ B max g for every g ≥ 0, where P_h(·|s,a) = φ(s,a)ᵀμ_h; √d by default.
        reading: how raw observations, actions and signals of its environment are read, where it has one.
        move: how the system moves given chance, where chance is exogenous; the law of chance is not in it.
        utility_weights: where its utility is the weighted sum of several, their weights; else none.
    """

    horizon: int
    num_actions: int
    dim: int
    initial_state: Any
    constraint: Any
    safe_policy: Policy
    feature_function: Callable[[Any], Any] | None
    reward_function: SignalFunction | None
    outside: Mapping[Outside, tuple[Any, ...]] = field(default_factory=dict)
    cell_function: Callable[[Any], Any] | None = None
    time_homogeneous: bool = False
    reading: Reading | None = None
    move: Move | None = None
    utility_weights: tuple[float, ...] = ()
    norm_bound: float = None  # type: ignore[assignment]  # √d, once it is made
    _cells: dict[int, tuple[Any, Hashable]] = field(default_factory=dict, init=False, repr=False)

    num_states: ClassVar[None] = None
    is_listed: ClassVar[Literal[False]] = False

    def __post_init__(self) -> None:
        constraints = as_constraints(self.constraint)
        if len({one.utility is None for one in constraints}) > 1:
            raise InvalidProblem("some utilities are told and some are not: give a function for each, or for none")
        self.__dict__.update(
            constraint=constraints if len(constraints) > 1 else constraints[0],
            norm_bound=as_norm_bound(self.norm_bound, self.dim),
        )
        self.__dict__["safe_policy"] = as_checked(self.safe_policy, self.asked_at)
        if isinstance(self.initial_state, np.ndarray):
            self.__dict__["initial_state"] = self.read(self.initial_state)  # which nobody can write to

    @property
    def one_hot(self) -> bool:
        """Whether φ is one-hot, so that Gram matrices are diagonal counts."""
        return self.feature_function is None

    @cached_property
    def unknown(self) -> tuple[str, ...]:  # type: ignore[override]
        """Which of "reward" and "utility" have to be learned."""
        functions = {"reward": self.reward_function, "utility": self.constraints[0].utility}  # all are told, or none
        return tuple(name for name, function in functions.items() if function is None)

    def key(self, state: Any) -> Hashable:
        """What a state is looked up by."""
        if type(state) is Outside:
            return state
        if self.cell_function is None:
            state = self.read(state)
            return state if type(state) is int else key(state)
        met, name = self._cells.get(id(state), NOT_MET)
        if met is state:
            return name
        name = key(self.cell_function(self.read(state)))
        if is_sealed(state):
            if len(self._cells) >= REMEMBERED:
                self._cells.clear()
            self._cells[id(state)] = state, name
        return name

    @cached_property
    def read(self) -> StateReader:
        """What makes a state of what is said, by the observation space, else by the initial state.

        All are of the same types then: else it would be a state that nobody has met, or in which somebody acts as he
        was not judged. What cannot be one is left as it is, to be refused.
        """
        return reader_like(self.initial_state) if self.reading is None else self.reading.observations.read

    @cached_property
    def asked_at(self) -> StateReader:
        """The same for policies, before they are asked: what cannot be a state is refused."""
        return asked_like(self.initial_state) if self.reading is None else self.reading.observations.asked_at

    def as_state(self, said: Any) -> Any:
        """A state as somebody says it, as the task has it."""
        return self.read(said)

    def require_state(self, state: Any) -> None:
        """An InvalidEpisode where a state is no observation: whoever acts there would act as where nobody was."""
        if self.reading is not None:
            self.reading.require_state(state)

    def described(self, h: int, state: Any) -> tuple[Array, Array, Array]:
        """φ (A, d), r_h and u_h (A,) at a state, checked in full; NaN for what is not known."""
        A, phi = self.num_actions, np.zeros((self.num_actions, 0))
        if self.one_hot and len(self.unknown) == 2:
            return phi, self.reward_at(h, state), self.utility_at(h, state)
        place = f"at step {h}, state {state!r}"
        if self.feature_function is not None:
            phi = as_finite(f"features {place}", self.feature_function(state), (A, self.dim))
            within_unit_norm(f"features {place}", phi)
        reward, utility = self.reward_at(h, state), self.utility_at(h, state)
        for name, values in (("reward", reward), ("utility", utility)):
            if name not in self.unknown:
                as_unit_range(f"{name} {place}", values, (A,) if values.ndim == 1 else (A, self.num_constraints))
        return phi, reward, utility

    def features(self, state: Any) -> Array:
        """φ(state, ·), shape (A, d)."""
        if self.feature_function is None:
            raise ValueError("one-hot features of states that are not listed have no array")
        given = self.feature_function(self.as_state(state))
        return self._shaped("features", given, (self.num_actions, self.dim), state)

    def reward_at(self, h: int, state: Any) -> Array:
        """r_h(state, ·), shape (A,); NaN where it is not known."""
        return self._signal(0, self.reward_function, h, state)

    def utility_at(self, h: int, state: Any) -> Array:
        """u_h(state, ·), shape (A,), or (A, m) where there are several constraints; NaN where it is not known."""
        rows = [self._signal(1 + c, one.utility, h, state) for c, one in enumerate(self.constraints)]
        return rows[0] if len(rows) == 1 else np.stack(rows, axis=-1)

    def _signal(self, g: int, function: SignalFunction | None, h: int, state: Any) -> Array:
        if isinstance(state, Outside):
            return np.full(self.num_actions, self.outside[state][g])
        if function is None:
            return np.full(self.num_actions, np.nan)
        return self._shaped(self._signal_names[g], function(h, self.as_state(state)), (self.num_actions,), state)

    @cached_property
    def _signal_names(self) -> tuple[str, ...]:
        return ("reward", *(f"utility{one.of}" for one in self.constraints))

    @staticmethod
    def _shaped(name: str, value: Any, shape: tuple[int, ...], state: Any) -> Array:
        """The value as a float64 array of this shape: the compiled policy relies on it."""
        array = np.ascontiguousarray(value, dtype=np.float64)
        if array.shape != shape:
            raise InvalidProblem(
                f"{name} at state {state!r} must have shape {shape}, got {array.shape}: give it that shape"
            )
        return array

    def as_policy(self, given: Any) -> Policy:
        """A policy, or a function (h, state) ↦ π (A,) as one.

        Where the start is random, functions and objects of others count from the first observation.
        """
        function = getattr(given, "probabilities", None)
        if function is not None and (not self.random_start or counts_as_task(given)):
            return as_checked(given, self.asked_at)
        before = int(self.random_start)
        return FunctionPolicy(given if function is None else function, self.num_actions, before, self.asked_at)

    def as_candidate(self, given: Any) -> Any:
        """A policy as it is put on trial: as it is, if it has a distribution where episodes begin.

        An object of somebody else that is asked after a random start is made one of ours, by `as_policy`.
        """
        if self.random_start:
            return given if counts_as_task(given) else self.as_policy(given)
        as_checked(given).probabilities(0, self.initial_state)
        return given

    def weighted(self, weights: Array) -> "SampledTask":
        """The same task with one constraint, on the weighted sum of all utilities; `weights` (m,) sum to 1."""
        utilities, told = [one.utility for one in self.constraints], "utility" not in self.unknown
        slacks = [one.slack for one in self.constraints]
        one = Constraint(
            (lambda h, state: sum(v * np.asarray(u(h, state)) for v, u in zip(weights, utilities, strict=True)))
            if told
            else None,
            float(weights @ np.array([one.threshold for one in self.constraints])),
            None if None in slacks else float(weights @ np.array(slacks)),
        )
        outside = {state: (told[0], float(weights @ np.array(told[1:]))) for state, told in self.outside.items()}
        return replace(self, constraint=one, outside=outside, move=None, utility_weights=tuple(weights.tolist()))

    def least_norm(self) -> float:
        """0: the features of states that nobody lists say nothing of the whole."""
        return 0.0

    def report_from(self, values: list[Any]) -> tuple[Episode]:
        """What an agent learns from, of what `report_values` gave; states are as the task has them."""
        (episode,) = super().report_from(values)
        if not isinstance(episode.states, list | tuple | np.ndarray):
            return (episode,)
        return (replace(episode, states=[self.as_state(state) for state in episode.states]),)

    def _read_states(self, states: Any) -> Any:
        """The states as they are: each is checked when it is first seen, before anything is learned."""
        if len(states) != self.horizon + 1:
            raise InvalidEpisode(f"states must have length {self.horizon + 1}, got {len(states)}")
        return list(map(self.read, states)) if self.reading is None else self.reading.states(states)

    def _told(self, signal: Signal, states: Any, actions: Any) -> Any:
        rows = self.utility_at if signal == "utility" else self.reward_at
        return [rows(h, states[h])[actions[h]] for h in range(self.horizon)]

    def _check_states(self, states: Any) -> None:
        for h, state in enumerate(states[:-1]):
            self.described(h, state)

    def places(self, episode: Episode) -> list[tuple[int, Any, int]]:
        """Steps, at most PLACES of them, with the states and actions of an episode: functions are known by these."""
        every = -(-self.horizon // PLACES)
        visited = [(h, episode.states[h], int(episode.actions[h])) for h in range(0, self.horizon, every)]
        return [place for place in visited if not isinstance(place[1], Outside)]

    def _told_numbers(self, policies: list[Policy]) -> list[Any]:
        """Of functions, what they say of the initial state."""
        s = self.initial_state
        outside = sorted((state.value, *told) for state, told in self.outside.items())
        first = key(s) if self.cell_function is None else self.key(s)  # of the type that was given
        names = keys_as_bytes([first, tuple(outside), self.unknown])
        told = np.zeros(0) if self.one_hot else self.features(s), self.reward_at(0, s), self.utility_at(0, s)
        return [names, *told, *(policy.probabilities(0, s) for policy in policies)]


AnyTask = Task | SampledTask


def require_task(user: str, task: Any) -> None:
    """A TypeError unless `task` is what a learner is told of an MDP; `user` begins its sentence, "an agent is"."""
    if not hasattr(task, "is_listed"):
        hint = ": pass its .task" if hasattr(task, "task") else ""
        raise TypeError(f"{user} built from an es.Task or es.SampledTask, got {type(task).__name__}{hint}")


def known_slack(task: AnyTask) -> float:
    """ξ, or an error for what cannot do without it."""
    return amount(known_slacks(task)) if task.num_constraints == 1 else task.only("slack")


def known_slacks(task: AnyTask) -> Array:
    """ξ of every constraint, (m,), or an error for what cannot do without them."""
    for one in task.constraints:
        if one.slack is None:
            raise InvalidProblem(
                f"the slack{one.of} is not known, and this needs it: measure it with es.measure_slack and give slack=…"
                ", or use the planner's own certificate, which does not"
            )
    return np.array([one.slack for one in task.constraints])


def linear_norm_bound(task: AnyTask) -> float:
    """B, or an error for what needs P to be linear in the features with that B, where it cannot be."""
    least = math.inf if math.isinf(task.norm_bound) else task.least_norm()
    if math.isinf(least):
        raise Infeasible("P is not linear in the features, and this needs it: use es.certify.Observation()")
    if task.norm_bound < least * (1 - TOLERANCE):
        raise Infeasible(
            f"no P that is linear in these features has norm_bound {task.norm_bound:.6g}: give a norm_bound that its μ "
            f"is known to keep, at least {least:.6g}, or use es.certify.Observation()"
        )
    return task.norm_bound


class SampledCMDP:
    """A constrained MDP given by functions; its kernel can be sampled and is known to nobody.

    Args:
        features: state ↦ φ(state, ·), shape (A, d), norms at most 1.
        reward, utility: (h, state) ↦ r_h(state, ·), u_h(state, ·), shape (A,), in [0, 1]; None where nobody knows the
            means, with `chance` alone: they are then learned from episodes. With several constraints a list of
            functions, and lists of as many thresholds and slacks.
        sample: (h, state, action, rng) ↦ next state, drawn with `rng`, a numpy Generator; None with `chance`.
        horizon: H.
        num_actions: A.
        initial_state: s₁; states are hashable values or numpy arrays. What policies are asked at and what is reported
            is read in the form of this one, where that is plain, and some forms are refused. That policies are asked
            at the very states that are reported, 3 and not "3", None and not NaN, is for the caller to see to.
        threshold: b.
        safe_policy: (h, state) ↦ π_sf(·|state), shape (A,), or a policy. That it is safe is for the caller to know.
        slack: ξ > 0, what it has above the threshold at least; None where nobody knows.
        time_homogeneous: True if the distribution of `sample` does not depend on h. That it does not is for the caller
            to know.
        move: (h, state, action, w) ↦ (next state, reward, utility), where chance is exogenous: its law does not depend
            on what is done. The learner is told it; that it is right, everywhere, is for the caller to know.
        chance: (h, past, rng) ↦ w_h, given (w_0, …, w_{h−1}): draws what chance brings, with `move` and in place of
            `sample`. The learner is not told it.
        norm_bound: B with ‖∫ g dμ_h‖₂ ≤ B max g for every g ≥ 0, where P_h(·|s,a) = φ(s,a)ᵀμ_h; None for the paper's
            √d. Features that are divided by c need c times as much. That it holds is for the caller to know.
        names: what people read of the constraints.
        least_total: what the total utility of every episode is at least, whatever is done: where utilities are 1 − cost
            and an episode costs at most C, H − C. It must be enforced, or follow from the steps: an episode below it
            halts and voids all certificates.
        origin: where the problem comes from, as plain values.

    Exact values are not to be had: records of its runs hold NaN there, and the totals observed in each episode.
    """

    is_exact: ClassVar[Literal[False]] = False

    def __init__(
        self,
        features: Callable[[Any], Any],
        reward: SignalFunction | None,
        utility: Any,
        sample: Callable[[int, Any, int, np.random.Generator], Any] | None,
        horizon: int,
        num_actions: int,
        initial_state: Any,
        threshold: Any,
        safe_policy: Any,
        slack: Any,
        *,
        time_homogeneous: bool = False,
        move: Move | None = None,
        chance: Callable[[int, tuple[Any, ...], np.random.Generator], Any] | None = None,
        norm_bound: float | None = None,
        least_total: Any = 0.0,
        names: Sequence[str] = (),
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        _require_one_source(sample, move, chance)
        H, A = as_count("horizon", horizon), as_count("num_actions", num_actions)
        phi = as_finite("features at the initial state", features(initial_state), (A, None))
        told_policy = hasattr(safe_policy, "probabilities")
        self.task = SampledTask(
            horizon=H,
            num_actions=A,
            dim=as_count("the dimension of the features", phi.shape[1]),
            initial_state=initial_state,
            constraint=constraints_of(utility, threshold, slack, names, least_total),
            safe_policy=as_checked(safe_policy) if told_policy else FunctionPolicy(safe_policy, A),
            feature_function=features,
            reward_function=reward,
            time_homogeneous=as_flag("time_homogeneous", time_homogeneous),
            move=move,
            norm_bound=norm_bound,  # type: ignore[arg-type]
        )
        self.task.described(0, initial_state)
        self.task.safe_policy.probabilities(0, initial_state)
        self.sample, self.chance = sample, chance
        self.origin: dict[str, str | int | float] = dict(origin or {})

    def __repr__(self) -> str:
        return short_repr(self, self.origin | task_facts(self.task))

    def draw_trace(self, rng: np.random.Generator) -> tuple[Any, tuple[Any, ...]]:
        """What chance brings in an episode, whatever is done; of a problem with `chance`."""
        if self.chance is None:
            raise InvalidProblem("nobody said what chance brings: give chance=(h, past, rng) ↦ w to draw traces")
        past: tuple[Any, ...] = ()
        for h in range(self.task.horizon):
            past = (*past, self.chance(h, past, rng))
        return self.task.initial_state, past


def _require_one_source(sample: Any, move: Any, chance: Any) -> None:
    """Next states come from `sample`, or from `chance` by way of `move`."""
    if (sample is None) == (chance is None):
        raise InvalidProblem("next states come from sample, or from chance by way of move: give one of them")
    if chance is not None and move is None:
        raise InvalidProblem("chance needs move=(h, state, action, w) ↦ (next state, reward, utility): give it")

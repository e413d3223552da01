"""Problems given by functions: states can have any type, and nothing of the size of the state space is stored."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from episafe.core.checks import TOLERANCE, as_count, require
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.task import Task, encoder_like, make_constraints
from episafe.core.types import (
    ENDED,
    START,
    Array,
    Encoder,
    Episode,
    Move,
    PerLimit,
    State,
    StateFunction,
    Support,
    View,
    is_outside,
)
from episafe.problems.features import as_features

Step = tuple[Any, float, Any, object]  # next state, reward, utilities (m,), and the random input
Origin = dict[str, str | int | float]  # facts for records
Outside = Mapping[tuple[str], tuple[float, tuple[float, ...]]]


class PlayedCMDP:
    """A problem whose episodes are played and whose kernel is unknown."""

    task: Task
    origin: Origin

    @property
    def num_steps(self) -> int:
        """Return H without the dummy first step of a random start."""
        return (self.task.horizon or 0) - int(self.task.random_start)

    def cost_of(self, utilities: Array) -> float:
        """Return the cost of a step from its utilities (1,), in the unit of the limit."""
        return 1 - float(utilities[0])

    def with_total(self, task: Task, origin: Mapping[str, str | int | float]) -> Self:
        """Return the same problem with a running total in its states, which the last limit is about."""
        made = copy(self)
        made.task, made.origin = task, dict(origin)
        return made


class SampledCMDP(PlayedCMDP):
    """A constrained MDP given by functions; transitions can be drawn, and their probabilities are unknown.

    Args:
        features: `es.features.OneHot(cell, size)`, or state -> φ(state, ·), (A, d), or ψ (k,); norms at most 1.
        reward, utility: (h, state) -> r_h(state, ·), u_h(state, ·), (A,) in [0, 1]; utility: or a list of m. None if
            they are unknown and learned from episodes, which needs `move` and `chance`.
        sample: (h, state, action, rng) -> next state; None with `chance`.
        horizon, num_actions: H, A.
        initial_state: s₁: a number, text, tuple or array; states are encoded to its type. With `start`, an example.
        threshold: b, or a list of m.
        safe_policy: the incumbent, (h, state) -> probabilities (A,), or a policy. It is assumed to be safe.
        slack: ξ > 0, by which the incumbent exceeds b, or a list of m; None if unknown.
        start: rng -> first state, if the start is random. The task then has a dummy first step, see `Task`.
        time_homogeneous: True if `sample` does not depend on h.
        move: (h, state, action, w) -> (next state, reward, utility), if chance is exogenous; the agent knows it.
        chance: (h, past, rng) -> w_h given (w_0, …, w_{h−1}); with `move`, instead of `sample`; hidden from the
            agent.
        support: (h, state) -> the values that w can take.
        norm_bound: B of `Task`; None for √d. If you divide features by c, multiply it by c.
        least_total: a total utility that every episode is certain to reach.
        names, state_names, action_names, units: for display; `names` are those of the limits.
        origin: where the problem comes from, as plain values.

    Exact values are unknown. So records contain NaN for them, and the observed totals of each episode.
    """

    def __init__(
        self,
        features: object,
        reward: StateFunction | None,
        utility: object,
        sample: Callable[[int, Any, int, np.random.Generator], Any] | None,
        horizon: int,
        num_actions: int,
        initial_state: object,
        threshold: PerLimit,
        safe_policy: Any,
        slack: PerLimit = None,
        *,
        start: Callable[[np.random.Generator], Any] | None = None,
        time_homogeneous: bool = False,
        move: Move | None = None,
        chance: Callable[[int, tuple[Any, ...], np.random.Generator], Any] | None = None,
        support: Support | None = None,
        norm_bound: float | None = None,
        least_total: PerLimit = 0.0,
        names: Sequence[str] = (),
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        one = (sample is None) != (chance is None)
        require(one, "next states come from sample, or from chance through move: give one of them")
        complete = move is not None if chance is not None else reward is not None and utility is not None
        missing = "reward and utility are missing" if chance is None else "chance needs move"
        require(complete, f"{missing}: give reward and utility as functions (h, state) -> (A,), or move and chance")
        H, A, first = as_count("horizon", horizon), as_count("num_actions", num_actions), int(start is not None)
        encode = encoder_like(initial_state)
        limits = make_constraints(utility, threshold, slack, names, least_total)
        outside: Outside = {START: (0.0, (0.0,) * len(limits))} if first else {}
        self.task = Task(
            *(H + first, A),
            constraints=tuple(replace(one, utility=shifted(one.utility, first)) for one in limits),
            incumbent=safe_policy,
            initial_state=START if first else encode(initial_state),
            reward=shifted(reward, first),
            features=as_features(features, initial_state, A, None, first),
            time_homogeneous=bool(time_homogeneous),
            encode=encode,
            move=None if move is None else task_move(move, encode, outside, len(limits), first),
            support=shifted(support, first),
            outside=outside,
            norm_bound=norm_bound,
            state_names=state_names,
            action_names=action_names,
            units=units or {},
        )
        self.origin = dict(origin or {})
        self._sample, self._start, self._chance = sample, start, chance
        self._past: tuple[object, ...] = ()  # the random inputs of this episode
        try_functions(self.task, first, encode(initial_state))

    def __repr__(self) -> str:
        task = self.task
        return f"SampledCMDP(H={task.horizon}, A={task.num_actions}, threshold={task.thresholds.tolist()})"

    def reset(self) -> State:
        """Begin an episode: return its first state, START if the start is random."""
        self._past = ()
        return self.task.initial_state

    def step(self, h: int, state: Any, action: int, rng: np.random.Generator) -> Step:
        """Draw a step: the next state, the reward, the utilities (m,), and the value of chance, None if unknown."""
        task, first = inner_task(self.task), int(self._start is not None)
        before = state if task is self.task or is_outside(state) else state[0]
        assert task.encode is not None
        if self._start is not None and h == 0:
            begun = task.encode(self._start(rng))
            made: Step = begun, 0.0, np.zeros(task.num_constraints), begun
        elif self._chance is not None:
            assert task.move is not None
            w = self._chance(h - first, self._past, rng)
            self._past = (*self._past, w)
            made = *task.move(h, before, action, w), w
        else:
            assert self._sample is not None
            signals = float(task.reward_at(h, before)[action]), task.utility_at(h, before)[:, action]
            made = task.encode(self._sample(h - first, before, action, rng)), *signals, None
        return carried(self.task, h, state, action, made)

    def draw_trace(self, rng: np.random.Generator) -> tuple[State, tuple[object, ...]]:
        """Draw the values of chance in one episode: (s_1, (w_1, …, w_H)), where w_1 is the start if that is random."""
        require(self._chance, "the problem has no law of chance, so it has no traces: give move and chance")
        state, chances = self.reset(), []
        for h in range(self.task.horizon or 0):
            state, _, _, w = self.step(h, state, 0, rng)  # chance does not depend on the action
            chances.append(w)
        return self.task.initial_state, tuple(chances)


def inner_task(task: Task) -> Task:
    """Return the task without its running total."""
    return task if task.carry is None else task.carry.inner


def carried(task: Task, h: int, state: Any, action: int, made: Step) -> Step:
    """Return a step of the system as a step of the task: its states include the running total, if the task has one."""
    if task.carry is None:
        return made
    (following, reward, utilities, w), total = made, 0.0
    if is_outside(state):
        reward, utilities = task.outside[state][0], np.array(task.outside[state][1])
        w = (w, 0.0) if state == START else w
    else:
        total, utilities = task.carry.step(h, state, action, w, utilities)
    return following if is_outside(following) else (following, total), reward, utilities, w


def try_functions(task: Task, h: int, state: State) -> None:
    """Raise if a function of the user fails or returns a wrong type or shape at one state."""
    task.incumbent.probabilities(h, state)
    task.reward_at(h, state), task.utility_at(h, state)
    if not task.one_hot:
        task.phi(state)


def read_steps(task: Task, begun: State, rows: Sequence[tuple[Any, ...]], component: int | None) -> Episode:
    """Return an episode from its first state and its steps: action, reward, utilities, chance and next state."""
    actions, rewards, utilities, chances, states = zip(*rows, strict=True)
    trace = None if task.move is None else (begun, chances)
    steps = (begun, *states), np.array(actions), np.array(rewards), np.array(utilities)
    return task.read(Episode(*steps, component, trace), encoded=True)


def shifted(function: Callable[[int, Any], Any] | None, first_step: int, view: View | None = None) -> Any:
    """Return a user's function of (h, state) for a task whose step `first_step` is the user's step 0."""
    if function is None or (first_step == 0 and view is None):
        return function
    return lambda h, state: function(h - first_step, state if view is None else view(state))


def task_move(
    move: Move, encode: Encoder, outside: Outside, num_constraints: int, first_step: int, view: View | None = None
) -> Move:
    """Return a user's move as a move of the task: states are encoded, signals checked, START and ENDED included.

    In the dummy first step the value of chance is the start. ENDED leads to ENDED, with the signals of `outside`.
    """

    def moved(h: int, state: State, action: int, w: object) -> tuple[State, float, Array]:
        if isinstance(state, tuple) and state in (START, ENDED):
            told = outside[state]
            return (ENDED if state == ENDED else encode(w)), told[0], np.array(told[1])
        if w is None:
            raise InvalidEpisode(f"the trace has no random input at step {h}, so it cannot be replayed: report one")
        shown = state if view is None else view(state)
        following, reward, utility = move(h - first_step, shown, action, w)
        utilities = np.atleast_1d(np.asarray(utility, dtype=np.float64))
        low, high = min(reward, *utilities), max(reward, *utilities)
        if utilities.shape != (num_constraints,) or not (low >= -TOLERANCE and high <= 1 + TOLERANCE):
            raise InvalidProblem(
                f"move at step {h}, state {state!r}, action {action} gives reward {reward!r} and utility {utility!r}: "
                f"return a reward and {num_constraints} utilities in [0, 1]"
            )
        ended = isinstance(following, tuple) and following == ENDED
        return ENDED if ended else encode(following), float(reward), utilities

    return moved

"""A Gymnasium environment as a problem: its episodes come from `reset` and `step`, how it moves is known to nobody."""

import secrets
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from episafe.checks import as_count, as_flag, require_takes
from episafe.errors import InvalidProblem
from episafe.gym.autoreset import sub_environments
from episafe.gym.observations import observations_of
from episafe.gym.one_run import one_run, refuse_beside_a_run
from episafe.gym.signal_limits import ONE_NAME, Limit, check_time_limit, read_limits, scale_end, scale_limit
from episafe.gym.step_reader import NumberedActions, Range, Reading, read_info, read_reset, read_step
from episafe.problems.features import describe_states
from episafe.problems.policy import FunctionPolicy, Policy, counts_as_task
from episafe.problems.sampled_problem import SampledTask, SignalFunction
from episafe.problems.states import ENDED, START, is_sealed, key
from episafe.problems.task import Constraint
from episafe.types import Episode, Move

if TYPE_CHECKING:
    from episafe.gym.vector import VectorGymCMDP

# an episode: its states (H+1), its actions (H), the rewards and the utilities of each constraint that were seen at its
# steps (1 + m, H), NaN if told, and its trace
PlayedSteps = tuple[list[Any], list[int], list[tuple[float, ...]], Any]
REMEMBERED = 10_000  # rows of policies whose running sums are kept
NO_SUMS: tuple[Any, list[float]] = None, []
ASKED_AT_FIRST = 16  # times that an incumbent is asked what it does at the first observation
STARTS_COMPARED = 8  # resets with different seeds, to see whether the start is fixed


def from_gymnasium(
    env: Any,
    *,
    features: Any,
    horizon: int,
    safe_policy: Any,
    slack: Any,
    threshold: Any = None,
    cost_limit: Any = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    utility_range: Any = None,
    cost_range: Any = None,
    random_start: bool = False,
    reward: SignalFunction | None = None,
    utility: Any = None,
    time_homogeneous: bool = False,
    move: Move | None = None,
    norm_bound: float | None = None,
    least_total: Any = None,
    episode_cost_max: Any = None,
) -> "GymCMDP | VectorGymCMDP":
    """Turn a Gymnasium environment with finite actions into a problem.

    Give `threshold` if the environment reports `info["utility"]`, and `cost_limit` if it reports `info["cost"]` or
    returns six values with the cost third. Exactly one of the signals must be there at every step.

    With several constraints both are mappings by name: `threshold={"service": 12.6}`, `cost_limit={"waste": 4}`,
    `slack={"service": 0.3, "waste": 1}`, and the environment reports `info["utility"]` and `info["cost"]` as mappings
    that have these names. Ranges and worst totals may be mappings too, or one for all; `utility` is one of functions.

    Args:
        env: the environment; its own time limit, where it has one, must be the horizon. A vector environment plays N
            episodes of one policy at a time.
        features: `OneHot()`, a map of episafe.features, or any function of an observation: ψ (k,), which becomes
            φ(s, a) = e_a ⊗ ψ(s), or φ(s, ·) (A, d); norms at most 1.
        horizon: H, steps an episode has at most. One that ends earlier stays in an absorbing state with zero reward
            and zero utility, or zero cost.
        safe_policy: the incumbent, (h, observation) ↦ probabilities (A,), or a policy. That it is safe is for the
            caller to know; it must answer alike whenever it is asked, which is tried. With random_start a function, and
            an object of your own with `probabilities`, count from the first observation; an `es.Policy`, such as one
            that was saved, counts the dummy step, as the task does.
        slack: what the incumbent has to spare at least, > 0, in the units of the signal; None where nobody knows.
        threshold: the total utility of an episode to be kept in expectation.
        cost_limit: the total cost c of an episode not to be exceeded in expectation; with costs in [0, 1] it is the
            threshold H − c on utilities 1 − cost.
        reward_range, utility_range, cost_range: the ranges of the raw signals, scaled to [0, 1]; (0, 1) by default.
        random_start: True if the start is drawn anew each time; the task then has a dummy first step.
        reward, utility: (h, observation) ↦ r_h, u_h (A,) in [0, 1], where they are known; None: learned as it goes.
        time_homogeneous: True if the environment does not count its steps: what follows an observation and an action,
            and the signals that are learned, are the same at every step. What is seen at one step then counts for all.
        move: (h, observation, action, w) ↦ (next observation, reward, utility), the last two in [0, 1], where chance is
            exogenous: `info["chance"]` of every step is all that is random after the start, and its law does not depend
            on what is done. `ENDED` of episafe.problems.episodic_task is the next observation where the episode ends.
            Episodes then carry their trace; docs/hindsight.md has more.
        norm_bound: B of `SampledTask`; None for √d.
        least_total: the total utility that every episode has at least, whatever is done; None for H times the least of
            a step. With a cost_limit, give episode_cost_max.
        episode_cost_max: what every episode costs at most, whatever is done: enforced by the system, or by arithmetic,
            as where a failure costs 1 and ends the episode; None for H times the most of a step. What is proved rests
            on it: an episode that costs more halts and voids all certificates.

    Returns:
        The problem, a `GymCMDP`, or a `VectorGymCMDP` for a vector environment; its task has rewards and utilities in
        [0, 1], and `origin` says how they were scaled.
    """
    from episafe.gym.vector import VectorGymCMDP

    if isinstance(env, type) or not all(hasattr(env, name) for name in ("action_space", "reset", "step")):
        raise InvalidProblem(
            f"env must be a Gymnasium environment, an object and not its class, got {env!r}: make one with "
            "gymnasium.make"
        )
    H = as_count("horizon", horizon)
    check_time_limit(env, H)
    worst = {"least_total": least_total, "episode_cost_max": episode_cost_max}
    limits = read_limits(threshold, cost_limit, slack, reward_range, utility_range, cost_range, **worst)
    shared = as_flag("time_homogeneous", time_homogeneous)
    kind = VectorGymCMDP if hasattr(env, "num_envs") else GymCMDP
    told, random = (reward, _functions(utility, limits)), as_flag("random_start", random_start)
    known: dict[str, Any] = {"time_homogeneous": shared, "move": move, "norm_bound": norm_bound}
    return kind(env, features, H, safe_policy, limits, random, told, **known)


def _functions(utility: Any, limits: Mapping[str, Limit]) -> tuple[SignalFunction | None, ...]:
    """What tells the utility of each constraint; None where it is learned."""
    if ONE_NAME in limits or utility is None:
        return (utility,) * len(limits)
    if not isinstance(utility, Mapping) or set(utility) != set(limits):
        raise InvalidProblem(f"utility must be a mapping with a function for each of {', '.join(limits)}, or None")
    return tuple(utility[name] for name in limits)


class LiveCMDP(ABC):
    """A task, and an environment to play its episodes in, one or several at a time.

    Attributes:
        task: what a learner is told.
        origin: environment, ranges and limit, as plain values; kept with every record.
        num_envs: episodes that are played at a time.
        is_vector: whether `reset` and `step` are of several episodes.
        ended, after_the_end: the state after an early end, and reward and utility of each step there.
    """

    is_vector: ClassVar[bool]
    num_envs: int

    def __init__(
        self,
        env: Any,
        features: Any,
        horizon: int,
        safe_policy: Any,
        limits: Mapping[str, Limit],
        random_start: bool,
        told: tuple[SignalFunction | None, tuple[SignalFunction | None, ...]],
        move: Move | None = None,
        **more: Any,
    ) -> None:
        self.env, self._H, self._random_start = env, horizon, random_start
        action_space, observation_space = self._spaces()
        observations = observations_of(observation_space)
        (reward_scale, _), *_ = (limit[2] for limit in limits.values())
        scales = (reward_scale, *(limit[2][1] for limit in limits.values()))
        known, outside = (told[0] is not None, told[1][0] is not None), (ENDED, START) if random_start else (ENDED,)
        names = tuple(name for name in limits if name != ONE_NAME)
        self._reading = Reading(observations, NumberedActions(action_space), scales, known, outside, names)
        self._seed: int | None = None
        self._sums: dict[int, tuple[Any, list[float]]] = {}  # of sealed rows, by their identity
        self._first = self._fixed_start()
        self._h, self._episode = horizon, 0
        A, steps_before = self._reading.actions.count, int(random_start)
        wide, dim, cell = describe_states(features, self._first, A, observations, outside)
        self.task = SampledTask(
            horizon=horizon + steps_before,
            num_actions=A,
            dim=dim,
            initial_state=START if random_start else self._first,
            constraint=[
                _constraint(name, limit, _later(function, steps_before), horizon)
                for (name, limit), function in zip(limits.items(), told[1], strict=True)
            ],
            safe_policy=FunctionPolicy(
                _asked(safe_policy),
                A,
                0 if counts_as_task(safe_policy) else steps_before,
                observations.asked_at,
            ),
            feature_function=wide,
            reward_function=_later(told[0], steps_before),
            outside=dict(zip(outside, (scale_end(scales), (0.0,) * len(scales)), strict=False)),
            cell_function=cell,
            reading=self._reading,
            move=None if move is None else _reading_states(move, self._reading),
            **more,  # what else is told of it
        )
        self.ended, self.after_the_end = ENDED, self.task.outside[ENDED]
        self.task.described(steps_before, self._first)
        for _ in range(ASKED_AT_FIRST):  # each time twice: one that draws its actions by itself is refused
            self.task.safe_policy.probabilities(steps_before, self._first)
        if random_start and counts_as_task(safe_policy):
            self._require_all_steps()
        self.origin: dict[str, str | int | float] = _origin(env, limits) | {"random_start": int(random_start)}

    def __repr__(self) -> str:
        task, origin = self.task, self.origin
        states = "one-hot states" if task.one_hot else f"{task.dim} features"
        sizes = f"{self._H} steps, {task.num_actions} actions, {states}"
        several = f", {self.num_envs} at a time" if self.is_vector else ""
        ends = [f"_{name}" for name in self._reading.names] or [""]
        limits = ", ".join(
            f"limit {origin[f'limit{e}']:g} on the {origin[f'signal{e}']}{e.replace('_', ' ')}" for e in ends
        )
        return f"{type(self).__name__}({origin['env']}, {sizes}, {limits}{several})"

    def of_constraint(self, c: int) -> Self:
        """The same problem as if constraint c were the only one, to be looked at and not to be played."""
        twin, reading = copy(self), self._reading
        end = f"_{reading.names[c]}" if reading.names else ""
        twin.task = self.task.of_constraint(c)
        twin._reading = replace(reading, scales=(reading.scales[0], reading.scales[1 + c]), names=())
        twin.after_the_end = (self.after_the_end[0], self.after_the_end[1 + c])
        twin.origin = self.origin | {name: self.origin[f"{name}{end}"] for name in ("limit", "signal")}
        return twin

    @property
    def scale(self) -> Range:
        """The name and the range of the signal that the limit is on."""
        return self._reading.scales[1]

    def seed(self, seed: int) -> None:
        """Begin the next episode with `env.reset(seed=seed)`."""
        self._seed = seed

    def forget_seed(self) -> None:
        """Begin the next episode with a seed that nobody chose.

        After episodes of a chosen one a loop would have the same luck in every process, and count it as new.
        """
        self.seed(self._fresh_seed())

    def one_run(self) -> AbstractContextManager[None]:
        """Where a run plays: those of other threads that have the same environment wait until it is over."""
        return one_run(self.env)

    @property
    def told(self) -> tuple[str, ...]:
        """Which of "reward" and "utility" functions tell, so that what the environment says of them is not read."""
        return tuple(name for name, told in zip(("reward", "utility"), self._reading.told, strict=True) if told)

    def reporting(self, name: str) -> Self:
        """The same problem and environment, whose steps report the signal `name` although a function tells it."""
        twin = copy(self)
        still = [told and one != name for one, told in zip(("reward", "utility"), self._reading.told, strict=True)]
        twin._reading = replace(self._reading, told=(still[0], still[1]))
        return twin

    def _trace(self, states: list[Any], chances: list[Any]) -> Any:
        """The trace of an episode; None where chance is not exogenous."""
        first = int(self._random_start)
        return (states[first], tuple(chances[first:])) if self.task.is_exogenous else None

    def _spaces(self) -> tuple[Any, Any]:
        """The spaces of one action and one observation."""
        return self.env.action_space, self.env.observation_space

    @abstractmethod
    def replay(self, actions: Sequence[Sequence[int]]) -> list[list[Any]]:
        """The states of episodes side by side in which these actions are taken, those of one episode each."""

    @abstractmethod
    def play(self, policies: Sequence[Policy], rng: np.random.Generator) -> Iterator[PlayedSteps]:
        """One episode of each policy, as many at a time as the environment plays; actions are drawn with `rng`."""

    def episodes(self, policies: Sequence[Policy], rng: np.random.Generator) -> Iterator[Episode]:
        """The same, with rewards and utilities as the task tells them, else as they were seen."""
        task, tells = self.task, {"reward": self.task.reward_at, "utility": self.task.utility_at}
        for states, actions, signals, trace in self.play(policies, rng):
            utility = np.array(signals[1] if task.num_constraints == 1 else list(zip(*signals[1:], strict=True)))
            columns = {"reward": np.array(signals[0]), "utility": utility}
            for name in (name for name in columns if name not in task.unknown):
                columns[name][:] = [tells[name](h, states[h])[action] for h, action in enumerate(actions)]
            yield Episode(states, actions, columns["reward"], columns["utility"], trace=trace)

    def draw(self, probabilities: Any, uniform: float) -> int:
        """The first action whose running sum exceeds uniform·total, so never one of probability 0."""
        row, sums = self._sums.get(id(probabilities), NO_SUMS)
        if row is not probabilities:
            sums = np.add.accumulate(probabilities).tolist()
            if is_sealed(probabilities):
                if len(self._sums) >= REMEMBERED:
                    self._sums.clear()
                self._sums[id(probabilities)] = probabilities, sums
        return bisect_right(sums, uniform * sums[-1], 0, len(sums) - 1)

    @abstractmethod
    def _begin(self) -> list[Any]:
        """Reset the environment: the first state of each of its episodes."""

    def _reset_env(self) -> Any:
        """The observation of `env.reset()`, seeded if `seed` was called since the last one."""
        refuse_beside_a_run(self.env)
        given = {} if self._seed is None else {"seed": self._seed}
        self._seed = None
        try:
            returned = self.env.reset(**given)
        except TypeError as error:
            if "'seed'" not in str(error):
                raise
            raise InvalidProblem(
                f"reset must take a seed, reset(self, *, seed=None, options=None), and does not ({error}): Gymnasium's "
                "interface since 0.26; wrap older environments"
            ) from error
        return read_reset(returned)

    def _fixed_start(self) -> Any:
        """The start; an error if it varies and nobody said so.

        The last seed is drawn, so that the environment is left with luck of its own: by a fixed one it would have the
        same in every process, and what was seen before would count as new.
        """
        first = None
        seeds = range(1 if self._random_start else STARTS_COMPARED - 1)
        for seed in (*seeds, self._fresh_seed()):
            self._seed = seed
            starts = self._begin()
            first = starts[0] if seed == 0 else first
            for i, start in enumerate(starts):
                if not self._random_start and key(start) != key(first):
                    where = f" in sub-environment {i}" if len(starts) > 1 else ""
                    raise InvalidProblem(
                        f"the start is not fixed: {first!r} with seed 0, {start!r} with seed {seed}{where}; "
                        "give random_start=True"
                    )
        return first

    def _fresh_seed(self) -> int:
        """A seed that nobody chose; with those of sub-environments, which follow it, below 2³¹."""
        return secrets.randbelow(2**31 - self.num_envs)

    def _require_all_steps(self) -> None:
        """An error if the incumbent has no row for the last step of the task, as one made without the dummy step."""
        last = self.task.horizon - 1
        try:
            self.task.safe_policy.probabilities(last, self._first)
        except Exception as error:  # of a policy, which may raise anything
            raise InvalidProblem(
                f"safe_policy is a policy and cannot act at step {last} ({error}): the task of a random start has "
                f"{self.task.horizon} steps, of which 0 is the dummy one; give it a row for each, or a function, which "
                "counts from the first observation"
            ) from error

    def _refuse_another_start(self, start: Any, episode: str) -> None:
        if not self._random_start and key(start) != key(self._first):
            raise InvalidProblem(
                f"{episode} starts at {start!r} and the first one at {self._first!r}: give random_start=True"
            )

    def _refuse_after_the_end(self) -> None:
        if self._h >= self._H:
            raise InvalidProblem(f"the episode of {self._H} steps is over: call reset()")

    def _followed(self, returned: Any, place: str) -> tuple[Any, ...]:
        """The state after a step, `ENDED` if the episode is over, and reward and utilities in [0, 1]."""
        observation, reward, signal, terminated, truncated = read_step(returned, self._reading.signal, place)
        if truncated and not terminated and self._h < self._H:
            raise InvalidProblem(
                f"the environment truncates {place}, before the horizon {self._H}: give horizon={self._h}, or a longer "
                "time limit to the environment"
            )
        state = ENDED if terminated else self._reading.state(observation, place)
        return state, *self._reading.values(reward, signal, place)


class GymCMDP(LiveCMDP):
    """What `from_gymnasium` makes of an environment: its episodes are played one after the other."""

    is_vector = False
    num_envs = 1

    def reset(self) -> Any:
        """Begin an episode: the first state, `START` if the start is random."""
        (state,) = self._begin()
        self._h, self._ended = 0, False
        self._episode += 1
        self._refuse_another_start(state, f"episode {self._episode}")
        if self._random_start:
            self._h, self._waiting = -1, state
            return START
        return state

    def step(self, action: int) -> tuple[Any, ...]:
        """The next state, and reward and utility of this step in [0, 1]; NaN for what the task tells.

        With several constraints there is a utility for each, in their order.
        """
        if self._h >= self._H:
            self._refuse_after_the_end()
        self._h += 1
        self._chance = None
        if self._h == 0:
            return self._waiting, *self.task.outside[START]
        if self._ended:
            return ENDED, *self.after_the_end
        reading = self._reading
        returned = self.env.step(reading.actions[action])
        if self.task.move is not None:
            self._chance = deepcopy(read_info(returned).get("chance"))
        quickly = reading.quick_step(returned)
        if quickly is not None:
            return quickly
        followed = self._followed(returned, f"at step {self._h} of episode {self._episode}")
        self._ended = followed[0] is ENDED
        return followed

    def replay(self, actions: Sequence[Sequence[int]]) -> list[list[Any]]:
        """The states that an episode has if these actions are taken."""
        (taken,) = actions
        return [[self.reset(), *(self.step(action)[0] for action in taken)]]

    def play(self, policies: Sequence[Policy], rng: np.random.Generator) -> Iterator[PlayedSteps]:
        """One episode of each policy, one after the other."""
        draw, step, is_exogenous = self.draw, self.step, self.task.is_exogenous
        for policy in policies:
            first = state = self.reset()
            probabilities, actions, steps, chances = policy.probabilities, list[int](), list[Any](), list[Any]()
            for h, uniform in enumerate(rng.random(self.task.horizon).tolist()):
                action = draw(probabilities(h, state), uniform)
                followed = step(action)
                state = followed[0]
                actions.append(action)
                steps.append(followed)
                if is_exogenous:
                    chances.append(self._chance)
            following, *signals = zip(*steps, strict=True)
            states = [first, *following]
            yield states, actions, signals, self._trace(states, chances)

    def _begin(self) -> list[Any]:
        return [self._reading.state(self._reset_env(), "at reset")]


def _asked(policy: Any) -> SignalFunction:
    """The function (h, observation) ↦ probabilities of a policy."""
    function = getattr(policy, "probabilities", policy)
    if not callable(function):
        raise InvalidProblem(
            f"safe_policy must be a function (h, observation) ↦ probabilities, or a policy: make it one, not {policy!r}"
        )
    require_takes("safe_policy", function, "safe_policy(h, observation)", 0, None)
    return function


def _reading_states(move: Move, reading: Reading) -> Move:
    """The move, whose next observations are read as those of the environment are."""

    def moved(h: int, state: Any, action: int, w: Any) -> tuple[Any, float, float]:
        following, reward, utility = move(h, state, action, w)
        return ENDED if following is ENDED else reading.state(following, "of move"), reward, utility

    return moved


def _constraint(name: str, limit: Limit, utility: SignalFunction | None, horizon: int) -> Constraint:
    """A limit of the environment as one on utilities in [0, 1]."""
    threshold, slack, least_total = scale_limit(limit, horizon)
    return Constraint(utility, threshold, slack, name, least_total)


def _later(function: SignalFunction | None, steps_before: int) -> SignalFunction | None:
    return None if function is None else lambda h, state: function(h - steps_before, state)


def _origin(env: Any, limits: Mapping[str, Limit]) -> dict[str, str | int | float]:
    """Environment, ranges and limits as plain values; of several limits each with its name at the end."""
    one = (*sub_environments(env), env)[0]
    spec = getattr(env, "spec", None) or getattr(one, "spec", None)
    said: dict[str, str | int | float] = {"env": getattr(spec, "id", None) or type(one).__name__}
    for name, (kept, _, scales, worst) in limits.items():
        end = name if name == ONE_NAME else f"_{name}"
        said |= {f"signal{end}": scales[1].name, f"limit{end}": kept}
        said |= {f"reward_{side}": getattr(scales[0], side) for side in ("low", "high")}
        said |= {f"{scales[1].name}_{side}{end}": getattr(scales[1], side) for side in ("low", "high")}
        said |= {} if worst is None else {f"worst_total{end}": worst}
    return said

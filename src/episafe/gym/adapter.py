"""A Gymnasium environment as a problem: its episodes come from `reset` and `step`, its kernel is known to nobody."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from episafe.checks import TOLERANCE, as_count, as_finite, as_flag, as_number, as_slack
from episafe.errors import Infeasible, InvalidProblem
from episafe.gym.observation_reader import Reading
from episafe.gym.spaces import Actions, num_values, refuse_unreadable
from episafe.gym.step_reader import Range, Step, read_range, read_reset, read_step
from episafe.problems.boundary_states import ENDED, START, Outside
from episafe.problems.features import OneHot, blocks
from episafe.problems.sampled import FunctionPolicy, SampledTask, Signal, key
from episafe.types import Array

if TYPE_CHECKING:
    from episafe.gym.vector import VectorGymCMDP

STARTS_COMPARED = 8  # resets with different seeds, to see whether the start is fixed


def from_gymnasium(
    env: Any,
    *,
    features: Any,
    horizon: int,
    safe_policy: Any,
    slack: float | None,
    threshold: float | None = None,
    cost_limit: float | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    utility_range: tuple[float, float] | None = None,
    cost_range: tuple[float, float] | None = None,
    random_start: bool = False,
    reward: Signal | None = None,
    utility: Signal | None = None,
    time_homogeneous: bool = False,
) -> "GymCMDP | VectorGymCMDP":
    """Turn a Gymnasium environment with finite actions into a problem.

    Give `threshold` if the environment reports `info["utility"]`, and `cost_limit` if it reports `info["cost"]` or
    returns six values with the cost third. Exactly one of the signals must be there at every step.

    Args:
        env: the environment; its own time limit, where it has one, must be the horizon. A vector environment plays N
            episodes of one policy at a time.
        features: `OneHot()`, a map of episafe.features, or any function of an observation: ψ (k,), which becomes
            φ(s, a) = e_a ⊗ ψ(s), or φ(s, ·) (A, d); norms at most 1.
        horizon: H, steps an episode has at most. One that ends earlier stays in an absorbing state with zero reward
            and zero utility, or zero cost.
        safe_policy: the incumbent, (h, observation) ↦ probabilities (A,), or a policy. That it is safe is for the
            caller to know.
        slack: what the incumbent has to spare at least, > 0, in the units of the signal; None where nobody knows.
        threshold: the total utility of an episode to be kept in expectation.
        cost_limit: the total cost c of an episode not to be exceeded in expectation; with costs in [0, 1] it is the
            threshold H − c on utilities 1 − cost.
        reward_range, utility_range, cost_range: the ranges of the raw signals, scaled to [0, 1]; (0, 1) by default.
        random_start: True if the start is drawn anew each time; the task then has a dummy first step.
        reward, utility: (h, observation) ↦ r_h, u_h (A,) in [0, 1], where they are known; None: learned as it goes.
        time_homogeneous: True if the environment does not count its steps: what follows an observation and an action,
            and the signals that are learned, are the same at every step. What is seen at one step then counts for all.

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
    _check_time_limit(env, H)
    signal, kept = _constraint(threshold, cost_limit)
    ranges = {"utility": utility_range, "cost": cost_range}
    other = "cost" if signal == "utility" else "utility"
    if ranges[other] is not None:
        raise InvalidProblem(f"{other}_range is given, but the limit is on the {signal}: give {signal}_range")
    scales = (
        read_range("reward", reward_range),
        read_range(signal, (0.0, 1.0) if ranges[signal] is None else ranges[signal]),
    )
    kind = VectorGymCMDP if hasattr(env, "num_envs") else GymCMDP
    return kind(
        env,
        features,
        H,
        safe_policy,
        as_slack(slack),
        kept,
        scales,
        random_start,
        reward,
        utility,
        as_flag("time_homogeneous", time_homogeneous),
    )


class LiveCMDP(ABC):
    """A task, and an environment to play its episodes in, one or several at a time.

    Attributes:
        task: what a learner is told.
        origin: environment, ranges and limit, as plain values; kept with every record.
    """

    def __init__(
        self,
        env: Any,
        features: Any,
        horizon: int,
        safe_policy: Any,
        slack: float | None,
        kept: float,
        scales: tuple[Range, Range],
        random_start: bool,
        reward: Signal | None,
        utility: Signal | None,
        time_homogeneous: bool,
    ) -> None:
        self.env, self._H, self._scales = env, horizon, scales
        action_space, observation_space = self._spaces()
        refuse_unreadable(observation_space)
        told = (reward is not None, utility is not None)
        self._reading = Reading(observation_space, Actions(action_space), scales, told)
        self._random_start = as_flag("random_start", random_start)
        self._seed: int | None = None
        self._first = self._fixed_start()
        self._h, self._episode = horizon, 0
        A, steps_before = self._reading.actions.count, int(random_start)
        threshold, scaled_slack = _scaled(kept, slack, scales[1], horizon)
        if threshold + (scaled_slack or 0.0) > horizon + TOLERANCE:
            raise Infeasible(
                f"the limit {kept:g} with slack {slack or 0:g} cannot be kept in {horizon} steps: relax one"
            )
        wide, dim, cell = _features(features, self._first, A, observation_space, random_start)
        self.task = SampledTask(
            horizon=horizon + steps_before,
            num_actions=A,
            dim=dim,
            initial_state=START if random_start else self._first,
            threshold=threshold,
            slack=scaled_slack,
            safe_policy=FunctionPolicy(_inside(_probabilities(safe_policy), steps_before, A), A),
            feature_function=wide,
            reward_function=_later(reward, steps_before),
            utility_function=_later(utility, steps_before),
            outside={ENDED: self._after_the_end()} | ({START: (0.0, 0.0)} if random_start else {}),
            cell_function=cell,
            time_homogeneous=time_homogeneous,
            reading=self._reading,
        )
        self.task.described(steps_before, self._first)
        self.task.safe_policy.probabilities(steps_before, self._first)
        self.origin: dict[str, str | int | float] = _origin(env, kept, scales, random_start)

    def seed(self, seed: int) -> None:
        """Begin the next episode with `env.reset(seed=seed)`."""
        self._seed = seed

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

    def _spaces(self) -> tuple[Any, Any]:
        """The spaces of one action and one observation."""
        return self.env.action_space, self.env.observation_space

    @abstractmethod
    def _begin(self) -> list[Any]:
        """Reset the environment: the first state of each of its episodes."""

    def _reset_env(self) -> Any:
        """The observation of `env.reset()`, seeded if `seed` was called since the last one."""
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
        """The start; an error if it varies and nobody said so."""
        first = None
        for seed in range(1 if self._random_start else STARTS_COMPARED):
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

    def _refuse_another_start(self, start: Any, episode: str) -> None:
        if not self._random_start and key(start) != key(self._first):
            raise InvalidProblem(
                f"{episode} starts at {start!r} and the first one at {self._first!r}: give random_start=True"
            )

    def _refuse_after_the_end(self) -> None:
        if self._h >= self._H:
            raise InvalidProblem(f"the episode of {self._H} steps is over: call reset()")

    def _followed(self, found: Step, place: str) -> tuple[Any, float, float]:
        """The state after a step, `ENDED` if the episode is over, and reward and utility in [0, 1]."""
        if found.truncated and not found.terminated and self._h < self._H:
            raise InvalidProblem(
                f"the environment truncates {place}, before the horizon {self._H}: give horizon={self._h}, or a longer "
                "time limit to the environment"
            )
        state = ENDED if found.terminated else self._reading.state(found.observation, place)
        return state, *self._reading.values(found, place)

    def _after_the_end(self) -> tuple[float, float]:
        """Reward and utility a step in the absorbing state: raw zeros, scaled."""
        found = []
        for scale in self._scales:
            zero = (0.0 - scale.low) / (scale.high - scale.low)
            if not 0 <= zero <= 1:
                raise InvalidProblem(
                    f"{scale.name}_range [{scale.low:g}, {scale.high:g}] leaves out 0, which is what an episode gets "
                    "after it has ended: widen it"
                )
            found.append(1.0 - zero if scale.name == "cost" else zero)
        return found[0], found[1]


class GymCMDP(LiveCMDP):
    """What `from_gymnasium` makes of an environment: its episodes are played one after the other."""

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

    def step(self, action: int) -> tuple[Any, float, float]:
        """The next state, and reward and utility of this step in [0, 1]; NaN for what the task tells."""
        self._refuse_after_the_end()
        self._h += 1
        if self._h == 0:
            return self._waiting, 0.0, 0.0
        if self._ended:
            return ENDED, *self.task.outside[ENDED]
        place = f"at step {self._h} of episode {self._episode}"
        found = read_step(self.env.step(self._reading.actions[action]), self._reading.signal, place)
        self._ended = found.terminated
        return self._followed(found, place)

    def _begin(self) -> list[Any]:
        return [self._reading.state(self._reset_env(), "at reset")]


def _check_time_limit(env: Any, horizon: int) -> None:
    for one in sub_environments(env) or (env,):
        limit = _time_limit(one)
        if limit is not None and limit != horizon:
            raise InvalidProblem(
                f"the environment's own time limit is {limit} steps and the horizon {horizon}: the constraint is on "
                f"whole episodes, so make it with gymnasium.make(…, max_episode_steps={horizon}), or give "
                f"horizon={limit}; if a wrapper of yours repeats steps, wrap env.unwrapped, which has no limit"
            )


def _time_limit(env: Any) -> Any:
    """That of `gymnasium.make`, which `make_vec` leaves in the arguments of the spec; else of the wrapper TimeLimit."""
    spec = getattr(env, "spec", None)
    given = (getattr(spec, "kwargs", None) or {}).get("max_episode_steps")
    limit = getattr(spec, "max_episode_steps", None) if given is None else given
    while limit is None and env is not None:
        limit = getattr(env, "_max_episode_steps", None) if type(env).__name__ == "TimeLimit" else None
        env = getattr(env, "env", None)
    return limit


def sub_environments(env: Any) -> tuple[Any, ...]:
    """The environments in a vector environment, where they are in this process."""
    return tuple(getattr(env.unwrapped, "envs", ())) if hasattr(env, "num_envs") else ()


def _constraint(threshold: float | None, cost_limit: float | None) -> tuple[str, float]:
    if (threshold is None) == (cost_limit is None):
        raise InvalidProblem(
            'give exactly one of threshold (a lower limit on info["utility"]) and cost_limit (an upper limit on '
            'info["cost"])'
        )
    if threshold is not None:
        return "utility", as_number("threshold", threshold)
    return "cost", as_number("cost_limit", cost_limit)


def _scaled(kept: float, slack: float | None, scale: Range, horizon: int) -> tuple[float, float | None]:
    """b and ξ for utilities in [0, 1]: Σ(u − low)/width ≥ (b − H·low)/width, and H − (c − H·low)/width for costs."""
    width = scale.high - scale.low
    share = (kept - horizon * scale.low) / width
    return (horizon - share if scale.name == "cost" else share), None if slack is None else slack / width


def _features(
    features: Any, first: Any, A: int, space: Any, random_start: bool
) -> tuple[Callable[[Any], Array] | None, int, Callable[[Any], Any] | None]:
    """φ with one more dimension for each state outside; d; and what one-hot features tell apart.

    START and ENDED must not share one: in a model of all steps START would then lead where ENDED is known to lead.
    """
    if isinstance(features, OneHot):
        size = features.size or num_values(space)
        if size is None:
            raise InvalidProblem(
                f"one-hot features need countable observations, and {space} has not: use Tiles, Fourier, RBF, "
                "Polynomial, or OneHot(cells, cells.size) with Cells"
            )
        return None, (size + 1 + int(random_start)) * A, features.cell
    if not callable(features) or isinstance(features, type):
        raise InvalidProblem(f"features must be OneHot() or a function of an observation: give one, not {features!r}")
    given = np.asarray(features(first))
    if given.ndim not in (1, 2) or given.size == 0:
        raise InvalidProblem(
            f"features at the start have shape {given.shape}: return ψ (k,), or φ (A, d) with A = {A} rows"
        )
    d = A * given.shape[0] if given.ndim == 1 else given.shape[1]

    def wide(state: Any) -> Array:
        phi = np.zeros((A, d + 1 + int(random_start)))
        if isinstance(state, Outside):
            phi[:, d if state is ENDED else d + 1] = 1.0
            return phi
        found = as_finite(f"features at {state!r}", features(state), given.shape)
        phi[:, :d] = blocks(found, A) if found.ndim == 1 else found
        return phi

    if given.ndim == 2 and given.shape[0] != A:
        raise InvalidProblem(f"features at the start have shape {given.shape}: give one row for each of {A} actions")
    return wide, d + 1 + int(random_start), None


def _probabilities(policy: Any) -> Signal:
    if hasattr(policy, "probabilities"):
        found: Signal = policy.probabilities
        return found
    if not callable(policy):
        raise InvalidProblem(
            f"safe_policy must be a function (h, observation) ↦ probabilities, or a policy: make it one, not {policy!r}"
        )
    return policy  # type: ignore[no-any-return]


def _inside(policy: Signal, steps_before: int, A: int) -> Signal:
    """The policy by steps of the task; uniform outside, where actions are alike."""
    return lambda h, state: np.full(A, 1 / A) if isinstance(state, Outside) else policy(h - steps_before, state)


def _later(function: Signal | None, steps_before: int) -> Signal | None:
    return None if function is None else lambda h, state: function(h - steps_before, state)


def _origin(env: Any, kept: float, scales: tuple[Range, Range], random_start: bool) -> dict[str, str | int | float]:
    one = (*sub_environments(env), env)[0]
    spec = getattr(env, "spec", None) or getattr(one, "spec", None)
    return {
        "env": getattr(spec, "id", None) or type(one).__name__,
        "signal": scales[1].name,
        "limit": kept,
        **{f"{scale.name}_{end}": getattr(scale, end) for scale in scales for end in ("low", "high")},
        "random_start": int(random_start),
    }

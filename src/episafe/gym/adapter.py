"""A Gymnasium environment as a problem: its episodes come from `reset` and `step`, its transitions are unknown."""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import accumulate
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from episafe.core.checks import TOLERANCE, as_count, as_number, as_scale, require
from episafe.core.errors import Infeasible, InvalidProblem
from episafe.core.policy import Policy
from episafe.core.task import Constraint, OneHot, Task
from episafe.core.types import ENDED, START, Array, Episode, Move, PerLimit, State, StateFunction, Support, Unit, View
from episafe.gym.encode import numbered_actions, observations_of
from episafe.problems.features import as_features, chosen_features
from episafe.problems.sampled import (
    Origin,
    PlayedCMDP,
    Step,
    carried,
    inner_task,
    read_steps,
    shifted,
    task_move,
    try_functions,
)

LIMIT = {"utility": "threshold", "cost": "cost_limit"}
WORST = {"utility": "least_total", "cost": "episode_cost_max"}
STARTS_COMPARED = 8  # resets with different seeds, to find out whether the start is random
MOST_STATES = 1_000_000  # countable observations up to which one-hot features are chosen
Info = Mapping[str, Any]  # what an environment reports beside the observation
CostFunction = Callable[[Any, int, Any, Info], float]  # (observation, action, next observation, info)


class Limit(NamedTuple):
    """One limit in the units of its signal, "utility" or "cost", and the range of that signal."""

    name: str
    signal: str
    kept: float
    slack: float | None
    low: float
    high: float
    worst: float | None

    @property
    def width(self) -> float:
        """Return the width of the range, by which a slack is scaled."""
        return self.high - self.low

    def unit(self, raw: object) -> float:
        """Return the raw signal of a step as a utility in [0, 1]."""
        scaled = _scaled(self.signal, raw, self.low, self.high)
        return 1.0 - scaled if self.signal == "cost" else scaled

    def total_unit(self, horizon: int, text: str = "") -> Unit:
        """Return the unit that shows total utilities of H steps: H·low + width·total, reversed for costs."""
        offset, factor = (self.high, -self.width) if self.signal == "cost" else (self.low, self.width)
        return Unit(text, horizon * offset, factor)

    def constraint(self, utility: StateFunction | None, horizon: int) -> Constraint:
        """Return the limit on utilities in [0, 1]."""
        unit, slack = self.total_unit(horizon), self.slack and self.slack / self.width
        b = (self.kept - unit.offset) / unit.factor
        fault = f"the limit {self.kept:g} with slack {self.slack or 0:g} cannot be kept in {horizon} steps: relax one"
        require(b + (slack or 0.0) <= horizon + TOLERANCE, fault, Infeasible)
        least = 0.0 if self.worst is None else max((self.worst - unit.offset) / unit.factor, 0.0)
        steps = f"the {self.signal} in [{self.low:g}, {self.high:g}] per step"
        text = "" if self.worst is None else f" and no total worse than {self.worst:g}"
        remedy = f"give the limit on the total of {horizon} steps, in the units of the {self.signal}"
        require(least < b, f"no episode can break the limit {self.kept:g} on {steps}{text}: {remedy}")
        return Constraint(utility, b, slack, self.name or self.signal, least)


class GymCMDP(PlayedCMDP):
    """A Gymnasium environment with finitely many actions as a problem.

    Give `threshold` if the environment reports `info["utility"]`, and `cost_limit` if it reports `info["cost"]` or
    returns six values with the cost third. For several limits give mappings by name: `threshold={"service": 12.6}`,
    `cost_limit={"waste": 4}`, `slack={"service": 0.3, "waste": 1}`; the environment then reports `info["utility"]` and
    `info["cost"]` as mappings with these names. Ranges and worst totals may be mappings too, or one value for all.

    Args:
        env: the environment; its own time limit, if any, must equal the horizon.
        horizon: H, the largest number of steps in an episode. After an early end, reward and utility (or cost) are 0.
        incumbent: (h, observation) -> probabilities (A,), or a policy. It is assumed to be safe.
        threshold: the limit from below on the expected total utility of an episode.
        cost_limit: the limit from above on the expected total cost of an episode.
        slack: the incumbent's margin to the limit, > 0, in the units of the signal. None: measured by playing the
            incumbent (`es.measure_slack`); `origin` has the result.
        features: `es.features.OneHot()`, a map of `es.features`, or any function of an observation. None: chosen from
            the observation space; `origin["features"]` describes them.
        move: (h, observation, action, w) -> (next observation, reward, utility), scaled to [0, 1], if chance is
            exogenous: `info["chance"]` is everything random after the start and does not depend on the actions.
            `ENDED` of episafe.core.types is the next observation of an episode that ends.
        support: (h, observation) -> the values that w can take.
        cost: (observation, action, next observation, info) -> cost, instead of `info["cost"]`.
        reward_range, utility_range, cost_range: the ranges of the raw signals, scaled to [0, 1]; (0, 1) by default.
        random_start: True if the start is random; the task then has a dummy first step. None: detected by resets.
        reward, utility: (h, observation) -> r_h, u_h (A,) in [0, 1], if they are known; None: learned from episodes.
        time_homogeneous: True if transitions and signals are the same at every step; steps then share their data.
        norm_bound: B of `Task`; None for √d.
        least_total: a total utility that every episode is certain to reach; None for H times the least per step.
        episode_cost_max: the most that an episode can cost, as a fact; None for H times the largest per step. An
            episode that costs more invalidates all certificates.
        state_names, action_names, units: for display.

    Attributes:
        env: the environment.
        task: the task of the agent, with rewards and utilities in [0, 1].
        limits: the limits in the units of their signals.
        origin: environment, ranges, limits and features, as plain values; kept with every record.

    Example:
        >>> import gymnasium, numpy as np, episafe as es
        >>> env = gymnasium.make("FrozenLake-v1", max_episode_steps=8, is_slippery=False)
        >>> def fell(observation, action, following, info): return float(following in (5, 7, 11, 12))
        >>> left = lambda h, observation: [1, 0, 0, 0]
        >>> lake = es.from_gymnasium(env, horizon=8, incumbent=left, cost=fell, cost_limit=0.5, slack=0.5)
        >>> lake.task.thresholds
        array([7.5])
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        horizon: int,
        incumbent: Any,
        threshold: PerLimit = None,
        cost_limit: PerLimit = None,
        slack: PerLimit = None,
        features: object = None,
        move: Move | None = None,
        support: Support | None = None,
        cost: CostFunction | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        utility_range: object = None,
        cost_range: object = None,
        random_start: bool | None = None,
        reward: StateFunction | None = None,
        utility: StateFunction | Mapping[str, StateFunction] | None = None,
        time_homogeneous: bool = False,
        norm_bound: float | None = None,
        least_total: PerLimit = None,
        episode_cost_max: PerLimit = None,
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> None:
        is_env = isinstance(env, gymnasium.Env)
        require(is_env, f"env must be a Gymnasium environment, got {env!r}: make one, or derive its class")
        H, limit = as_count("horizon", horizon), _time_limit(env)
        remedy = f"make the environment with gymnasium.make(…, max_episode_steps={H}), or give horizon={limit}"
        fault = f"the environment's own time limit is {limit} steps and the horizon {H}: {remedy}"
        require(limit in (None, H), fault)
        on_utility, on_cost = (threshold, utility_range, least_total), (cost_limit, cost_range, episode_cost_max)
        limits = _read_limits({"utility": on_utility, "cost": on_cost}, slack)
        self._named = bool(limits[0].name)
        alone = [one.signal for one in limits] == ["cost"]
        require(cost is None or alone, "cost=… needs exactly one limit, cost_limit=…: give that")
        utilities = _by_name("utility", utility, [one.name for one in limits])
        fits = isinstance(utility, Mapping) == self._named and None not in utilities.values()
        wanted = "{name: function}, all names" if self._named else "one function"
        require(utility is None or fits, f"utility must be {wanted}")
        self.env, self._H, self._cost, self._reward_range = env, H, cost, _range("reward", reward_range)
        self.limits = self._reports = limits
        self._observations = seen = observations_of(env.observation_space)
        self._num_actions, self._action = numbered_actions(env.action_space)
        starts = [self._reset_env(seed) for seed in range(STARTS_COMPARED)]
        self._first, varies = starts[0], any(not _same(one, starts[0]) for one in starts)
        fault = "the start is random: resets with different seeds differ; give random_start=True"
        require(not varies or random_start is not False, fault)
        self.random_start = varies if random_start is None else bool(random_start)
        self.seed(secrets.randbelow(2**31))  # fresh randomness: seeds 0, 1, … would be the same in every process
        self._h, self._state, self._total = H, self._first, 0.0
        self.origin = self._facts()
        A, first, view = self._num_actions, int(self.random_start), seen.view
        if features is None:
            countable = seen.count is not None and seen.count <= MOST_STATES
            features, chosen = (OneHot(), "one-hot") if countable else chosen_features(seen.low, seen.high)
            self.origin["features"] = f"chosen: {chosen}"
        elif view is not None:
            features = _viewed(features, view)
        outside = {ENDED: (self._scale_reward(0.0), tuple(one.unit(0.0) for one in limits))}
        if first:
            outside[START] = 0.0, (0.0,) * len(limits)
        self.task = Task(
            *(H + first, A),
            constraints=tuple(one.constraint(shifted(utilities[one.name], first, view), H) for one in limits),
            incumbent=incumbent,
            initial_state=START if first else self._first,
            reward=shifted(reward, first, view),
            features=as_features(features, self._first, A, seen.count, len(outside)),
            time_homogeneous=bool(time_homogeneous),
            encode=seen.encode,
            view=view,
            move=None if move is None else task_move(move, seen.encode, outside, len(limits), first, view),
            support=shifted(support, first, view),
            outside=outside,
            norm_bound=norm_bound,
            state_names=state_names,
            action_names=action_names,
            units=self.units(units or {}),
        )
        try_functions(self.task, first, self._first)
        if any(one.slack is None for one in limits):
            self._measure()

    def _facts(self) -> Origin:
        """Return environment, ranges and limits as plain values."""
        spec, (low, high) = self.env.spec, self._reward_range
        facts: Origin = {"env": spec.id if spec else type(self.env).__name__, "reward_low": low, "reward_high": high}
        for one in self.limits:
            end = f"_{one.name}" if one.name else ""
            facts |= {f"signal{end}": one.signal, f"limit{end}": one.kept}
            facts |= {f"{one.signal}_low{end}": one.low, f"{one.signal}_high{end}": one.high}
            facts |= {} if one.worst is None else {f"worst_total{end}": one.worst}
        return facts | {"random_start": int(self.random_start)}

    def _measure(self) -> None:
        from episafe.simulation.slack import measure_slack  # only here: it plays episodes

        found, task = measure_slack(self), self.task
        lower = found.lower.values() if isinstance(found.lower, dict) else [found.lower]
        each = zip(task.constraints, lower, self.limits, strict=True)
        slacks = [one.slack or measured / limit.width for one, measured, limit in each]
        self.task = task.with_limits(task.thresholds.tolist(), slacks)
        self.origin |= {"slack_episodes": found.num_episodes, "slack_delta": found.delta}

    def units(self, texts: Mapping[str, str]) -> dict[str, Unit]:
        """Return the units in which rewards and utilities are shown: those of the environment."""
        low, high = self._reward_range
        found = {"reward": Unit(texts.get("reward", ""), self._H * low, high - low)}
        for one in self.limits:
            name = one.name or one.signal
            found[name] = one.total_unit(self._H, texts.get(name, ""))
        unknown = [name for name in texts if name not in found]
        require(not unknown, f"units has {unknown}: give units for {', '.join(found)} only")
        return found

    def __repr__(self) -> str:
        facts = {**self.origin, "H": self._H, "A": self._num_actions}
        return f"GymCMDP({', '.join(f'{name}={value}' for name, value in facts.items())})"

    def seed(self, seed: int) -> None:
        """Begin the next episode with `env.reset(seed=seed)`."""
        self._seed: int | None = seed

    def reset(self) -> State:
        """Begin an episode: return its first state, START if the start is random."""
        state, self._seed, self._h, self._total = self._reset_env(self._seed), None, -int(self.random_start), 0.0
        if not self.random_start and not _same(state, self._first):
            raise InvalidProblem(f"one episode starts at {state!r}, another at {self._first!r}: give random_start=True")
        self._state = state
        return self.task.initial_state if self.random_start or self.task.carry is not None else state

    def step(self, action: int) -> Step:
        """Return the next state, reward and utilities (m,) in [0, 1], and the value of chance, None if unknown."""
        if self.task.carry is None:
            return self._stepped(action, self.task)
        at, before = self._h + self.random_start, self._state
        state: Any = START if self._h < 0 else before if before is ENDED else (before, self._total)
        made = carried(self.task, at, state, action, self._stepped(action, self.task.carry.inner))
        self._total = 0.0 if made[0] is ENDED else made[0][1]
        return made

    def _stepped(self, action: int, task: Task) -> Step:
        """Return a step in the states of `task`, which has no running total."""
        h, before = self._h, self._state
        if h >= self._H:
            raise InvalidProblem(f"the episode of {self._H} steps is over: call reset()")
        self._h = h + 1
        if h < 0:
            return before, *task.outside[START], before
        if before is ENDED:
            return ENDED, *task.outside[ENDED], None
        observation, raw, third, terminated, truncated, info = self._step_env(action)
        if truncated and not terminated and h + 1 < self._H:
            raise InvalidProblem(
                f"the environment truncates at step {h + 1}, before the horizon {self._H}: give horizon={h + 1}, "
                "or the environment a longer time limit"
            )
        self._state = state = ENDED if terminated else self._observations.encode(observation)
        at = h + self.random_start
        reward = float(task.reward_at(at, before)[action]) if task.knows_reward else self._scale_reward(raw)
        if task.knows_utility:
            utilities = tuple(task.utility_at(at, before)[:, action].tolist())
        else:
            utilities = self._utilities(action, third, info, observation)
        self._observation = observation
        w = info.get("chance")
        return state, reward, utilities, None if w is None else deepcopy(w)

    def play(self, policy: Policy, rng: np.random.Generator, component: int | None = None) -> Episode:
        """Play one episode, in canonical form; actions are drawn with `rng`."""
        H, begun, rows = self._H + int(self.random_start), self.reset(), []
        state, probabilities, step = begun, policy.probabilities, self.step
        for h, uniform in enumerate(rng.random(H).tolist()):
            sums = list(accumulate(probabilities(h, state).tolist()))
            action = bisect_right(sums, uniform * sums[-1], 0, len(sums) - 1)
            state, reward, utilities, w = step(action)
            rows.append((action, reward, utilities, w, state))
            if state is ENDED:  # actions have no meaning from here on
                rows += [(0, *self.task.outside[ENDED], None, ENDED)] * (H - len(rows))
                break
        return read_steps(self.task, begun, rows, component)

    def true_length(self, seed: int) -> int | None:
        """Return the number of steps after which the incumbent's episodes end; None if it is H or unknown.

        Two episodes are continued beyond the horizon, for at most H + 20 steps; both must end at the same step. Reset
        the environment with a seed afterwards.
        """
        if _time_limit(self.env) is not None:
            return None
        first, second = self._length(seed), self._length(seed + 1)
        return first if first == second and first > self._H else None

    def _length(self, seed: int) -> int:
        """Return the number of steps after which one episode ends; 0 if it does not end, or fails."""
        rng, first, policy = np.random.default_rng(seed), int(self.random_start), inner_task(self.task).incumbent
        with suppress(Exception):  # an environment may fail in any way after its last step
            state = self._reset_env(seed)
            for h in range(2 * self._H + 20):
                observation, _, _, *ended, _ = self._step_env(policy.act(min(h, self._H - 1) + first, state, rng))
                if any(ended):
                    return h + 1
                state = self._observations.encode(observation)
        return 0

    def raw_totals(self, totals: ArrayLike) -> list[float]:
        """Return total utilities (m,) of the task in the units of the limits."""
        each = zip(self.limits, np.atleast_1d(totals).tolist(), strict=True)
        return [one.total_unit(self._H).raw(total) for one, total in each]

    def cost_of(self, utilities: Array) -> float:
        """Return the cost of a step from its utilities (1,), in the unit of the limit; 1 − u for raw utilities u."""
        one = self._reports[0]
        raw: float = one.total_unit(1).raw(float(utilities[0]))
        return raw if one.signal == "cost" else 1 - raw

    def with_total(self, task: Task, origin: Mapping[str, str | int | float]) -> "GymCMDP":
        """Return the same problem with a running total; its limit is an expected cost of at most H − b."""
        made, last = super().with_total(task, origin), task.constraints[-1]
        own = Limit(last.name, "cost", self._H - last.threshold, last.slack, 0.0, 1.0, self._H - last.least_total)
        made.limits = (*self.limits[: task.num_constraints - 1], own)
        if last.slack is None:
            made._measure()
        return made

    def _reset_env(self, seed: int | None) -> State:
        returned: object = self.env.reset(seed=seed)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InvalidProblem("reset must return (observation, info), as in Gymnasium 1.0: wrap the environment")
        self._observation = returned[0]
        return self._observations.encode(returned[0])

    def _step_env(self, action: int) -> tuple[object, object, object, bool, bool, Info]:
        """Return observation, reward, cost (None if there are five values), terminated, truncated and info."""
        returned: tuple[Any, ...] = self.env.step(self._action(action))
        if not isinstance(returned, tuple) or len(returned) not in (5, 6):
            raise InvalidProblem(
                "step must return (observation, reward, terminated, truncated, info), or six values with the cost "
                f"third, got {type(returned).__name__}: wrap the environment"
            )
        observation, reward, *cost, terminated, truncated, info = returned
        return observation, reward, cost[0] if cost else None, terminated, truncated, info

    def _scale_reward(self, raw: object) -> float:
        return _scaled("reward", raw, *self._reward_range)

    def _utilities(self, action: int, third: object, info: Info, observation: object) -> tuple[float, ...]:
        """Return the utilities in [0, 1] that the environment reports."""
        one = self._reports[0]
        if self._cost is not None:
            return (one.unit(self._cost(self._observation, action, observation, info)),)
        if self._named:
            return tuple([limit.unit(self._reported(limit, info)) for limit in self._reports])
        return (one.unit(third if third is not None and one.signal == "cost" else self._reported(one, info)),)

    def _reported(self, one: Limit, info: Info) -> object:
        """Return a raw signal of `info`."""
        found = info.get(one.signal)
        if self._named:
            found = found.get(one.name) if isinstance(found, Mapping) else None
        if found is not None:
            return found
        other, names = "cost" if one.signal == "utility" else "utility", f" with the name {one.name!r}"
        remedy = "report it at every step, 0 included, or give cost=…"
        if other in info and not self._named:
            remedy = f"give {LIMIT[other]}=… in place of {LIMIT[one.signal]}=…"
        raise InvalidProblem(
            f'info has no "{one.signal}"{names if self._named else ""} at step {self._h}, it has '
            f"{', '.join(map(repr, info)) or 'nothing'}: {remedy}"
        )


from_gymnasium = GymCMDP


def stable_baselines(model: Any) -> Callable[[int, Any], Array]:
    """Return the policy of a model trained with Stable-Baselines3: in each state, its deterministic action.

    The model must have finite actions, and be trained on the observations that the problem's environment gives.
    """
    space = model.action_space
    finite = isinstance(space, gymnasium.spaces.Discrete)
    require(finite, f"episafe needs finite actions; the model acts in {space}: train it with Discrete actions")

    def probabilities(h: int, observation: Any) -> Array:
        """Return 1 for the action that the model predicts, 0 for the others."""
        return np.eye(int(space.n))[int(model.predict(observation, deterministic=True)[0]) - int(space.start)]

    return probabilities


def _scaled(signal: str, raw: Any, low: float, high: float) -> float:
    """Return a raw signal in [0, 1]; raise if it is outside its range."""
    if type(raw) not in (float, int) or not low - TOLERANCE <= raw <= high + TOLERANCE:
        raw = as_number(signal, raw)
        if not low - TOLERANCE <= raw <= high + TOLERANCE:
            size = " (a cost is the size of a penalty, so it is not negative)" if signal == "cost" and raw < 0 else ""
            raise InvalidProblem(
                f"{signal} {raw:.12g} lies outside [{low:g}, {high:g}]{size}: give its true range, which includes 0 if "
                f"episodes can end early, as {signal}_range=(lowest, highest)"
            )
    return (raw - low) / (high - low)


def _viewed(features: object, view: View) -> Any:
    """Return the user's features of observations as features of states."""
    if isinstance(features, OneHot) and features.cell is not None:
        return OneHot(_viewed(features.cell, view), features.size)
    return (lambda state: features(view(state))) if callable(features) else features


def _same(one: object, other: object) -> bool:
    return bool(np.array_equal(one, np.asarray(other))) if isinstance(one, np.ndarray) else bool(one == other)


def _range(name: str, given: Any) -> tuple[float, float]:
    try:
        low, high = (as_number(f"{name}_range", end) for end in given)
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"{name}_range must be a pair (lowest, highest), got {given!r}") from error
    require(low < high, f"{name}_range must have lowest < highest, got {given!r}: give the lowest first")
    return low, high


def _read_limits(given: Mapping[str, tuple[PerLimit, object, PerLimit]], slack: PerLimit) -> tuple[Limit, ...]:
    """Return the limits from the user's arguments: threshold, range and worst total by signal."""
    kept = {signal: limit for signal, (limit, _, _) in given.items() if limit is not None}
    named = any(isinstance(limit, Mapping) for limit in kept.values())
    one_of = 'threshold (a lower limit on info["utility"]) and cost_limit (an upper limit on info["cost"])'
    require(len(kept) == 1 or (kept and named), f"give exactly one of {one_of}, or mappings by name")
    limits: list[Limit] = []
    for signal, (limit, ranges, worst) in given.items():
        if limit is None:
            fault = f"{signal}_range or {WORST[signal]} is given, but no limit is on the {signal}"
            require(ranges is None and worst is None, fault)
            continue
        for argument, value in ((LIMIT[signal], limit), ("slack", slack)):
            fault = f"{argument} is {value!r}, but limits are given by name: give {{name: {argument}}}"
            require(not named or value is None or isinstance(value, Mapping), fault)
        each = limit if isinstance(limit, Mapping) else {"": limit}
        ranges, worst = _by_name(f"{signal}_range", ranges, each), _by_name(WORST[signal], worst, each)
        for name, value in each.items():
            low, high = (0.0, 1.0) if ranges[name] is None else _range(signal, ranges[name])
            total = None if worst[name] is None else as_number(WORST[signal], worst[name])
            limits.append(Limit(name, signal, as_number(LIMIT[signal], value), None, low, high, total))
    slacks = _by_name("slack", slack, [one.name for one in limits])
    known = {name: as_scale("slack", slack, positive=True) for name, slack in slacks.items() if slack is not None}
    return tuple(one._replace(slack=known.get(one.name)) for one in limits)


def _by_name(argument: str, given: object, names: Iterable[str]) -> dict[str, Any]:
    """Return an argument by the names of the limits: None if a mapping lacks a name; a single value is used for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    fault = f"{argument} is given for {', '.join(map(repr, given))}, the limits are {', '.join(names)}: correct that"
    require(given.keys() <= set(names), fault)
    return dict.fromkeys(names) | dict(given)


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return the environment's own time limit, from `gymnasium.make` or from a TimeLimit wrapper."""
    limit = env.spec.max_episode_steps if env.spec else None
    while limit is None and isinstance(env, gymnasium.Wrapper):
        limit = env._max_episode_steps if isinstance(env, gymnasium.wrappers.TimeLimit) else None
        env = env.env
    return limit

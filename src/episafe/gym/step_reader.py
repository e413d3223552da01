"""What an environment says, read strictly as a task has it: each fault names the place and the remedy.

Observations are states, actions go by number, signals lie in [0, 1].
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from episafe.checks import TOLERANCE, as_number
from episafe.errors import InvalidProblem
from episafe.gym.observations import Observations, state_of
from episafe.problems.states import is_finite

OTHER = {"utility": "cost", "cost": "utility"}
LIMIT = {"utility": "threshold", "cost": "cost_limit"}
NAMED = "named"  # signals that are mappings, by the names of constraints
FLAGS = (bool, np.bool_)
MOST_ACTIONS = 4096
REMEMBERED = 1_000  # states read last, which are not looked at again when they are reported


class NumberedActions:
    """The actions of a finite space, numbered 0..A−1."""

    def __init__(self, space: Any) -> None:
        import gymnasium.spaces as spaces

        self.space = space
        self._start: Any = 0
        if isinstance(space, spaces.Discrete):
            self._shape: tuple[int, ...] | None = None
            self.count, self._start = int(space.n), int(space.start)
        elif isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
            sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
            self._shape, self._kind, self._form = tuple(int(n) for n in np.ravel(sizes)), space.dtype, sizes.shape
            self._start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
            self.count = math.prod(self._shape)
        else:
            raise InvalidProblem(
                f"the action space {space} is not finite: wrap the environment so that its actions are Discrete"
            )
        if self.count > MOST_ACTIONS:
            raise InvalidProblem(
                f"the action space {space} has {self.count} actions, more than {MOST_ACTIONS}: wrap the environment so "
                "that it offers fewer"
            )

    def __getitem__(self, action: int) -> Any:
        """The action of this number, as the environment takes it."""
        if self._shape is None:
            return action + self._start
        chosen = np.array(np.unravel_index(action, self._shape), dtype=self._kind).reshape(self._form)
        return (chosen + self._start).astype(self._kind)

    def number(self, chosen: Any) -> int:
        """The number of an action of the space."""
        if self._shape is None:
            return int(chosen) - int(self._start)
        return int(np.ravel_multi_index(np.ravel(np.asarray(chosen) - self._start), self._shape))


class Range(NamedTuple):
    """The range of a raw signal, which becomes [0, 1]."""

    name: str
    low: float
    high: float

    def unit(self, value: Any, place: str) -> float:
        """The value scaled to [0, 1]."""
        if type(value) is float:
            scaled = (value - self.low) / (self.high - self.low)
            if 0.0 <= scaled <= 1.0:
                return scaled
        number = as_number(f"{self.name} {place}", value)
        scaled = (number - self.low) / (self.high - self.low)
        if not -TOLERANCE <= scaled <= 1 + TOLERANCE:
            remedy = f"give its true range as {self.name}_range=(lowest, highest)"
            if self.name == "cost" and number < 0:
                remedy = f"a cost counts what is spent, so report a penalty as its size, {-number:g}; else {remedy}"
            raise InvalidProblem(
                f"{self.name} {place} is {number:.12g}, outside [{self.low:g}, {self.high:g}]: {remedy}"
            )
        return scaled


@dataclass(frozen=True, eq=False)
class Reading:
    """How raw values are read, of a live environment and of its logs.

    Attributes:
        observations: those of its observation space, as states.
        actions: the finite actions, numbered.
        scales: the raw ranges of the reward, and of the utility or the cost, of each constraint.
        told: whether reward and utility are told by functions, so that raw ones are not read.
        outside: states of the task that are no observations.
        names: of the constraints, where signals are mappings by name; none where there is one signal.
    """

    observations: Observations
    actions: NumberedActions
    scales: tuple[Range, ...]
    told: tuple[bool, bool]
    outside: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def space(self) -> Any:
        """The observation space."""
        return self.observations.space

    @cached_property
    def signal(self) -> str | None:
        """The constraint signal to be read, "utility" or "cost", or "named" ones; None if a function tells it."""
        if self.told[1]:
            return None
        return NAMED if self.names else self.scales[1].name

    @cached_property
    def _plainly(self) -> tuple[float, float, str, str, float, float] | None:
        """Low and width of the reward, the names of the signal and of the other one, low and width of the signal.

        None where something is told by functions, or signals go by name.
        """
        if any(self.told) or self.names:
            return None
        reward, signal = self.scales
        named = signal.name, OTHER[signal.name]
        return reward.low, reward.high - reward.low, *named, signal.low, signal.high - signal.low

    @cached_property
    def _passes(self) -> Callable[[Any], bool]:
        return self.observations.passes

    @cached_property
    def _is_own(self) -> dict[int, Any]:
        """The arrays that were read last, sealed, by their identity."""
        return {}

    def quick_step(self, returned: Any) -> tuple[Any, float, float] | None:
        """State, reward and utility of a step that is plainly right, and not the last; None: it is to be read in full.

        That is so for five values of the very types that are asked for, where nothing is told and all is in range.
        """
        plainly = self._plainly
        if plainly is None or type(returned) is not tuple or len(returned) != 5:
            return None
        observation, raw, terminated, truncated, info = returned
        if terminated is not False or truncated is not False or type(info) is not dict or type(raw) is not float:
            return None
        low, width, name, other, least, span = plainly
        signal = info.get(name)
        if type(signal) is not float or other in info or not self._passes(observation):
            return None
        reward, utility = (raw - low) / width, (signal - least) / span
        if not (0.0 <= reward <= 1.0 and 0.0 <= utility <= 1.0):
            return None
        return self._kept(observation), reward, 1.0 - utility if name == "cost" else utility

    def _kept(self, observation: Any) -> Any:
        """What passed the test as a state; arrays are remembered."""
        if type(observation) is not np.ndarray:
            return observation if type(observation) is int else state_of(observation)
        state = observation.copy()
        state.setflags(write=False)
        if len(self._is_own) >= REMEMBERED:
            self._is_own.clear()
        self._is_own[id(state)] = state
        return state

    def state(self, observation: Any, place: str) -> Any:
        """The observation as a state; an error if it is not in its space or not finite."""
        if self._passes(observation):
            return self._kept(observation)
        if not self.space.contains(observation):
            raise InvalidProblem(
                f"observation {observation!r} {place} is not in the observation space {self.space}: correct the space, "
                "or what is returned (its type counts too)"
            )
        state = state_of(self.observations.read(observation))
        if not is_finite(state):
            raise InvalidProblem(f"observation {observation!r} {place} is not finite: mend the environment")
        return state

    def states(self, reported: Sequence[Any]) -> list[Any]:
        """Reported states, read; an error where one is none of the observation space."""
        own, passes, read, found = self._is_own, self._passes, self.observations.read, []
        for h, state in enumerate(reported):
            if own.get(id(state), self) is not state:
                state = read(state)
                if not passes(state):
                    self.require_state(state, f" at step {h}")
            found.append(state)
        return found

    def require_state(self, state: Any, place: str = "") -> None:
        """An error where a state is none of the observation space."""
        if self._is_own.get(id(state), self) is state or self._passes(state):
            return
        if not (any(state is one for one in self.outside) or self.observations.has(state)):
            raise self.observations.foreign(state, place)

    def values(self, raw_reward: Any, raw_signal: Any, place: str) -> tuple[float, ...]:
        """Reward and the utility of each constraint in [0, 1], utility = 1 − cost; NaN for what is told."""
        reward, signals = np.nan if self.told[0] else self.scales[0].unit(raw_reward, place), self.scales[1:]
        if self.signal is None:
            return (reward, *[np.nan] * len(signals))
        raw = self._by_name(raw_signal, place) if self.names else [raw_signal]
        of = [f"of {name} " for name in self.names] or [""]
        units = [one.unit(value, f"{whose}{place}") for one, value, whose in zip(signals, raw, of, strict=True)]
        return reward, *(1.0 - unit if one.name == "cost" else unit for one, unit in zip(signals, units, strict=True))

    def _by_name(self, info: dict[str, Any], place: str) -> list[Any]:
        """The raw signal of each constraint, from the mappings info["utility"] and info["cost"]."""
        found = []
        for scale, name in zip(self.scales[1:], self.names, strict=True):
            told = info.get(scale.name)
            if not isinstance(told, Mapping) or name not in told:
                has = ", ".join(map(repr, told)) if isinstance(told, Mapping) else _shown(told)
                raise InvalidProblem(
                    f'info["{scale.name}"] {place} has no {name!r}: report a mapping with every name that has a limit, '
                    f"at every step, 0 included; it has {has or 'nothing'}"
                )
            found.append(told[name])
        return found


def read_range(name: str, value: Any) -> Range:
    """(lowest, highest) of a signal."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise InvalidProblem(f"{name}_range must be a pair (lowest, highest), got {value!r}") from None
    low, high = as_number(f"{name}_range[0]", low), as_number(f"{name}_range[1]", high)
    if not low < high:
        raise InvalidProblem(f"{name}_range must have lowest < highest, got {value!r}: give the lowest first")
    return Range(name, low, high)


def read_reset(returned: Any) -> Any:
    """The observation of `reset`."""
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], dict):
        raise InvalidProblem(
            f"reset must return (observation, info) with info a dict, got {_shown(returned)}: Gymnasium's interface "
            "since 0.26; wrap older environments"
        )
    return returned[0]


def read_step(returned: Any, signal: str | None, place: str) -> tuple[Any, Any, Any, bool, bool]:
    """Observation, raw reward, raw constraint signal, terminated and truncated, of the five or six values of `step`.

    `signal` is "utility" or "cost", None if it is told by a function; then None is returned for it. Of "named" ones it
    is the infos themselves, which have them all.
    """
    size = len(returned) if isinstance(returned, tuple) else 0
    if size not in (5, 6):
        hint = "a done flag must be split into terminated and truncated" if size == 4 else "return exactly these"
        raise InvalidProblem(
            f"step {place} must return (observation, reward, terminated, truncated, info), or six values with the cost "
            f"third, got {_shown(returned)}: {hint}"
        )
    terminated, truncated, info = returned[-3:]
    if not isinstance(info, dict):
        raise InvalidProblem(f"info {place} must be a dict, got {type(info).__name__}: return it last")
    if not (isinstance(terminated, FLAGS) and isinstance(truncated, FLAGS)):
        name, flag = ("truncated", truncated) if isinstance(terminated, FLAGS) else ("terminated", terminated)
        raise InvalidProblem(f"{name} {place} must be True or False, got {flag!r}: convert it with bool()")
    found = None
    if signal == NAMED:
        found = info
    elif signal is not None:
        found = _third(returned[2], info, signal, place) if size == 6 else _in_info(info, signal, place)
    return returned[0], returned[1], found, bool(terminated), bool(truncated)


def read_info(returned: Any) -> dict[str, Any]:
    """The infos of a step; empty where it has none, which `read_step` then refuses."""
    info = returned[-1] if isinstance(returned, tuple) and returned else None
    return info if isinstance(info, dict) else {}


def _in_info(info: dict[str, Any], signal: str, place: str) -> Any:
    other = OTHER[signal]
    if signal in info and other in info:
        raise InvalidProblem(
            f'info {place} has both "utility" and "cost": leave out "{other}", or say which by a limit'
        )
    if other in info:
        raise InvalidProblem(
            f'info {place} has "{other}" and not "{signal}": give {LIMIT[other]}=… in place of {LIMIT[signal]}=…'
        )
    if signal not in info:
        raise InvalidProblem(
            f'info {place} has no "{signal}": report the constraint signal at every step, 0 included; it has '
            f"{', '.join(map(repr, info)) or 'nothing'}"
        )
    return info[signal]


def _third(cost: Any, info: dict[str, Any], signal: str, place: str) -> Any:
    if signal != "cost":
        raise InvalidProblem(
            f"step {place} returns a cost as its third value: give cost_limit=… in place of threshold=…"
        )
    if "utility" in info or ("cost" in info and not np.array_equal(info["cost"], cost)):
        raise InvalidProblem(
            f"step {place} returns the cost {cost!r} and another signal in info: leave one of them out"
        )
    return cost


def _shown(returned: Any) -> str:
    if isinstance(returned, tuple):
        return f"{len(returned)} values ({', '.join(type(part).__name__ for part in returned)})"
    return type(returned).__name__

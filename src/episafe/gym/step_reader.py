"""What an environment says, read strictly as a task has it: each fault names the place and the remedy.

Observations are states, actions go by number, signals lie in [0, 1].
"""

import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from episafe.checks import TOLERANCE, as_number
from episafe.errors import InvalidEpisode, InvalidProblem

OTHER = {"utility": "cost", "cost": "utility"}
LIMIT = {"utility": "threshold", "cost": "cost_limit"}
NAMED = "named"  # signals that are mappings, by the names of constraints
FLAGS = (bool, np.bool_)
MOST_ACTIONS = 4096
WHOLE = (int, np.int64)
SMALL = 64  # numbers in an array up to which plain comparisons are the faster ones
REMEMBERED = 1_000  # states read last, which are not looked at again when they are reported


class Actions:
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
        space: the observation space.
        actions: the finite actions, numbered.
        scales: the raw ranges of the reward, and of the utility or the cost, of each constraint.
        told: whether reward and utility are told by functions, so that raw ones are not read.
        outside: states of the task that are no observations.
        names: of the constraints, where signals are mappings by name; none where there is one signal.
    """

    space: Any
    actions: Actions
    scales: tuple[Range, ...]
    told: tuple[bool, bool]
    outside: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()

    @cached_property
    def signal(self) -> str | None:
        """The constraint signal to be read, "utility" or "cost", or "named" ones; None if a function tells it."""
        if self.told[1]:
            return None
        return NAMED if self.names else self.scales[1].name

    @cached_property
    def _passes(self) -> Callable[[Any], bool]:
        return quick_test(self.space)

    @cached_property
    def _is_own(self) -> dict[int, Any]:
        """The arrays that were read last, sealed, by their identity."""
        return {}

    def quick_step(self, returned: Any) -> tuple[Any, float, float] | None:
        """State, reward and utility of a step that is plainly right, and not the last; None: it is to be read in full.

        That is so for five values of the very types that are asked for, where nothing is told and all is in range.
        """
        if type(returned) is not tuple or len(returned) != 5 or self.told[0] or self.told[1] or self.names:
            return None
        observation, raw, terminated, truncated, info = returned
        if terminated is not False or truncated is not False or type(info) is not dict or type(raw) is not float:
            return None
        (_, low, high), (name, least, most) = self.scales
        signal = info.get(name)
        if type(signal) is not float or OTHER[name] in info or not self._passes(observation):
            return None
        reward, utility = (raw - low) / (high - low), (signal - least) / (most - least)
        if not (0.0 <= reward <= 1.0 and 0.0 <= utility <= 1.0):
            return None
        return self._kept(observation), reward, 1.0 - utility if name == "cost" else utility

    def _kept(self, observation: Any) -> Any:
        """What passed the test as a state; arrays are remembered."""
        if type(observation) is not np.ndarray:
            return as_state(observation)
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
        state = as_state(observation)
        if not is_finite(state):
            raise InvalidProblem(f"observation {observation!r} {place} is not finite: mend the environment")
        return state

    def refuse_foreign(self, states: Sequence[Any]) -> None:
        """An error where a reported state is none of the observation space."""
        for h, state in enumerate(states):
            self.require_state(state, f" at step {h}")

    def require_state(self, state: Any, place: str = "") -> None:
        """An error where a state is none of the observation space."""
        if self._is_own.get(id(state), self) is state or self._passes(state):
            return
        if not (any(state is one for one in self.outside) or self._is_state(state)):
            raise InvalidEpisode(
                f"state {state!r}{place} is not in the observation space {self.space}: give observations as the "
                "environment gives them; their type counts too"
            )

    @cached_property
    def plain(self) -> Callable[[Any], Any] | None:
        """What makes a state of an observation in plain numbers and lists, as over the wire; None if it is one."""
        return plain_reader(self.space)

    def _is_state(self, state: Any) -> bool:
        """Whether a state is of the observation space."""
        if self.space.shape is None:
            return is_observation(self.space, state)
        return (self.plain is None or isinstance(state, np.ndarray)) and bool(self.space.contains(state))

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


def num_values(space: Any) -> int | None:
    """How many observations a space has; None if they cannot be counted."""
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return math.prod(int(n) for n in np.ravel(space.nvec))
    if isinstance(space, spaces.MultiBinary):
        return int(2 ** np.prod(space.shape))
    if isinstance(space, spaces.Tuple):
        sizes = [num_values(part) for part in space.spaces]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu" and space.is_bounded():
        return math.prod(int(n) for n in np.ravel(space.high.astype(object) - space.low.astype(object) + 1))
    return None


def quick_test(space: Any) -> Callable[[Any], bool]:
    """A test that only finite values of the space pass, and most of them do: what fails it is looked at in full.

    It asks for the exact type, shape and bounds of Gymnasium's own spaces; of other spaces nothing passes.
    """
    import gymnasium.spaces as spaces

    low: Any = None
    if type(space) is spaces.Discrete:
        return partial(_is_whole, int(space.start), int(space.start + space.n))
    if type(space) is spaces.Box:
        low, high = space.low, space.high
    elif type(space) is spaces.MultiDiscrete:
        low, high = space.start, space.start + space.nvec - 1
    elif type(space) is spaces.MultiBinary:
        low, high = np.zeros(space.shape, dtype=int), np.ones(space.shape, dtype=int)
    if low is None or low.size > SMALL:
        return _is_nothing
    lows, highs = np.ravel(low).tolist(), np.ravel(high).tolist()
    most = sys.float_info.max
    ends = [(max(low, -most), min(high, most)) for low, high in zip(lows, highs, strict=True)]
    return partial(_is_array, space.dtype, space.shape, ends)


def _is_whole(least: int, beyond: int, value: Any) -> bool:
    return type(value) in WHOLE and least <= value < beyond


def _is_array(dtype: Any, shape: tuple[int, ...], ends: list[tuple[float, float]], value: Any) -> bool:
    if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
        return False
    for number, (low, high) in zip((value if value.ndim == 1 else value.ravel()).tolist(), ends, strict=True):
        if not low <= number <= high:
            return False
    return True


def _is_nothing(value: Any) -> bool:
    return False


def as_state(observation: Any) -> Any:
    """An observation as a state: whole numbers as int, tuples as such, arrays copied and sealed."""
    if isinstance(observation, np.ndarray):
        state = np.array(observation)  # not .copy(), which keeps a subclass
        state.setflags(write=False)
        return state
    if isinstance(observation, np.generic):
        return observation.item()
    if isinstance(observation, tuple):
        return tuple(tuple(p.ravel().tolist()) if isinstance(p, np.ndarray) else as_state(p) for p in observation)
    return observation


def plain_reader(space: Any, is_part: bool = False) -> Callable[[Any], Any] | None:
    """What makes a state, as `as_state` has it, of an observation of the space that is said in plain numbers and lists.

    None where that is a state already. What cannot be one is left as it is, to be refused.
    """
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Discrete):
        return None
    if isinstance(space, spaces.Tuple):
        readers = [plain_reader(part, True) for part in space.spaces]
        return None if not any(readers) else partial(_read_parts, readers)
    return partial(_read_flat if is_part else read_array, space.dtype, space.shape)


def _read_parts(readers: list[Callable[[Any], Any] | None], said: Any) -> Any:
    """A tuple by its parts."""
    if not isinstance(said, tuple | list) or len(said) != len(readers):
        return said
    return tuple(part if read is None else read(part) for read, part in zip(readers, said, strict=True))


def _read_flat(dtype: Any, shape: tuple[int, ...], said: Any) -> Any:
    """An array that is a part of a tuple: its numbers in order."""
    made = _cast(dtype, said)
    return said if made is None or made.size != math.prod(shape) else tuple(made.ravel().tolist())


def read_array(dtype: Any, shape: tuple[int, ...], said: Any) -> Any:
    """An array of this type and shape, sealed, of what is said: lists, tuples, numbers, arrays of another type.

    Its numbers may be in one row, as they are where it is a part of a tuple.
    """
    if type(said) is np.ndarray and said.dtype == dtype:
        return said
    made = _cast(dtype, said)
    if made is not None and made.shape == (math.prod(shape),):
        made = made.reshape(shape)
    if made is None or made.shape != shape:
        return said
    made.setflags(write=False)
    return made


def _cast(dtype: Any, said: Any) -> Any:
    """What is said as an array of this type; None where it is none, or whole numbers would lose something."""
    try:
        given = np.asarray(said)
    except ValueError:  # lists of several lengths
        return None
    if given.dtype.kind not in "biuf":
        return None
    made = np.array(given, dtype=dtype)
    return made if dtype.kind == "f" or np.array_equal(made, given) else None


def is_observation(space: Any, state: Any) -> bool:
    """Whether a state, as `as_state` has it, is an observation of a tuple: each part is one of its own space."""
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Tuple):
        is_tuple = isinstance(state, tuple) and len(state) == len(space.spaces)
        return is_tuple and all(map(is_observation, space.spaces, state))
    if isinstance(space, spaces.Discrete):
        return _is_whole(int(space.start), int(space.start + space.n), state)
    numbers = isinstance(state, tuple) and all(isinstance(x, int | float) for x in state)
    return numbers and len(state) == math.prod(space.shape) and bool(space.contains(observation_of(space, iter(state))))


def number_kinds(space: Any) -> list[str]:
    """The kind of each number of an observation, in order: "f" for fractions, others for whole ones."""
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Tuple):
        return [kind for part in space.spaces for kind in number_kinds(part)]
    return [space.dtype.kind] * math.prod(space.shape)


def observation_of(space: Any, numbers: Iterator[Any]) -> Any:
    """The observation that has these numbers, in order."""
    import gymnasium.spaces as spaces

    if isinstance(space, spaces.Tuple):
        return tuple(observation_of(part, numbers) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return int(next(numbers))
    taken = [next(numbers) for _ in range(math.prod(space.shape))]
    return np.array(taken, dtype=space.dtype).reshape(space.shape)


def is_finite(state: Any) -> bool:
    """Whether a state, and every part of one that is a tuple, is without NaN and infinity."""
    if isinstance(state, tuple):
        return all(is_finite(part) for part in state)
    values = np.asarray(state)
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def refuse_unreadable(space: Any) -> None:
    """Refuse observation spaces whose values are neither arrays, numbers nor tuples of these."""
    import gymnasium.spaces as spaces

    readable = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box, spaces.Tuple)
    if not isinstance(space, readable):
        raise InvalidProblem(
            f"observations of {space} cannot be told apart or turned into features: wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, or in a TransformObservation of yours"
        )

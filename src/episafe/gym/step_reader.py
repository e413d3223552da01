"""What `reset` and `step` of an environment return, read strictly: each fault names the place and the remedy."""

from typing import Any, NamedTuple

import numpy as np

from episafe.checks import TOLERANCE, as_number
from episafe.errors import InvalidProblem

OTHER = {"utility": "cost", "cost": "utility"}
LIMIT = {"utility": "threshold", "cost": "cost_limit"}
FLAGS = (bool, np.bool_)


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
            raise InvalidProblem(
                f"{self.name} {place} is {number:.12g}, outside [{self.low:g}, {self.high:g}]: give its true range as "
                f"{self.name}_range=(lowest, highest)"
            )
        return scaled


class Step(NamedTuple):
    """One step as the environment returned it, with the raw constraint signal, None where none was asked for."""

    observation: Any
    reward: Any
    signal: Any
    terminated: bool
    truncated: bool


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


def read_step(returned: Any, signal: str | None, place: str) -> Step:
    """The five- or six-tuple of `step`; `signal` is "utility" or "cost", None if it is told by a function."""
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
    if signal is not None:
        found = _third(returned[2], info, signal, place) if size == 6 else _in_info(info, signal, place)
    return Step(returned[0], returned[1], found, bool(terminated), bool(truncated))


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

"""Options of environments: read from their constructors, checked, and as a record says them."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from episafe.checks import as_whole


def defaults_of(constructor: Callable[..., Any]) -> dict[str, Any]:
    """The options of an environment with their defaults: all but the stream and the variant."""
    parameters = inspect.signature(constructor).parameters.values()
    return {p.name: p.default for p in parameters if p.name not in ("rng", "variant")}


def said_options(name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    """{"options": …} with what differs from the defaults, in their order, for an origin; {} where nothing does.

    An option that the environment `name` does not have is refused.
    """
    for option in options:
        if option not in defaults:
            raise ValueError(f"{name} has no option {option!r}; it has {', '.join(defaults)}")
    given = {name: _plain(options.get(name, default)) for name, default in defaults.items()}
    said = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != _plain(defaults[name]))
    return {"options": said} if said else {}


def _plain(value: Any) -> Any:
    """A value without its numpy type; lists, as files have them, as tuples."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def check_sizes(**sizes: Any) -> None:
    """Refuse sizes that are no whole numbers ≥ 1."""
    for name, value in sizes.items():
        as_whole(name, value, 1)


def check_range(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is no number in [low, high]; low itself is refused where it is 0 and high is infinite."""
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not low <= value <= high or (value == 0 and math.isinf(high)):
        wanted = "a number > 0" if math.isinf(high) else f"a number in [{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_interval(name: str, value: Any) -> None:
    """Refuse what is no pair low ≤ high of probabilities."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name} must be a pair (low, high) of probabilities, got {value!r}")
    check_range(name, value[0], 0, 1)
    check_range(name, value[1], value[0], 1)

"""Gymnasium's spaces as the library reads them: finite actions by number, observations as states."""

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from episafe.errors import InvalidProblem

MOST_ACTIONS = 4096
WHOLE = (int, np.int64)
SMALL = 64  # numbers in an array up to which plain comparisons are the faster ones


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

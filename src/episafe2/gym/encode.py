"""Observations of a Gymnasium space as states: one encoder per kind of space, written for speed.

An encoder accepts what the environment returns and what a JSON file has of it. It raises InvalidEpisode otherwise.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from operator import le
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from episafe2.core.errors import InvalidEpisode, InvalidProblem
from episafe2.core.types import Array, State

SMALL = 64  # numbers in an array up to which plain comparisons are faster than NumPy's
MOST_ACTIONS = 4096


@dataclass(frozen=True)
class Observations:
    """How the observations of a space become states.

    Attributes:
        encode: observation -> state: an int (Discrete), a read-only array (Box, MultiDiscrete, MultiBinary), a tuple
            (Tuple; arrays in it become tuples of numbers), or the flattened array (Dict and others).
        count: how many states there are; None if they cannot be counted.
        low, high: bounds of the numbers of an observation, (n,), infinite where there are none; empty for Discrete.
    """

    encode: Callable[[Any], State]
    count: int | None
    low: Array
    high: Array


def observations_of(space: Any) -> Observations:
    """Return the encoder of a space; raise if its observations have no fixed size."""
    if isinstance(space, spaces.Discrete):
        return Observations(_discrete(space), int(space.n), np.zeros(0), np.zeros(0))
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        low, high = _bounds(space)
        whole = space.dtype.kind in "iub" and bool(np.isfinite(low).all() and np.isfinite(high).all())
        count = math.prod(int(n) for n in (high - low + 1).tolist()) if whole else None
        return Observations(_array(space, low, high), count, low, high)
    if isinstance(space, spaces.Tuple):
        parts = [observations_of(part) for part in space.spaces]
        counts = [part.count for part in parts]
        count = math.prod(n for n in counts if n is not None) if None not in counts else None
        low, high = (np.concatenate([np.zeros(0), *(side(part) for part in parts)]) for side in (_low, _high))
        return Observations(_tuple(space, [part.encode for part in parts]), count, low, high)
    try:
        flat = spaces.flatten_space(space)
    except (NotImplementedError, ValueError):
        flat = None
    if not isinstance(flat, spaces.Box):
        raise InvalidProblem(
            f"observations of {space} have no fixed size, so they have no features: wrap the environment in "
            "gymnasium.wrappers.TransformObservation"
        )
    inner = observations_of(flat)
    encode = inner.encode

    def flattened(observation: Any) -> State:
        return encode(observation if isinstance(observation, np.ndarray | list) else spaces.flatten(space, observation))

    return Observations(flattened, None, inner.low, inner.high)


def _low(part: Observations) -> Array:
    return part.low if part.low.size else np.zeros(1)


def _high(part: Observations) -> Array:
    return part.high if part.high.size else np.full(1, float((part.count or 1) - 1))


def _bounds(space: Any) -> tuple[Array, Array]:
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        low, high = np.zeros(space.shape), np.ones(space.shape)
    return np.ravel(low).astype(np.float64), np.ravel(high).astype(np.float64)


def _foreign(observation: Any, space: Any) -> InvalidEpisode:
    return InvalidEpisode(
        f"observation {observation!r} is not in the observation space {space}: return finite observations of its "
        "type and within its bounds, or correct the space"
    )


def _discrete(space: Any) -> Callable[[Any], int]:
    least, beyond = int(space.start), int(space.start) + int(space.n)

    def encode(observation: Any) -> int:
        if type(observation) is not int:
            array = np.asarray(observation)
            if array.size != 1 or array.dtype.kind not in "iu":
                raise _foreign(observation, space)
            observation = int(array.item())
        if not least <= observation < beyond:
            raise _foreign(observation, space)
        return observation

    return encode


def _array(space: Any, low: Array, high: Array) -> Callable[[Any], State]:
    dtype, shape, most = space.dtype, space.shape, sys.float_info.max
    lows, highs = np.maximum(low, -most), np.minimum(high, most)  # so that infinity lies outside
    least, largest, small = lows.tolist(), highs.tolist(), low.size <= SMALL

    def encode(observation: Any) -> State:
        if type(observation) is np.ndarray and observation.dtype == dtype:
            state = observation.copy()
        else:
            try:
                state = np.array(observation, dtype=dtype)
            except (TypeError, ValueError) as error:
                raise _foreign(observation, space) from error
        if state.shape != shape:
            raise _foreign(observation, space)
        if small:
            numbers = (state if state.ndim == 1 else state.ravel()).tolist()
            inside = all(map(le, least, numbers)) and all(map(le, numbers, largest))
        else:
            inside = bool(((state.ravel() >= lows) & (state.ravel() <= highs)).all())
        if not inside:
            raise _foreign(observation, space)
        state.setflags(write=False)
        return state

    return encode


def _tuple(space: Any, parts: list[Callable[[Any], State]]) -> Callable[[Any], State]:
    shapes = [getattr(part, "shape", None) for part in space.spaces]

    def encode(observation: Any) -> State:
        if not isinstance(observation, tuple | list) or len(observation) != len(parts):
            raise _foreign(observation, space)
        states = []
        for part, one, shape in zip(parts, observation, shapes, strict=True):
            if shape and isinstance(one, tuple):  # as a state has it: the numbers in order
                one = np.reshape(one, shape)
            state = part(one)
            states.append(tuple(state.ravel().tolist()) if isinstance(state, np.ndarray) else state)
        return tuple(states)

    return encode


def numbered_actions(space: Any) -> tuple[int, Callable[[int], Any]]:
    """Return the number of actions of a finite space, and number -> action as the environment takes it."""
    if isinstance(space, spaces.Discrete):
        count, start = int(space.n), int(space.start)
        return _few(count, space), (lambda action: action + start) if start else (lambda action: action)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        low, high = _bounds(space)
        sizes = tuple(int(n) for n in (high - low + 1).tolist())
        count = _few(math.prod(sizes), space)
        table = (np.stack(np.unravel_index(np.arange(count), sizes), axis=1) + low).astype(space.dtype)
        return count, table.reshape(count, *space.shape).__getitem__
    raise InvalidProblem(
        f"the action space {space} is not finite: wrap the environment so that its actions are Discrete"
    )


def _few(count: int, space: Any) -> int:
    if count > MOST_ACTIONS:
        raise InvalidProblem(
            f"the action space {space} has {count} actions, more than {MOST_ACTIONS}: wrap the environment so that it "
            "offers fewer"
        )
    return count

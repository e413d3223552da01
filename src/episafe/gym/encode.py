"""Observations of a Gymnasium space as states: one encoder per kind of space, written for speed.

An encoder accepts what the environment returns, and the same value read from JSON. Otherwise it raises InvalidEpisode.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from episafe.core.checks import require
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.types import Array, Encoder, State, View

Space = spaces.Space[Any]
ArraySpace = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
Action = Callable[[int], object]  # number -> action as the environment takes it
SMALL = 64  # numbers in an array up to which plain comparisons are faster than NumPy's
MOST_ACTIONS = 4096


@dataclass(frozen=True)
class Observations:
    """How the observations of a space become states, and back.

    Attributes:
        encode: observation -> state: an int (Discrete), a text (Text), a read-only array (Box, MultiDiscrete,
            MultiBinary), or a tuple of these (Tuple, Dict in the order of its keys), arrays in it as flat tuples.
        count: how many states there are; None if they cannot be counted.
        low, high: bounds of the numbers of a state, (n,), infinite where there are none; empty if it has texts.
        view: state -> observation, as the environment returns it; None if the state is the observation.
    """

    encode: Encoder
    count: int | None
    low: Array
    high: Array
    view: View | None = None


def observations_of(space: Space) -> Observations:
    """Return the encoder of a space. Raise if its observations have no fixed size."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _several(space, space.spaces)
    if isinstance(space, spaces.Text):
        lengths = range(space.min_length, min(space.max_length, 64) + 1)  # beyond that there are too many to count
        count = sum(len(space.character_set) ** n for n in lengths)
        return Observations(_text(space), count, np.zeros(0), np.zeros(0))
    if not isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        raise InvalidProblem(
            f"observations of {space} have no fixed size, so they have no features: wrap the environment in "
            "gymnasium.wrappers.TransformObservation"
        )
    low, high = _bounds(space)
    encode = _array(space, low, high)
    whole = np.dtype(space.dtype).kind in "iub" and bool(np.isfinite(low).all() and np.isfinite(high).all())
    return Observations(encode, math.prod(_sizes(low, high)) if whole else None, low, high)


def _bounds(space: ArraySpace | spaces.Discrete) -> tuple[Array, Array]:
    """Return the least and the largest number on each axis of a space, (n,)."""
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape), np.ones(space.shape)
    else:
        sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low, high = np.asarray(space.start), np.asarray(space.start + sizes - 1)
    return np.ravel(low).astype(np.float64), np.ravel(high).astype(np.float64)


def _sizes(low: Array, high: Array) -> tuple[int, ...]:
    """Return how many whole numbers each axis has."""
    return tuple(int(n) for n in (high - low + 1).tolist())


def _foreign(observation: object, space: Space) -> InvalidEpisode:
    return InvalidEpisode(
        f"observation {observation!r} is not in the observation space {space}: return finite observations of its "
        "type and within its bounds, or correct the space"
    )


def _text(space: spaces.Text) -> Encoder:
    def encode(observation: object) -> str:
        if not isinstance(observation, str) or not space.contains(str(observation)):
            raise _foreign(observation, space)
        return str(observation)

    return encode


def _array(space: ArraySpace | spaces.Discrete, low: Array, high: Array) -> Encoder:
    dtype, shape, most = np.dtype(space.dtype), space.shape, sys.float_info.max
    lows, highs = np.maximum(low, -most), np.minimum(high, most)  # so that infinity lies outside
    least, largest, small = lows.tolist(), highs.tolist(), low.size <= SMALL
    is_number = isinstance(space, spaces.Discrete)

    def encode(observation: object) -> State:
        if is_number and type(observation) is int:
            if not least[0] <= observation <= largest[0]:
                raise _foreign(observation, space)
            return observation
        if type(observation) is np.ndarray and observation.dtype == dtype:
            state = observation.copy()  # environments reuse their arrays
        else:
            try:
                given = np.asarray(observation)
                state = given.astype(dtype)
                if given.dtype.kind not in "biuf" or (dtype.kind in "iub" and (state != given).any()):
                    raise ValueError("not of this kind")
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
        return int(state) if is_number else state

    return encode


def _several(space: Space, parts: Mapping[str, Space] | Sequence[Space]) -> Observations:
    """Return the encoder of a Tuple or Dict."""
    names = tuple(parts) if isinstance(parts, Mapping) else ()
    inner = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    found = [observations_of(part) for part in inner]
    encoders = [(one.encode, part.shape or ()) for one, part in zip(found, inner, strict=True)]
    lows, highs = [one.low for one in found], [one.high for one in found]
    views = [one.view or _part_view(part) for one, part in zip(found, inner, strict=True)]

    def encode(observation: object) -> State:
        if names and isinstance(observation, Mapping) and observation.keys() == set(names):
            observation = [observation[name] for name in names]
        if not isinstance(observation, tuple | list) or len(observation) != len(encoders):
            raise _foreign(observation, space)
        states = []
        for (encode_part, shape), one in zip(encoders, observation, strict=True):
            if shape and type(one) in (tuple, list) and len(one) == math.prod(shape):  # as a state has it: flat
                one = np.reshape(one, shape)
            state = encode_part(one)
            states.append(tuple(state.ravel().tolist()) if type(state) is np.ndarray else state)
        return tuple(states)

    def view(state: tuple[State, ...]) -> object:
        seen = [show(part) for show, part in zip(views, state, strict=True)]
        return dict(zip(names, seen, strict=True)) if names else tuple(seen)

    counts, texts = [one.count for one in found], any(not one.low.size for one in found)
    low, high = (np.zeros(0) if texts else np.concatenate(side) for side in (lows, highs))
    count = None if None in counts else math.prod(n for n in counts if n is not None)
    return Observations(encode, count, low, high, view)


def _part_view(space: Space) -> View:
    if isinstance(space, spaces.Discrete | spaces.Text):
        return lambda state: state
    dtype, shape = space.dtype, space.shape
    return lambda state: np.array(state, dtype=dtype).reshape(shape)


def numbered_actions(space: Space) -> tuple[int, Action]:
    """Return the number of actions of a finite space, and a function from the number to the environment's action."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise InvalidProblem(
            f"the action space {space} is not finite: wrap the environment so that its actions are Discrete"
        )
    low, high = _bounds(space)
    sizes = _sizes(low, high)
    count = math.prod(sizes)
    fault = f"the action space {space} has {count} actions, more than {MOST_ACTIONS}"
    require(count <= MOST_ACTIONS, f"{fault}: wrap the environment so that it offers fewer")
    if isinstance(space, spaces.Discrete):
        return count, int(space.start).__add__
    table = (np.stack(np.unravel_index(np.arange(count), sizes), axis=1) + low).astype(space.dtype)
    return count, table.reshape(count, *space.shape).__getitem__

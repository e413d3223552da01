"""Observations of a space as states: which there are, how one is read that somebody says, how many numbers it has.

A class for each kind of space; `observations_of` is the one place that asks which kind it is.
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from operator import le
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.problems.states import Outside, StateReader, is_sealed, read_array, read_number, sealed, unboxed

WHOLE = (int, np.int64)
NUMBERS = frozenset({int, float, bool})
SMALL = 64  # numbers in an array up to which plain comparisons are the faster ones


class Observations:
    """The observations of a space, as states.

    Attributes:
        count: how many there are; None if they cannot be counted.
        kinds: the kind of each number of an observation, in order: "f" for fractions, others for whole ones.
        read: what makes a state of what is said, in plain numbers and lists too; what cannot be one is left, to be
            refused.
        passes: a test that only finite observations pass, and most of them do: what fails it is looked at in full. It
            asks for exact type, shape and bounds, of Gymnasium's own spaces; of other spaces nothing passes.
    """

    count: int | None
    kinds: tuple[str, ...]
    read: StateReader
    passes: Callable[[Any], bool]

    def __init__(self, space: Any) -> None:
        self.space = space

    def asked_at(self, said: Any) -> Any:
        """The state that a policy is asked at, as `read` has it; one of another form is refused, within bounds or not.

        The policy would act at what it is not judged at.
        """
        state = self.read(said)
        if not self.fits(state) and type(state) is not Outside:
            raise self.foreign(state)
        return state

    def foreign(self, state: Any, place: str = "") -> InvalidEpisode:
        """The error of a state that is no observation."""
        return InvalidEpisode(
            f"state {state!r}{place} is not in the observation space {self.space}: give observations as the "
            "environment gives them; their type counts too"
        )

    def fits(self, state: Any) -> bool:
        """Whether a state has the form of an observation, within bounds or not."""
        raise NotImplementedError

    def has(self, state: Any) -> bool:
        """Whether a state, as `read` has it, is an observation."""
        raise NotImplementedError

    def of(self, numbers: Iterator[Any]) -> Any:
        """The observation that has these numbers, in order."""
        raise NotImplementedError


class WholeNumbers(Observations):
    """Those of `Discrete`: a state is an int."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.read = read_whole
        self.count, self.kinds = int(space.n), (space.dtype.kind,)
        self.passes = partial(_is_whole, int(space.start), int(space.start) + self.count)

    def asked_at(self, said: Any) -> Any:
        """The state that a policy is asked at; an int is one."""
        return said if type(said) is int else super().asked_at(said)

    def fits(self, state: Any) -> bool:
        """Whether it is an int."""
        return type(state) is int

    def has(self, state: Any) -> bool:
        """Whether it is such a whole number."""
        return isinstance(state, int | np.integer) and bool(self.space.contains(state))

    def of(self, numbers: Iterator[Any]) -> Any:
        """The next number."""
        return int(next(numbers))


class ArrayObservations(Observations):
    """Those of `Box`, `MultiDiscrete` and `MultiBinary`: a state is a sealed array."""

    def __init__(self, space: Any, low: Any, high: Any, is_bounded: bool = True) -> None:
        super().__init__(space)
        self.is_bounded = is_bounded
        self._dtype, self._shape = space.dtype, space.shape
        self.kinds = (space.dtype.kind,) * math.prod(space.shape)
        self._ends = list(zip(np.ravel(low).tolist(), np.ravel(high).tolist(), strict=True))
        self.read = partial(read_array, space.dtype, space.shape)
        self.passes = _is_nothing
        if len(self.kinds) <= SMALL:
            most = sys.float_info.max
            lows, highs = [max(low, -most) for low, _ in self._ends], [min(high, most) for _, high in self._ends]
            self.passes = partial(_is_array, space.dtype, space.shape, lows, highs)

    @cached_property
    def count(self) -> int | None:  # type: ignore[override]
        """Of whole numbers between bounds the product of how many each can be."""
        if self.space.dtype.kind not in "iu" or not self.is_bounded:
            return None
        return math.prod(high - low + 1 for low, high in self._ends)

    def asked_at(self, said: Any) -> Any:
        """The state that a policy is asked at; a sealed array of this type and shape is one."""
        return said if is_sealed(said) and self.fits(said) else super().asked_at(said)

    def fits(self, state: Any) -> bool:
        """Whether it is an array of this type and shape."""
        return type(state) is np.ndarray and state.dtype == self._dtype and state.shape == self._shape

    def has(self, state: Any) -> bool:
        """Whether it is such an array, of the very type: others would be looked up by other bytes."""
        is_typed = isinstance(state, np.ndarray) and state.dtype == self.space.dtype
        return is_typed and bool(self.space.contains(state))

    def of(self, numbers: Iterator[Any]) -> Any:
        """An array of the next numbers."""
        taken = [next(numbers) for _ in self.kinds]
        return np.array(taken, dtype=self.space.dtype).reshape(self.space.shape)


class ArrayParts(ArrayObservations):
    """Arrays that are parts of a tuple: there a state has their numbers, in order, as a tuple."""

    def __init__(self, space: Any, low: Any, high: Any, is_bounded: bool = True) -> None:
        super().__init__(space, low, high, is_bounded)
        self.read = partial(read_numbers, space.dtype, space.shape)

    def fits(self, state: Any) -> bool:
        """Whether it is a tuple of so many numbers."""
        return type(state) is tuple and len(state) == len(self.kinds) and NUMBERS.issuperset(map(type, state))

    def has(self, state: Any) -> bool:
        """Whether these are the numbers of such an array."""
        is_numbers = isinstance(state, tuple) and all(isinstance(x, int | float) for x in state)
        return is_numbers and len(state) == len(self.kinds) and bool(self.space.contains(self.of(iter(state))))


class Tuples(Observations):
    """Those of `Tuple`: a state is a tuple of the states of its parts."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.parts = [observations_of(part, ArrayParts) for part in space.spaces]
        self.kinds = tuple(kind for part in self.parts for kind in part.kinds)
        self.read = partial(read_parts, tuple(part.read for part in self.parts))

    @cached_property
    def count(self) -> int | None:  # type: ignore[override]
        """The product of how many each part has."""
        counts = [part.count for part in self.parts if part.count is not None]
        return math.prod(counts) if len(counts) == len(self.parts) else None

    def fits(self, state: Any) -> bool:
        """Whether it is a tuple, and each part fits."""
        is_tuple = type(state) is tuple and len(state) == len(self.parts)
        return is_tuple and all(part.fits(one) for part, one in zip(self.parts, state, strict=True))

    def has(self, state: Any) -> bool:
        """Whether it is a tuple, and each part has its own."""
        is_tuple = isinstance(state, tuple) and len(state) == len(self.parts)
        return is_tuple and all(part.has(one) for part, one in zip(self.parts, state, strict=True))

    def of(self, numbers: Iterator[Any]) -> Any:
        """A tuple of what each part makes of the next numbers."""
        return tuple(part.of(numbers) for part in self.parts)


def observations_of(space: Any, arrays: type[ArrayObservations] = ArrayObservations) -> Observations:
    """The observations of a space; an error if they are neither arrays, numbers nor tuples of these."""
    import gymnasium.spaces as spaces

    made: Observations
    if isinstance(space, spaces.Discrete):
        made = WholeNumbers(space)
    elif isinstance(space, spaces.Box):
        made = arrays(space, space.low, space.high, space.is_bounded())
    elif isinstance(space, spaces.MultiDiscrete):
        made = arrays(space, space.start, space.start + space.nvec - 1)
    elif isinstance(space, spaces.MultiBinary):
        made = arrays(space, np.zeros(space.shape, dtype=int), np.ones(space.shape, dtype=int))
    elif isinstance(space, spaces.Tuple):
        made = Tuples(space)
    else:
        raise InvalidProblem(
            f"observations of {space} cannot be told apart or turned into features: wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, or in a TransformObservation of yours"
        )
    if type(space) not in (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary):
        made.passes = _is_nothing
    return made


def state_of(observation: Any) -> Any:
    """An observation as a state: whole numbers as int, tuples as such, arrays copied and sealed."""
    if isinstance(observation, np.ndarray):
        return sealed(observation)
    if isinstance(observation, np.generic):
        return observation.item()
    if isinstance(observation, tuple):
        return tuple(tuple(p.ravel().tolist()) if isinstance(p, np.ndarray) else state_of(p) for p in observation)
    return observation


def read_whole(said: Any) -> Any:
    """A whole number of any type, or an array or a list of one, as an int; all else as it is."""
    if type(said) is int:
        return said
    return int(said) if isinstance(said, int) else read_number(int, said)


def read_numbers(dtype: Any, shape: tuple[int, ...], said: Any) -> Any:
    """The numbers of an array of this type and shape, in order, as a tuple."""
    made = read_array(dtype, shape, said)
    is_array = isinstance(made, np.ndarray) and made.shape == shape
    return tuple(made.ravel().tolist()) if is_array else said


def read_parts(readers: tuple[StateReader, ...], said: Any) -> Any:
    """A tuple of what each of the readers reads, of an array row by row."""
    said = unboxed(said)
    said = list(said) if isinstance(said, np.ndarray) and said.ndim else said
    if not isinstance(said, tuple | list) or len(said) != len(readers):
        return said
    return tuple(read(one) for read, one in zip(readers, said, strict=True))


def _is_whole(least: int, beyond: int, value: Any) -> bool:
    return type(value) in WHOLE and least <= value < beyond


def _is_array(dtype: Any, shape: tuple[int, ...], lows: list[float], highs: list[float], value: Any) -> bool:
    if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
        return False
    numbers = (value if value.ndim == 1 else value.ravel()).tolist()
    return all(map(le, lows, numbers)) and all(map(le, numbers, highs))


def _is_nothing(value: Any) -> bool:
    return False

"""States as tasks have them: two that no environment has, how others are read, sealed, compared and looked up."""

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Set
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.storage.json_values import register

PLAIN = {
    int: "int",
    float: "float",
    str: "str",
    tuple: "tuple",
    Enum: "value",
    Iterator: "tuple",
}  # and their subclasses
FIXED = frozenset({int, float, bool, str, type(None)})  # types whose values nobody changes, and are read as they are

NO_LISTS = (tuple, str, bytes, Mapping, Set)  # collections that are no lists of a state's parts
NUMERAL = re.compile(r"\s*[+-]?[0-9]*\.?[0-9]+\s*")
SAME_FORM = "give states in the form in which they are reported; their type counts too"
StateReader = Callable[[Any], Any]  # what is said ↦ the state; what cannot be one is left as it is, to be refused


class Outside(Enum):
    """Where an episode is while its environment is not running. All actions are alike there, and nobody moves it.

    START is a dummy first step whose transition is the distribution of the start. ENDED is
    absorbing: an episode that ends early stays there up to the horizon.
    """

    START = "start"
    ENDED = "ended"


START, ENDED = Outside.START, Outside.ENDED
register("outside", Outside, lambda state: state.value, Outside)


def key(state: Any) -> Hashable:
    """What a state is looked up by: itself, or for an array its type, shape and bytes."""
    if isinstance(state, np.ndarray):
        if state.dtype.hasobject:
            raise InvalidProblem(f"state {state!r} is an array of objects, whose bytes are addresses: use a tuple")
        return (state.dtype.str, state.shape, state.tobytes())
    try:
        hash(state)
    except TypeError:
        raise InvalidProblem(
            f"state {state!r} is neither hashable nor a numpy array: use a tuple or an array"
        ) from None
    return state


def is_same_state(one: Any, other: Any) -> bool:
    """Whether two states, as a task reads them, are the same to the last bit and of one type: policies act by them.

    A level of 0.3 parts 0.3 from 0.7 − 0.4. Arrays are compared as they are looked up, by their bytes.
    """
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.dtype != object:
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, tuple | list) and type(one) is type(other):
        return len(one) == len(other) and all(map(is_same_state, one, other))
    ours, theirs = (state.item() if isinstance(state, np.generic) else state for state in (one, other))
    return type(ours) is type(theirs) and bool(np.all(ours == theirs))


def is_finite(state: Any) -> bool:
    """Whether a state, and every part of one that is a tuple, is without NaN and infinity."""
    if isinstance(state, tuple):
        return all(is_finite(part) for part in state)
    values = np.asarray(state)
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def is_sealed(state: Any) -> bool:
    """Whether it is an array that nobody can write to, so that it stands for the same state as long as it lives."""
    return type(state) is np.ndarray and state.flags.owndata and not state.flags.writeable


def sealed(array: Any) -> Any:
    """A copy of an array that nobody can write to."""
    state = np.array(array)  # not .copy(), which keeps a subclass
    state.setflags(write=False)
    return state


def reader_like(first: Any) -> StateReader:
    """What reads states where no space says what they are: in every part of the type of the first one.

    Whole numbers are fractions where it has one; an array is a tuple, or one number, where it is.
    """
    first = plain_state(first)
    if isinstance(first, np.ndarray):
        return partial(read_array, first.dtype, first.shape)
    if isinstance(first, int | float):
        return partial(_number_or_refuse, type(first))
    if isinstance(first, tuple):
        types = tuple(map(type, first))
        return partial(_read_tuple, types if FIXED.issuperset(types) else None, tuple(map(reader_like, first)))
    return plain_state


def asked_like(first: Any) -> StateReader:
    """What makes the state that a policy is asked at, by `reader_like`: what cannot be one is refused at once."""
    return partial(_read_or_refuse, type(plain_state(first)), reader_like(first))


def _read_or_refuse(kind: type, read: StateReader, said: Any) -> Any:
    state = read(said)
    if type(state) is Outside or type(state) in FIXED:
        return state
    if type(state) is not kind and (kind is np.ndarray or type(state) not in (tuple, np.ndarray)):
        raise InvalidEpisode(
            f"state {said!r} is a {type(state).__name__}, and the first a {kind.__name__}: {SAME_FORM}"
        )
    key(state)
    return state


def plain_state(said: Any) -> Any:
    """What is said in types of Python's, part by part, since np.uint8(3) − 5 is 254; arrays are copied and sealed.

    A class of its own is refused: a journal does not keep it, and whoever asks for it would act as in another state.
    """
    if type(said) in FIXED:
        return said
    said = unboxed(said)
    if isinstance(said, np.ndarray):
        return said if is_sealed(said) else sealed(said)
    if type(said) is Outside:
        return said
    for kind in PLAIN:
        if isinstance(said, kind) and type(said) is not kind:
            raise InvalidProblem(
                f"the state {said!r} is a {type(said).__name__}: give a plain {PLAIN[kind]}, here and wherever "
                "states are compared (of an Enum its .value, of a NamedTuple tuple(…))"
            )
    return tuple(map(plain_state, said)) if type(said) is tuple else said


def unboxed(said: Any) -> Any:
    """Numbers and records of numpy's as values of Python's, and what has `__array__`, a Series, say, as an array."""
    if isinstance(said, np.generic):
        return float(said) if isinstance(said, np.floating) else said.item()
    if np.ma.is_masked(said):
        raise InvalidEpisode(f"state {said!r} is masked: give what stands for it, as .filled(…) does; {SAME_FORM}")
    return np.asarray(said) if hasattr(said, "__array__") and not isinstance(said, np.ndarray) else said


def read_array(dtype: Any, shape: tuple[int, ...], said: Any) -> Any:
    """An array of this type and shape, sealed, of what is said: lists, tuples, numbers, arrays of other types, shapes.

    What can be written to is copied: whoever is asked at it, and normalises it in place, would change where others are
    asked.
    """
    if type(said) is np.ndarray and said.dtype == dtype and said.shape == shape:
        flags = said.flags
        return said if flags.owndata and not flags.writeable else sealed(said)
    if type(said) is Outside:
        return said
    made = cast(dtype, said)
    if made is None:
        return sealed(said) if isinstance(said, np.ndarray) else said
    if made.size != math.prod(shape):
        return sealed(made)
    if made.ndim > 1 and _without_ones(made.shape) != _without_ones(shape):
        raise InvalidEpisode(f"state {said!r} has shape {made.shape}, and states have {shape}: {SAME_FORM}")
    return sealed(made.reshape(shape))


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    """A shape without axes of one: the numbers of arrays that agree in it are in the same order."""
    return [n for n in shape if n != 1]


def cast(dtype: Any, said: Any) -> Any:
    """What is said as an array of this type; None where it is none, or whole numbers would lose something."""
    said = unboxed(said)
    try:
        given = np.asarray(said)
    except ValueError:  # lists of several lengths
        return None
    if given.dtype.hasobject and all(isinstance(one, Real | Decimal) for one in given.ravel().tolist()):
        numbers = [one if isinstance(one, int) else float(one) for one in given.ravel().tolist()]
        given = np.array(numbers).reshape(given.shape)
        given = given.astype(np.float64) if given.dtype.hasobject else given  # whole numbers beyond 64 bits
    if given.dtype.kind not in "biuf":
        return None
    made = np.array(given, dtype=dtype)
    return made if dtype.kind == "f" or np.array_equal(made, given) else None


def read_number(kind: type, said: Any) -> Any:
    """A number of this type, of a number that is equal to it, or of an array or a list of one; all else as it is."""
    if type(said) is kind:
        return said
    said = unboxed(said)
    said = said.tolist() if isinstance(said, np.ndarray) and said.size == 1 else said
    if type(said) in (list, tuple) and len(said) == 1:
        return read_number(kind, said[0])
    said = float(said) if isinstance(said, Decimal | Fraction) else plain_state(said)
    try:
        return kind(said) if type(said) in (int, float, bool) and kind(said) == said else said
    except (ValueError, OverflowError):  # NaN, infinity, and what is larger than any fraction
        return said


def _number_or_refuse(kind: type, said: Any) -> Any:
    """The number; another state as it is, but for a number that is said as a text."""
    state = read_number(kind, said)
    if type(state) is str and NUMERAL.fullmatch(state):
        raise InvalidEpisode(f"state {said!r} is a text, and the first one has a number there: {SAME_FORM}")
    return state


def _read_tuple(types: tuple[type, ...] | None, readers: tuple[StateReader, ...], said: Any) -> Any:
    """A tuple of what each of the readers reads; as it is where all parts are of these types, read as they are."""
    if type(said) is tuple and tuple(map(type, said)) == types:
        return said
    said = unboxed(said)
    said = said.tolist() if isinstance(said, np.ndarray) else said
    said = tuple(said) if isinstance(said, Collection) and not isinstance(said, NO_LISTS) else said
    said = (said,) if len(readers) == 1 and isinstance(said, int | float) else said
    if type(said) is not tuple or len(said) != len(readers):
        return plain_state(said)
    return tuple(read(one) for read, one in zip(readers, said, strict=True))

"""States as tasks have them: two that no environment has, how others are read, sealed, compared and looked up."""

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Set
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from numbers import Real
from operator import eq
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

WHOLE, FRACTION = np.dtype(np.int64), np.dtype(np.float64)
NO_LISTS = (tuple, str, bytes, Mapping, Set)  # collections that are no lists of a state's parts
NUMBERS = frozenset({int, float, bool})
WORD = re.compile(r"(?!(true|false|nan|inf|infinity|none|null)$)[^\W\d][\w -]*", re.IGNORECASE)  # nothing that was data
SAME_FORM = "give states in the form in which they are reported; their type counts too"
StateReader = Callable[[Any], Any]  # what is said ↦ the state; what cannot be one is left as it is, to be refused
Form = Callable[[Any], bool]  # a test of states, as they are read


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
        return partial(read_number, type(first))
    if isinstance(first, str):
        return _read_text
    if isinstance(first, tuple):
        types = tuple(map(type, first))
        return partial(_read_tuple, types if FIXED.issuperset(types) else None, tuple(map(reader_like, first)))
    return plain_state


def asked_like(first: Any) -> StateReader:
    """What makes the state that a policy is asked at, by `reader_like`; what has not the form of the first is refused.

    The policy would act at what it is not judged at.
    """
    first = plain_state(first)
    key(first)  # which refuses what cannot be looked up
    return partial(_read_or_refuse, first, form_like(first), reader_like(first))


def _read_or_refuse(first: Any, has_form: Form, read: StateReader, said: Any) -> Any:
    state = read(said)
    if not has_form(state) and type(state) is not Outside and not is_mark(state):
        raise InvalidEpisode(f"state {said!r} has not the form of the first, {first!r}: {SAME_FORM}")
    return state


def form_like(first: Any) -> Form:
    """What states pass that are numbers, texts, tuples or arrays as the first one is, in every part.

    A first state that is a mark, or empty, says no form: all but objects of classes of their own pass.
    """
    first = plain_state(first)
    if type(first) is Outside or is_mark(first) or (type(first) is tuple and not first):
        return _is_plain
    if type(first) in NUMBERS:
        return _is_number
    if isinstance(first, np.ndarray):
        return partial(_is_array, "biuf" if first.dtype.kind in "biuf" else first.dtype.kind)
    if type(first) is tuple:
        types = tuple(map(type, first))
        return partial(_is_tuple, types if FIXED.issuperset(types) else None, tuple(map(form_like, first)))
    return partial(_is_of, type(first))


def is_mark(state: Any) -> bool:
    """Whether it stands for an end, or for what is missing, beside states of any form: None, or a word, as "done"."""
    return state is None or (type(state) is str and WORD.fullmatch(state) is not None)


def _is_plain(state: Any) -> bool:
    if type(state) is tuple:
        return all(map(_is_plain, state))
    return type(state) in FIXED or (type(state) is np.ndarray and not state.dtype.hasobject)


def _is_number(state: Any) -> bool:
    return type(state) in NUMBERS and state == state  # NaN is equal to nothing, and no state is found by it


def _is_array(kinds: str, state: Any) -> bool:
    return type(state) is np.ndarray and state.dtype.kind in kinds


def _is_of(kind: type, state: Any) -> bool:
    return type(state) is kind


def _is_tuple(types: tuple[type, ...] | None, forms: tuple[Form, ...], state: Any) -> bool:
    """Whether each part has the form of its place; of a tuple of another length, that of any place.

    Parts of the very types of the first have it, but for NaN.
    """
    if type(state) is not tuple:
        return False
    if types is not None and tuple(map(type, state)) == types:
        return float not in types or all(map(eq, state, state))
    if len(state) == len(forms):
        return all(form(part) or is_mark(part) for form, part in zip(forms, state, strict=True))
    return all(is_mark(part) or any(form(part) for form in forms) for part in state)


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

    Where whole numbers of this type would lose something, of 64 bits, or fractions.

    What can be written to is copied: whoever is asked at it, and normalises it in place, would change where others are
    asked.
    """
    if type(said) is np.ndarray and said.dtype == dtype and said.shape == shape:
        flags = said.flags
        return said if flags.owndata and not flags.writeable else sealed(said)
    if type(said) is Outside:
        return said
    made = next((made for kind in (dtype, WHOLE, FRACTION) if (made := cast(kind, said)) is not None), None)
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


def _read_text(said: Any) -> Any:
    """A text, or that of a row or an array of one; all else as it is."""
    state = plain_state(said)
    row = state.ravel().tolist() if isinstance(state, np.ndarray) and state.dtype.kind == "U" else state
    return row[0] if type(row) in (tuple, list) and len(row) == 1 and type(row[0]) is str else state


def _read_tuple(types: tuple[type, ...] | None, readers: tuple[StateReader, ...], said: Any) -> Any:
    """A tuple of what each of the readers reads; as it is where all parts are of these types, read as they are."""
    if type(said) is tuple and tuple(map(type, said)) == types:
        return said
    said = unboxed(said)
    said = said.tolist() if isinstance(said, np.ndarray) else said
    said = tuple(said) if isinstance(said, Collection) and not isinstance(said, NO_LISTS) else said
    one = int | float | str if readers == (_read_text,) else int | float
    said = (said,) if len(readers) == 1 and isinstance(said, one) else said
    if type(said) is not tuple or len(said) != len(readers):
        return plain_state(said)
    return tuple(read(one) for read, one in zip(readers, said, strict=True))

"""Border checks: each returns its input as float64, unchanged, or says where it is wrong and what to do."""

import inspect
import math
import operator
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.types import Array, IntArray

TOLERANCE = 1e-9  # what is within this is accepted as given; nothing is ever renormalised


def as_finite(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """`value` as a float64 array of `shape` (None: any length) without NaN or infinity."""
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise InvalidProblem(f"{name} must be an array of numbers: {error}") from error
    if given.dtype.kind not in "biuf" or isinstance(value, np.ma.MaskedArray):
        kind = "masked" if isinstance(value, np.ma.MaskedArray) else given.dtype
        raise InvalidProblem(f"{name} must be an array of real numbers, got {kind}: convert it first")
    array = np.array(given, dtype=np.float64, order="C")
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
        raise InvalidProblem(f"{name} must have shape {wanted}, got {array.shape}: give it that shape")
    _refuse_where(~np.isfinite(array), array, name, " is {}: give finite numbers only")
    array.setflags(write=False)
    return array


def as_unit_range(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """`value` with every entry in [0, 1]."""
    array = as_finite(name, value, shape)
    outside = (array < -TOLERANCE) | (array > 1 + TOLERANCE)
    _refuse_where(outside, array, name, " = {:.12g} lies outside [0, 1]: rescale it, and the threshold with it")
    return array


def as_distributions(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    """`value` whose last axis is a probability distribution."""
    array = as_finite(name, value, shape)
    _refuse_where(array < -TOLERANCE, array, name, " = {:.12g} is negative: it must be a probability")
    total = array.sum(axis=-1)
    remedy = f"not 1 (tolerance {TOLERANCE:g}): normalise it in float64 before you pass it"
    _refuse_where(np.abs(total - 1) > TOLERANCE, total, name, f" sums to {{:.12g}}, {remedy}")
    return array


def as_features(value: Any, num_states: int, num_actions: int) -> Array:
    """Features φ (S, A, d) with ‖φ(s, a)‖₂ ≤ 1."""
    phi = as_finite("phi", value, (num_states, num_actions, None))
    if phi.shape[2] == 0:
        raise InvalidProblem("phi has dimension 0: give at least one feature, or None for one-hot features")
    within_unit_norm("phi", phi)
    return phi


def within_unit_norm(name: str, phi: Array, tolerance: float = TOLERANCE) -> None:
    """Refuse features (…, d) of norm above 1."""
    norm = np.linalg.norm(phi, axis=-1)
    if (norm > 1 + tolerance).any():
        remedy = f"divide all by the largest norm there is, here {norm.max():.12g}, and multiply norm_bound by it"
        _refuse_where(norm > 1 + tolerance, norm, name, f" has norm {{:.12g}} > 1: {remedy}")


def as_listed_state(name: str, value: Any, num_states: int) -> int:
    """A state as an int in [0, S)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < num_states:
        raise InvalidProblem(f"{name} must be an integer in [0, {num_states}), got {value!r}")
    return int(value)


def as_number(name: str, value: Any) -> float:
    """A finite real number, or an array of one; a masked one is none."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not isinstance(value, np.ma.MaskedArray):
        value = value.item()
    if not is_number(value):
        raise InvalidProblem(f"{name} must be a number, got {value!r}: give a real number")
    if not math.isfinite(value):
        raise InvalidProblem(f"{name} must be finite, got {value}: give a finite number")
    return float(value)


def as_slack(value: Any) -> float | None:
    """A slack > 0, or None where it is not known."""
    if value is None:
        return None
    slack = as_number("slack", value)
    if slack <= 0:
        raise InvalidProblem(f"slack must be > 0, got {slack}: give what the incumbent has above the threshold")
    return slack


def as_least_total(value: Any, threshold: float) -> float:
    """What every episode's total utility has at least: a number below the threshold, else there is nothing to keep."""
    least = as_number("least_total", value)
    if least >= threshold and least != 0:
        raise InvalidProblem(
            f"least_total {least:.12g} is not below the threshold {threshold:.12g}, so that every policy is safe: give "
            "what an episode has at the very worst, 0 where nobody knows"
        )
    return least


def as_norm_bound(value: Any, dim: int) -> float:
    """B > 0, by default the paper's √d; inf where P is known not to be linear in the features."""
    if value is None or value == math.inf:
        return math.sqrt(dim) if value is None else math.inf
    bound = as_number("norm_bound", value)
    if bound <= 0:
        raise InvalidProblem(
            f"norm_bound must be > 0, got {bound}: give B with ‖Σ μ_h(s') g(s')‖ <= B max g for every g >= 0, or leave "
            "it out for √d"
        )
    return bound


def as_count(name: str, value: Any) -> int:
    """A whole number ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidProblem(f"{name} must be a whole number >= 1, got {value!r}: give one")
    return int(value)


def as_flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidProblem(f"{name} must be True or False, got {value!r}: give one of them")
    return bool(value)


def as_whole_numbers(name: str, value: Any, length: int, below: int) -> IntArray:
    """Entries of an episode: `length` whole numbers in [0, below), or an InvalidEpisode."""
    array = as_listed(name, value, length)
    if array.dtype.kind not in "iu":
        raise InvalidEpisode(f"{name} must be whole numbers, got {array.dtype}")
    low, high = array.min(), array.max()
    if low < 0 or high >= below:
        raise InvalidEpisode(f"{name} must be in [0, {below}), got values from {low} to {high}")
    return array.astype(np.int64)


def as_listed(name: str, value: Any, length: int, width: int | None = None) -> NDArray[Any]:
    """Entries of an episode: an array (length,) of whatever kind, or (length, width), or an InvalidEpisode."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidEpisode(f"{name} must have length {length}: {error}") from error
    if width is not None and array.shape != (length, width):
        raise InvalidEpisode(
            f"{name} must have shape {(length, width)}, a row a step and a column a constraint, got {array.shape}"
        )
    if width is None and array.shape != (length,):
        raise InvalidEpisode(f"{name} must have length {length}, got shape {array.shape}")
    return array


def as_probability(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must be a number in (0, 1), e.g. 0.05, got {value!r}")
    return float(value)


def as_whole(name: str, value: Any, least: int) -> int:
    """A setting that is a whole number ≥ `least`; as_count is the same for what belongs to a problem."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def as_scale(name: str, value: Any, *, positive: bool = False) -> float:
    """A setting that is a finite number ≥ 0, or > 0."""
    if not is_number(value) or not np.isfinite(value) or value < 0 or (positive and value == 0):
        raise ValueError(f"{name} must be a finite number {'> 0' if positive else '>= 0'}, got {value!r}")
    return float(value)


def is_number(value: Any) -> bool:
    """Whether `value` is a real number that a float can hold; True and False are none."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _refuse_where(mask: Any, values: Array, name: str, fault: str) -> None:
    """Refuse the first value where `mask` is True, at the place [h, s, a]; `fault` has braces for the value."""
    if np.count_nonzero(mask):  # of few entries in a fifth of the time of .any()
        place = [int(i) for i in np.argwhere(mask)[0]]
        raise InvalidProblem(f"{name}{place or ''}{fault.format(values[tuple(place)])}")


def require_takes(name: str, function: Any, example: str, *given: Any) -> None:
    """Refuse a function that cannot be called with what it will be given; `example` shows one that can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # nobody knows it, as of some that are built in
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise InvalidProblem(
            f"{name} is called as {example}, and takes {signature} ({error}): give it that form"
        ) from None


def as_index(name: str, value: Any, least: int = 0) -> int:
    """What a report refers to by its number, as a plain number ≥ `least`, or an InvalidEpisode."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InvalidEpisode(f"{name} must be a whole number, got {value!r}") from error
    if number < least:
        raise InvalidEpisode(f"{name} must be at least {least}, got {number}")
    return number


def as_reason(value: Any) -> str:
    """Words: nobody halts an agent, or lets it go on, without saying why."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"give a reason in words, got {value!r}")
    return value

"""Checks at the border: each function returns its input in canonical form, or names the value and the remedy."""

import math
from contextlib import suppress
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.types import Array, IntArray

TOLERANCE = 1e-9  # rounding that is accepted in inputs; inputs are never renormalised


def require(holds: object, fault: str, error: type[Exception] = InvalidProblem) -> None:
    """Raise `error` unless a condition holds. The message is built in any case, so use it in constructors only."""
    if not holds:
        raise error(fault)


def as_array(name: str, value: object, shape: tuple[int | None, ...]) -> Array:
    """Return `value` as a read-only float64 array of `shape` (None: any length) with finite entries."""
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise InvalidProblem(f"{name} is not an array of numbers ({error}): give a rectangular array") from error
    if given.dtype.kind not in "biuf" or isinstance(value, np.ma.MaskedArray):
        raise InvalidProblem(f"{name} must be an array of real numbers, got {given.dtype}: convert it first")
    if given.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, given.shape, strict=True)):
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
        raise InvalidProblem(f"{name} must have shape {wanted}, got {given.shape}: reshape it")
    own = distinct_steps(given).astype(np.float64)
    _refuse_where(~np.isfinite(own), own, name, " is {}: give finite numbers only")
    array = np.broadcast_to(own, given.shape) if own.shape != given.shape else own
    array.setflags(write=False)
    return array


def distinct_steps(array: Array) -> Array:
    """Return an array (H, …) without repetitions: (1, …) if all steps share the same memory."""
    return array[:1] if array.ndim > 1 and array.strides[0] == 0 else array


def as_unit_range(name: str, value: object, shape: tuple[int | None, ...]) -> Array:
    """Return `value` as an array with every entry in [0, 1]."""
    array = as_array(name, value, shape)
    own = distinct_steps(array)
    outside = (own < -TOLERANCE) | (own > 1 + TOLERANCE)
    _refuse_where(outside, own, name, " = {:.12g} lies outside [0, 1]: rescale it, and the threshold with it")
    return array


def as_distributions(name: str, value: object, shape: tuple[int | None, ...]) -> Array:
    """Return `value` as an array whose last axis is a probability distribution."""
    array = as_array(name, value, shape)
    own = distinct_steps(array)
    _refuse_where(own < -TOLERANCE, own, name, " = {:.12g} is negative: give probabilities")
    total = own.sum(axis=-1)
    off = np.abs(total - 1) > TOLERANCE
    _refuse_where(off, total, name, " sums to {:.12g}, not to 1: normalise it in float64 first")
    return array


def check_norm(name: str, phi: Array) -> None:
    """Raise if a feature vector (last axis) has dimension 0 or a norm above 1."""
    require(phi.shape[-1], f"{name} has dimension 0: give at least one feature, or None for one-hot features")
    norm = np.linalg.norm(phi, axis=-1)
    if norm.size and norm.max() > 1 + TOLERANCE:
        remedy = f"divide all by the largest norm, {norm.max():.12g}, and multiply norm_bound by it"
        _refuse_where(norm > 1 + TOLERANCE, norm, name, f" has norm {{:.12g}} > 1: {remedy}")


def as_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf, strict: bool = False
) -> float:
    """Return a finite real number in [least, most] as a float; in (least, most) if `strict`."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not isinstance(value, np.ma.MaskedArray):
        value = value.item()
    inside = is_number(value) and math.isfinite(value) and least <= value <= most
    if not is_number(value) or not inside or (strict and value in (least, most)):
        if math.isfinite(most):
            wanted = "a number in {}{:g}, {:g}{}".format("[("[strict], least, most, "])"[strict])
        else:
            wanted = "a finite number" + ("" if math.isinf(least) else f" {'>' if strict else '>='} {least:g}")
        raise InvalidProblem(f"{name} must be {wanted}, got {value!r}")
    return float(value)


def as_count(name: str, value: object, least: int = 1, below: float = math.inf) -> int:
    """Return a whole number of at least `least` and less than `below`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < below:
        wanted = f">= {least}" if math.isinf(below) else f"in [{least}, {below})"
        raise InvalidProblem(f"{name} must be a whole number {wanted}, got {value!r}")
    return int(value)


def as_probability(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    return as_number(name, value, 0, 1, strict=True)


def as_scale(name: str, value: object, *, positive: bool = False) -> float:
    """Return a finite number >= 0, or > 0."""
    return as_number(name, value, 0, strict=positive)


def as_indices(name: str, value: object, length: int, below: int) -> IntArray:
    """Return `length` whole numbers in [0, below) from an episode."""
    with suppress(ValueError):  # by NumPy, of a ragged list
        array = np.asarray(value)
        if array.shape == (length,) and array.dtype.kind in "iu" and array.min() >= 0 and array.max() < below:
            return array.astype(np.int64)
    raise InvalidEpisode(f"{name} must have length {length} and hold whole numbers in [0, {below}), got {value!r}")


def as_reason(value: object) -> str:
    """Return a non-empty text, because every decision of a person must have a reason."""
    require(isinstance(value, str) and value.strip(), f"reason must be a non-empty text, got {value!r}: say why")
    return str(value)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _refuse_where(mask: NDArray[np.bool_], values: Array, name: str, fault: str) -> None:
    """Raise for the first value where `mask` is True, with its index; `fault` has braces for the value."""
    if np.count_nonzero(mask):
        place = [int(i) for i in np.argwhere(mask)[0]]
        raise InvalidProblem(f"{name}{place or ''}{fault.format(values[tuple(place)])}")

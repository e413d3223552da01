"""Checks at the border: each function returns its input in canonical form, or names the value and the remedy."""

import math
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.types import Array, IntArray

TOLERANCE = 1e-9  # rounding that is accepted in inputs; inputs are never renormalised


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
    norm = np.linalg.norm(phi, axis=-1)
    if phi.shape[-1] == 0:
        raise InvalidProblem(f"{name} has dimension 0: give at least one feature, or None for one-hot features")
    if norm.size and norm.max() > 1 + TOLERANCE:
        remedy = f"divide all by the largest norm, {norm.max():.12g}, and multiply norm_bound by it"
        _refuse_where(norm > 1 + TOLERANCE, norm, name, f" has norm {{:.12g}} > 1: {remedy}")


def as_number(name: str, value: object) -> float:
    """Return a finite real number as a float."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not isinstance(value, np.ma.MaskedArray):
        value = value.item()
    if not is_number(value) or not math.isfinite(value):
        raise InvalidProblem(f"{name} must be a finite number, got {value!r}: give a real number")
    return float(value)


def as_slack(value: object) -> float | None:
    """Return a slack > 0, or None where it is unknown."""
    if value is None:
        return None
    slack = as_number("slack", value)
    if slack <= 0:
        raise InvalidProblem(f"slack must be > 0, got {slack}: give how far the incumbent exceeds the threshold")
    return slack


def as_count(name: str, value: object, least: int = 1, below: float = math.inf) -> int:
    """Return a whole number of at least `least` and less than `below`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < below:
        wanted = f">= {least}" if math.isinf(below) else f"in [{least}, {below})"
        raise InvalidProblem(f"{name} must be a whole number {wanted}, got {value!r}")
    return int(value)


def as_probability(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise InvalidProblem(f"{name} must be a number in (0, 1), e.g. 0.05, got {value!r}")
    return float(value)


def as_scale(name: str, value: object, *, positive: bool = False) -> float:
    """Return a finite number >= 0, or > 0."""
    if not is_number(value) or not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise InvalidProblem(f"{name} must be a finite number {'> 0' if positive else '>= 0'}, got {value!r}")
    return float(value)


def as_indices(name: str, value: object, length: int, below: int) -> IntArray:
    """Return `length` whole numbers in [0, below) from an episode."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidEpisode(f"{name} must have length {length}: {error}") from error
    if array.shape != (length,):
        raise InvalidEpisode(f"{name} must have length {length}, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise InvalidEpisode(f"{name} must be whole numbers, got {array.dtype}")
    if array.min() < 0 or array.max() >= below:
        raise InvalidEpisode(f"{name} must be in [0, {below}), got values from {array.min()} to {array.max()}")
    return array.astype(np.int64)


def as_reason(value: object) -> str:
    """Return a non-empty text: every decision by a person has a stated reason."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"reason must be a non-empty text, got {value!r}: say why")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _refuse_where(mask: NDArray[np.bool_], values: Array, name: str, fault: str) -> None:
    """Raise for the first value where `mask` is True, with its index; `fault` has braces for the value."""
    if np.count_nonzero(mask):
        place = [int(i) for i in np.argwhere(mask)[0]]
        raise InvalidProblem(f"{name}{place or ''}{fault.format(values[tuple(place)])}")

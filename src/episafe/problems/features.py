"""Feature maps ψ of an observation, for problems whose states cannot be listed; all of norm at most 1.

With A actions the features of a state and an action are φ(s, a) = e_a ⊗ ψ(s), in dimension A·dim.
"""

import math
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from episafe.core.checks import as_array, as_count, require
from episafe.core.errors import InvalidProblem
from episafe.core.task import Features, FunctionFeatures, OneHot
from episafe.core.types import Array, View

__all__ = ["Cells", "Fourier", "OneHot"]


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds that scale observations to [0, 1]^n. Observations outside count as the nearest point inside."""

    low: Any
    high: Any
    axes: list[tuple[float, float]] = field(init=False, repr=False)  # low and width of each

    def __post_init__(self) -> None:
        low = as_array("low", self.low, (None,))
        high = as_array("high", self.high, (len(low),))
        require((low < high).all(), f"low must be below high on every axis, got {low} and {high}")
        self.__dict__["axes"] = list(zip(low.tolist(), (high - low).tolist(), strict=True))
        for setting in fields(self):
            if setting.type is int:
                as_count(setting.name, vars(self)[setting.name])

    def unit(self, observation: object) -> list[float]:
        """Return the observation in [0, 1]^n, as plain numbers: they are faster than NumPy's for a few axes."""
        x, axes = observation if isinstance(observation, np.ndarray) else flat(observation), self.axes
        numbers = (x if x.ndim == 1 else x.ravel()).tolist()
        scaled = [(y - low) / width for y, (low, width) in zip(numbers, axes, strict=False)]
        found = [z if 0.0 <= z <= 1.0 else min(max(z, 0.0), 1.0) for z in scaled]
        if len(numbers) != len(axes) or math.isnan(sum(found)):
            raise InvalidProblem(f"an observation must be {len(axes)} finite numbers, got {observation!r}")
        return found


@dataclass(frozen=True, eq=False)
class Cells(Box):
    """A grid with `bins` cells per axis, as tuples: `OneHot(cells, cells.size)` groups observations by cell."""

    bins: int = 8

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return int(self.bins ** len(self.axes))

    def __call__(self, observation: object) -> tuple[int, ...]:
        """Return the cell of an observation."""
        return tuple([min(int(x * self.bins), self.bins - 1) for x in self.unit(observation)])


@dataclass(frozen=True, eq=False)
class Fourier(Box):
    """ψ_c(x) = cos(π c·x)/√dim for c ∈ {0..order}^n, x in the unit cube: norm at most 1, at x = 0."""

    order: int = 3

    @property
    def dim(self) -> int:
        """Return (order + 1)^n."""
        return int((self.order + 1) ** len(self.axes))

    def __call__(self, observation: object) -> Array:
        """Return ψ (dim,)."""
        found = np.cos(np.pi * _exponents(self.order, len(self.axes)) @ np.array(self.unit(observation)))
        return found / math.sqrt(self.dim)


def as_features(given: object, first: object, num_actions: int, count: int | None, num_outside: int = 0) -> Features:
    """Return features of states that are not listed.

    Args:
        given: `OneHot`, or a function of a state: ψ (k,), which becomes φ(s, a) = e_a ⊗ ψ(s), or φ(s, ·) (A, d).
        first: a state to try the function on.
        num_actions: A.
        count: how many states there are; None if they cannot be counted.
        num_outside: how many of the states START and ENDED the task has.
    """
    if isinstance(given, OneHot):
        size = given.size or (count if given.cell is None else None)
        if size is None:
            raise InvalidProblem(
                "one-hot features need countable observations: use Fourier, or OneHot(cells, cells.size) with Cells"
            )
        return OneHot(given.cell, size + num_outside)
    if not callable(given) or isinstance(given, type):
        raise InvalidProblem(f"features must be OneHot() or a function of an observation, got {given!r}: give one")
    shape, A = np.shape(given(first)), num_actions
    fits = len(shape) in (1, 2) and 0 not in shape and (len(shape) == 1 or shape[0] == A)
    require(fits, f"features at the start have shape {shape}: return ψ (k,), or φ (A, d) with A = {A} rows")
    if len(shape) == 2:
        return FunctionFeatures(given, shape[1])

    def blocks(state: object) -> Array:
        phi = np.zeros((A, A, *shape))
        phi[np.arange(A), np.arange(A)] = as_array("features", given(state), shape)
        return phi.reshape(A, -1)

    return FunctionFeatures(blocks, A * shape[0])


def chosen_features(low: Array, high: Array) -> tuple[OneHot | View, str]:
    """Return features for observations between bounds (n,), which may be infinite, and a description of the choice.

    Up to 4 axes become cells, up to 6 a Fourier basis of order 1. An axis x without bounds becomes x/(1 + |x|).
    """
    n, finite = len(low), np.isfinite(low) & np.isfinite(high) & (np.asarray(high, dtype=np.float64) < 1e30)
    why = f"observations have {n} axes, too many" if n else "there are too many texts"
    require(1 <= n <= 6, f"{why} to choose features: give features=…")
    bounds = np.where(finite, low, -1.0), np.where(finite, high, 1.0)
    basis = Cells(*bounds, bins={1: 32, 2: 16, 3: 8, 4: 6}[n]) if n <= 4 else Fourier(*bounds, order=1)

    def bounded(observation: object) -> Any:
        x = flat(observation)
        return basis(np.where(finite, x, x / (1 + np.abs(x))))

    chosen: View = basis if finite.all() else bounded
    squashed = "" if finite.all() else (f"; {int((~finite).sum())} axes without bounds enter as x/(1 + |x|)")
    if isinstance(basis, Cells):
        return OneHot(chosen, basis.size), f"{basis.bins} cells per axis, {basis.size} in all{squashed}"
    return chosen, f"Fourier basis of order 1, {basis.dim} functions{squashed}"


def flat(observation: object) -> Array:
    """Return all numbers of an observation, which may be a tuple of parts, as (n,)."""
    if isinstance(observation, tuple):
        return np.concatenate([np.zeros(0), *(flat(part) for part in observation)])
    return np.ravel(np.asarray(observation, dtype=np.float64))


@cache
def _exponents(largest: int, num_axes: int) -> Array:
    """Return all of {0..largest}^n, shape ((largest + 1)^n, n); read only."""
    return np.array(list(product(range(largest + 1), repeat=num_axes)), dtype=np.float64)

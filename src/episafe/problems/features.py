"""Feature maps ψ of an observation, for problems whose states cannot be listed; all of norm at most 1.

With A actions the features of a state and an action are φ(s, a) = e_a ⊗ ψ(s), in dimension A·dim. `norm` says what the
largest norm was before it was scaled to 1. Observations beyond the bounds have the features of the nearest edge.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from episafe.checks import as_count, as_finite
from episafe.errors import InvalidProblem
from episafe.gym.observations import Observations
from episafe.types import Array

# φ, None if it is one-hot; d; and what one-hot features tell apart
Described = tuple[Callable[[Any], Array] | None, int, Callable[[Any], Any] | None]


@dataclass(frozen=True)
class OneHot:
    """One indicator for each state and action, held as counts: exact for finite states, and by far the fastest.

    Attributes:
        cell: observation ↦ a hashable value or an array, to tell apart no more than that; None for the observation.
        size: how many values `cell` takes; not to be given without it.
    """

    cell: Callable[[Any], Any] | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.cell is None) != (self.size is None):
            raise InvalidProblem("OneHot takes cell and size together: what to tell apart, and how many there are")
        if self.size is not None:
            as_count("size", self.size)


@dataclass(frozen=True, eq=False)
class Box:
    """The bounds that observations are scaled by, to [0, 1]^n. Whole numbers of a map of it are counts ≥ 1."""

    low: Any
    high: Any
    num_axes: int = field(init=False)

    def __post_init__(self) -> None:
        low = as_finite("low", self.low, (None,))
        high = as_finite("high", self.high, (len(low),))
        if not (low < high).all():
            raise InvalidProblem(f"low must be below high on every axis, got {low} and {high}")
        self.__dict__.update(low=low, high=high, num_axes=len(low))
        for setting in fields(self):
            if setting.init and setting.type is int:
                as_count(setting.name, getattr(self, setting.name))

    @property
    def dim(self) -> int:
        """The dimension of ψ; cells have none."""
        raise NotImplementedError

    @property
    def norm(self) -> float:
        """The largest norm before scaling, √dim where every entry is at most 1."""
        return float(self.dim**0.5)

    def unit(self, observation: Any) -> Array:
        """The observation in [0, 1]^n, the nearest edge where it lies beyond."""
        x = as_finite("observation", np.ravel(observation), (self.num_axes,))
        return np.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Cells(Box):
    """A grid of `bins` cells an axis, as tuples: `OneHot(cells, cells.size)` tells apart no more than the cells."""

    bins: int = 8

    @cached_property
    def _axes(self) -> list[tuple[float, float]]:
        """Low and width of each."""
        return list(zip(self.low.tolist(), (self.high - self.low).tolist(), strict=True))

    @property
    def size(self) -> int:
        """How many cells there are."""
        return int(self.bins**self.num_axes)

    def __call__(self, observation: Any) -> tuple[int, ...]:
        """The cell of an observation."""
        if type(observation) is np.ndarray and observation.shape == (self.num_axes,) and observation.dtype.char in "fd":
            found = self._quickly(observation.tolist())
            if len(found) == self.num_axes:
                return found
        index = np.minimum((self.unit(observation) * self.bins).astype(int), self.bins - 1)
        return tuple(index.tolist())

    def _quickly(self, values: list[float]) -> tuple[int, ...]:
        """The same arithmetic in plain numbers, in a tenth of the time; shorter where one of them is not finite."""
        bins, found = self.bins, []
        for x, (low, width) in zip(values, self._axes, strict=True):
            unit = (x - low) / width
            if 0.0 < unit < 1.0:
                found.append(int(unit * bins))  # below `bins`: the product is rounded to a number below it
            elif math.isfinite(x):
                found.append(0 if unit <= 0.0 else bins - 1)
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Tiles(Box):
    """Tile coding: ψ marks the cell of each of `tilings` grids, shifted against each other by 1/tilings of a cell.

    The last cell of an axis takes in what the shift pushes out. Norm √tilings before scaling.
    """

    bins: int = 8
    tilings: int = 4

    @property
    def dim(self) -> int:
        """tilings · bins^n."""
        return int(self.tilings * self.bins**self.num_axes)

    @property
    def norm(self) -> float:
        """√tilings."""
        return float(self.tilings**0.5)

    def __call__(self, observation: Any) -> Array:
        """ψ (dim,)."""
        shifts = np.arange(self.tilings)[:, None] / self.tilings
        index = np.minimum((self.unit(observation) * self.bins + shifts).astype(int), self.bins - 1)
        flat = np.ravel_multi_index(tuple(index.T), (self.bins,) * self.num_axes)
        psi = np.zeros((self.tilings, self.bins**self.num_axes))
        psi[np.arange(self.tilings), flat] = 1 / self.norm
        return psi.ravel()


@dataclass(frozen=True, eq=False)
class Fourier(Box):
    """ψ_c(x) = cos(π c·x) for c ∈ {0..order}^n, x in the unit cube. Norm at most √dim before scaling, at x = 0."""

    order: int = 3

    @property
    def dim(self) -> int:
        """(order + 1)^n."""
        return int((self.order + 1) ** self.num_axes)

    def __call__(self, observation: Any) -> Array:
        """ψ (dim,)."""
        return np.cos(np.pi * _exponents(self.order, self.num_axes) @ self.unit(observation)) / self.norm


@dataclass(frozen=True, eq=False)
class Polynomial(Box):
    """ψ_c(x) = Π_i x_i^{c_i} for c ∈ {0..degree}^n, x in the unit cube. Norm at most √dim before scaling, at x = 1."""

    degree: int = 2

    @property
    def dim(self) -> int:
        """(degree + 1)^n."""
        return int((self.degree + 1) ** self.num_axes)

    def __call__(self, observation: Any) -> Array:
        """ψ (dim,)."""
        powers = self.unit(observation) ** _exponents(self.degree, self.num_axes)
        return powers.prod(axis=1) / self.norm


@dataclass(frozen=True, eq=False)
class RBF(Box):
    """ψ_c(x) ∝ exp(−‖x − c‖²/(2 width²)) on a grid of `centres` an axis, divided by their sum: norm at most 1."""

    centres: int = 5
    width: float = 0.2
    norm: ClassVar[float] = 1.0  # weights that sum to 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.width > 0:
            raise InvalidProblem(f"width must be > 0, got {self.width!r}")

    @property
    def dim(self) -> int:
        """centres^n."""
        return int(self.centres**self.num_axes)

    def __call__(self, observation: Any) -> Array:
        """ψ (dim,)."""
        centres = _exponents(self.centres - 1, self.num_axes) / max(self.centres - 1, 1)
        exponent = -((self.unit(observation) - centres) ** 2).sum(axis=1) / (2 * self.width**2)
        weight = np.exp(exponent - exponent.max())
        return weight / weight.sum()


def describe_states(
    features: Any, first: Any, num_actions: int, observations: Observations, outside: Sequence[Hashable]
) -> Described:
    """φ of observations, with one more dimension for each state outside of the environment.

    No two states outside share a dimension: in a model of all steps the start would then lead where the end does.
    """
    if isinstance(features, OneHot):
        size = features.size or observations.count
        if size is None:
            raise InvalidProblem(
                f"one-hot features need countable observations, and {observations.space} has not: use Tiles, Fourier, "
                "RBF, Polynomial, or OneHot(cells, cells.size) with Cells"
            )
        return None, (size + len(outside)) * num_actions, features.cell
    if not callable(features) or isinstance(features, type):
        raise InvalidProblem(f"features must be OneHot() or a function of an observation: give one, not {features!r}")
    shape = np.shape(features(first))
    if len(shape) not in (1, 2) or 0 in shape:
        raise InvalidProblem(
            f"features at the start have shape {shape}: return ψ (k,), or φ (A, d) with A = {num_actions} rows"
        )
    if len(shape) == 2 and shape[0] != num_actions:
        raise InvalidProblem(
            f"features at the start have shape {shape}: give one row for each of {num_actions} actions"
        )
    d = num_actions * shape[0] if len(shape) == 1 else shape[1]

    def wide(state: Any) -> Array:
        phi = np.zeros((num_actions, d + len(outside)))
        for i, one in enumerate(outside):
            if state is one:
                phi[:, d + i] = 1.0
                return phi
        found = as_finite(f"features at {state!r}", features(state), shape)
        phi[:, :d] = blocks(found, num_actions) if found.ndim == 1 else found
        return phi

    return wide, d + len(outside), None


def blocks(psi: Array, num_actions: int) -> Array:
    """φ(s, a) = e_a ⊗ ψ(s), shape (A, A·k), of ψ (k,)."""
    phi = np.zeros((num_actions, num_actions, len(psi)))
    phi[np.arange(num_actions), np.arange(num_actions)] = psi
    return phi.reshape(num_actions, -1)


def _exponents(largest: int, num_axes: int) -> Array:
    """All of {0..largest}^n, shape ((largest + 1)^n, n)."""
    return np.array(list(product(range(largest + 1), repeat=num_axes)), dtype=np.float64)

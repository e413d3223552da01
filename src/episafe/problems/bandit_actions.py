"""What can be played: finitely many arms, arms that change with the round, a ball, or an ellipsoid, all in ‖a‖₂ ≤ 1."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from episafe.checks import TOLERANCE, as_count, as_finite, as_number, within_unit_norm
from episafe.errors import InvalidProblem
from episafe.types import Array

ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of eigenvalues and aᵀMa, relative to ‖M‖₂
UNIT_NORM = "divide all actions by the largest norm, and multiply norm_bound by it"

ArmsOfRound = Callable[[int], Any]


@dataclass(frozen=True)
class Ball:
    """{a ∈ ℝᵈ : ‖a‖₂ ≤ radius}, radius ≤ 1.

    Example:
        >>> Ball(dim=2).contains(np.array([0.6, 0.8]))
        True
    """

    radius: float = 1.0
    dim: int | None = None

    kind: ClassVar[str] = "radius"  # what a file calls its numbers

    def __post_init__(self) -> None:
        radius = as_number("radius", self.radius)
        if not 0 < radius <= 1 + TOLERANCE:
            raise InvalidProblem(f"radius must be in (0, 1], got {radius}: {UNIT_NORM}")
        if self.dim is not None:
            as_count("dim", self.dim)

    @property
    def root(self) -> Array:
        """L⁻ᵀ with {a : ‖Lᵀa‖ ≤ 1} the set."""
        assert self.dim is not None
        return self.radius * np.eye(self.dim)

    def of_dim(self, dim: int) -> "Ball":
        """The ball in ℝᵈ."""
        if self.dim not in (None, dim):
            raise InvalidProblem(f"the ball has dimension {self.dim}, theta_r {dim}")
        return Ball(self.radius, dim)

    @property
    def numbers(self) -> Array:
        """The radius."""
        return np.array([self.radius])

    def contains(self, action: Array) -> bool:
        """Whether `action` is in the set, up to TOLERANCE."""
        return bool(np.linalg.norm(action) <= self.radius + TOLERANCE)


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """{a : aᵀMa ≤ 1}, centred at 0, M symmetric with smallest eigenvalue ≥ 1, so that ‖a‖₂ ≤ 1.

    Off-centre sets are refused: no exact method is known for the inner problem there.
    """

    M: Array
    center: Any = None
    root: Array = field(init=False, repr=False)
    tolerance: float = field(init=False, repr=False)  # what float64 leaves of aᵀMa near 1, never below TOLERANCE

    kind: ClassVar[str] = "M"

    def __post_init__(self) -> None:
        M = as_finite("M", self.M, (None, None))
        if M.shape[0] != M.shape[1] or M.shape[0] == 0:
            raise InvalidProblem(f"M must be square, got shape {M.shape}")
        tolerance = max(TOLERANCE, ROUNDING * float(np.linalg.norm(M, 2)))
        if np.abs(M - M.T).max() > tolerance:
            raise InvalidProblem("M must be symmetric: pass (M + M.T)/2")
        if self.center is not None and as_finite("center", self.center, (len(M),)).any():
            raise InvalidProblem(
                "the ellipsoid must be centred at 0: no exact method is known elsewhere; list arms of it instead"
            )
        smallest = float(np.linalg.eigvalsh(M)[0])
        if smallest < 1 - tolerance:
            remedy = UNIT_NORM if smallest > 0 else "it must be positive definite"
            raise InvalidProblem(f"M has the eigenvalue {smallest:.12g} < 1, so some action has norm above 1: {remedy}")
        self.__dict__.update(M=M, tolerance=tolerance, root=np.linalg.inv(np.linalg.cholesky(M)).T)

    @property
    def dim(self) -> int:
        """d."""
        return len(self.M)

    def of_dim(self, dim: int) -> "Ellipsoid":
        """Itself, if it is in ℝᵈ."""
        if self.dim != dim:
            raise InvalidProblem(f"the ellipsoid has dimension {self.dim}, theta_r {dim}")
        return self

    @property
    def numbers(self) -> Array:
        """M."""
        return self.M

    def contains(self, action: Array) -> bool:
        """Whether `action` is in the set, up to the tolerance."""
        return bool(action @ self.M @ action <= 1 + self.tolerance)


ConvexSet = Ball | Ellipsoid
Actions = Array | Ball | Ellipsoid | ArmsOfRound


def as_actions(value: Any, dim: int) -> Actions:
    """`value` checked: arms (n, d), a Ball, an Ellipsoid or a function of the round."""
    if hasattr(value, "of_dim"):
        made: ConvexSet = value.of_dim(dim)
        return made
    if callable(value):
        return value  # what it returns is checked round by round
    return as_arms("actions", value, dim)


def as_arms(name: str, value: Any, dim: int) -> Array:
    """Arms (n, d) with norms at most 1."""
    arms = as_finite(name, value, (None, dim))
    if len(arms) == 0:
        raise InvalidProblem(f"{name} lists no arm: give at least one")
    within_unit_norm(name, arms)
    return arms

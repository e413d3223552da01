"""The inner problem over a centred ellipsoid: max E[f] s.t. E[g] ≥ b, exact, at most two atoms.

With x = Lᵀa, M = LLᵀ, and W = L⁻¹Λ⁻¹L⁻ᵀ = VwVᵀ the set is the unit ball of y = Vᵀx and ‖a‖_{Λ⁻¹} = ‖y‖_w. There

    f(y) = pᵀy + c_f‖y‖_w,   g(y) = qᵀy − c_g‖y‖_w,   D(λ) = max_y f(y) + λ(g(y) − b),

and the optimum over mixtures is min_{λ≥0} D(λ). The points `low` (g < b) and `high` (g ≥ b) are maximisers at two λ;
the chord between them has a slope λ in between, and the maximiser there replaces one of them. The chord at b is a
mixture, D(λ) an upper bound: their difference, the duality gap, ends the search.
"""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.kernels.mixing import share_reaching
from episafe.kernels.trust_region import maximise
from episafe.types import Array

STEPS = 200  # the gap falls by a factor of about four a step, so that 25 are usual
GAP = 1e-13  # relative to the size of the terms: what float64 leaves of a difference

Coordinates = tuple[Array, Array]  # basis with a = basis·y, and the eigenvalues w (d,) of W in growing order


class EllipsoidSolution(NamedTuple):
    """Atoms (2, d) in a's coordinates, the share of the second, λ, and the duality gap; `feasible` is False without."""

    atoms: Array
    share: float
    lam: float
    gap: float
    feasible: bool


def frame(root: Array, gram_inv: Array) -> Coordinates:
    """The coordinates in which set and norm are diagonal; `root` is L⁻ᵀ (d, d)."""
    w, V = np.linalg.eigh(root.T @ gram_inv @ root)
    return root @ V, np.maximum(w, np.finfo(np.float64).tiny)


def solve(
    theta_r: Array, theta_u: Array, at: Coordinates, scales: tuple[float, float], threshold: float
) -> EllipsoidSolution:
    """The best mixture for f = θ_rᵀa + c_f‖a‖_{Λ⁻¹}, g = θ_uᵀa − c_g‖a‖_{Λ⁻¹}, E[g] ≥ b; `scales` are c_f, c_g."""
    basis, w = at
    ends = np.empty((2, len(w)))
    found = chords(basis.T @ theta_r, basis.T @ theta_u, w, *scales, threshold, ends)
    return EllipsoidSolution(ends @ basis.T, *found)


@kernel
def chords(p, q, w, c_f, c_g, threshold, atoms):  # type: ignore[no-untyped-def]
    """Fills `atoms` (2, d), low and high; returns the share of the second, λ, the duality gap, and if there is one."""
    d = p.shape[0]
    ends, theta = np.empty((2, d)), np.empty(d)
    maximise(p, c_f, w, q, ends)
    _copy(ends, 1, atoms, 0)
    _copy(ends, 1, atoms, 1)
    f_low, g_low = _value(p, q, w, c_f, c_g, atoms, 0)
    if g_low >= threshold:
        return 1.0, 0.0, 0.0, True
    maximise(q, -c_g, w, p, ends)
    _copy(ends, 1, atoms, 1)
    f_high, g_high = _value(p, q, w, c_f, c_g, atoms, 1)
    if not g_high >= threshold:
        return 0.0, np.nan, np.nan, False
    lam, gap = 0.0, np.inf
    for _ in range(STEPS):
        if not g_high > g_low or f_high >= f_low:
            gap = 0.0  # the two are one point up to rounding
            break
        lam = (f_low - f_high) / (g_high - g_low)
        for i in range(d):
            theta[i] = p[i] + lam * q[i]
        maximise(theta, c_f - lam * c_g, w, q, ends)
        f_0, g_0 = _value(p, q, w, c_f, c_g, ends, 0)
        f_1, g_1 = _value(p, q, w, c_f, c_g, ends, 1)
        gap = max(f_0 + lam * g_0, f_1 + lam * g_1) - (f_low + lam * g_low)
        if gap <= GAP * (abs(f_low) + abs(f_high) + lam * (abs(g_low) + abs(g_high))):
            break
        for end in range(2):
            f, g = (f_0, g_0) if end == 0 else (f_1, g_1)
            if g < threshold and g > g_low:
                _copy(ends, end, atoms, 0)
                f_low, g_low = f, g
            elif threshold <= g < g_high:
                _copy(ends, end, atoms, 1)
                f_high, g_high = f, g
    share = share_reaching(g_low, g_high, threshold) if g_high > g_low else 1.0
    return share, lam, max(gap, 0.0), True


@kernel
def _value(p, q, w, c_f, c_g, points, row):  # type: ignore[no-untyped-def]
    """f and g of one row of `points`."""
    f, g, square = 0.0, 0.0, 0.0
    for i in range(p.shape[0]):
        y = points[row, i]
        f += p[i] * y
        g += q[i] * y
        square += w[i] * y * y
    norm = np.sqrt(square)
    return f + c_f * norm, g - c_g * norm


@kernel
def _copy(source, row, target, place):  # type: ignore[no-untyped-def]
    for i in range(source.shape[1]):
        target[place, i] = source[row, i]

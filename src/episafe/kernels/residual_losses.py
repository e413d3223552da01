"""How well next states are predicted, and how well the best linear fit made afterwards does: monitors/residual_test.py.

The loss of the best fit, min_M Σ‖y − Mᵀφ‖², is carried along as a triangle R and a right-hand side Z: a new pair (φ, y)
is rotated into them, column by column, and what is left of y in the end is its part of the loss. Nothing is squared and
nothing is cut off, so a column may have any size. Columns that depend on each other leave rounding errors, which count
as one more column: then the fit is a little too good, never too bad.
"""

import math
from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel, lean_kernel
from episafe.types import Array, IntArray

PULLS = 4.0 ** np.arange(2, 6)  # K
SEEN, EPOCH, BEGAN, NEXT, ALARM, UNTIL = range(6)
NOT_ON = -1  # BEGAN, while no epoch is on


class Residuals(NamedTuple):
    """`visits` (H, C) and `tallies` (H, C, m) of cells; `gram` (H, d, d), `moments` (H, d, m) of all episodes; `fit`
    (H, d, m), the linear fit when last looked at; `triangle` (H, d, d) and `rotated` (H, d, m), R and Z of the epoch;
    `best` (1,), the loss of its best linear fit; `losses` (4,): Σ‖y − p‖² of the epoch, one a K.

    `counts` (6,): episodes, epochs begun less one, the first episode of this one, when to look again, the alarm, 0 if
    none, and, while no epoch is on, when one begins at the earliest.
    """

    visits: Array
    tallies: Array
    gram: Array
    moments: Array
    fit: Array
    triangle: Array
    rotated: Array
    best: Array
    losses: Array
    counts: IntArray


@kernel
def take_in(seen, phi, cells, boxes, start, stop):  # type: ignore[no-untyped-def]
    """Predict, then learn, episodes `start` to `stop`: phi (n, H, d) of what was done, its cells and boxes (n, H)."""
    _, H, d = phi.shape
    m = seen.fit.shape[2]
    row, left = np.empty(d), np.empty(m)
    for k in range(start, stop):
        for h in range(H):
            cell, box = cells[k, h], boxes[k, h]
            visits = seen.visits[h, cell]
            for b in range(m):
                linear, y = 0.0, 1.0 if b == box else 0.0
                for i in range(d):
                    linear += phi[k, h, i] * seen.fit[h, i, b]
                linear = min(max(linear, 0.0), 1.0)
                for j in range(PULLS.shape[0]):
                    p = (seen.tallies[h, cell, b] + PULLS[j] * linear) / (visits + PULLS[j])
                    seen.losses[j] += (y - p) ** 2
                left[b] = y
            seen.visits[h, cell] += 1.0
            seen.tallies[h, cell, box] += 1.0
            for i in range(d):
                row[i] = phi[k, h, i]
                seen.moments[h, i, box] += row[i]
                for j in range(d):
                    seen.gram[h, i, j] += row[i] * phi[k, h, j]
            _rotate(seen, h, row, left)
        seen.counts[SEEN] += 1


@lean_kernel
def _rotate(seen, h, row, left):  # type: ignore[no-untyped-def]
    """Rotate φ = `row` (d,) and y = `left` (m,) into R and Z of step h, and add what is left of y to the best loss."""
    d, m, R, Z = row.shape[0], left.shape[0], seen.triangle, seen.rotated
    for i in range(d):
        if row[i] != 0.0:
            norm = math.hypot(R[h, i, i], row[i])
            cos, sin = R[h, i, i] / norm, row[i] / norm
            for j in range(i, d):
                R[h, i, j], row[j] = cos * R[h, i, j] + sin * row[j], cos * row[j] - sin * R[h, i, j]
            for b in range(m):
                Z[h, i, b], left[b] = cos * Z[h, i, b] + sin * left[b], cos * left[b] - sin * Z[h, i, b]
    for b in range(m):
        seen.best[0] += left[b] * left[b]

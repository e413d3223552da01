"""How well next states are predicted: the losses that monitors/residual_test.py compares with the best linear fit."""

from typing import NamedTuple

import numpy as np

from episafe.kernels.compilation import kernel
from episafe.types import Array, IntArray

PULLS = 4.0 ** np.arange(2, 6)  # K
SEEN, EPOCH, BEGAN, NEXT, ALARM = range(5)


class Residuals(NamedTuple):
    """`visits` (H, C) and `tallies` (H, C, m) of cells; `gram` (H, d, d), `moments` (H, d, m) of all episodes, and of
    the epoch; `fit` (H, d, m), the linear fit when last looked at; `losses` (4,): Σ‖y − p‖² of the epoch, one a K.

    `counts` (5,): episodes, epoch (−1 before the first), its first episode, when to look again, the alarm, 0 if none.
    """

    visits: Array
    tallies: Array
    gram: Array
    moments: Array
    epoch_gram: Array
    epoch_moments: Array
    fit: Array
    losses: Array
    counts: IntArray


@kernel
def take_in(seen, phi, cells, boxes, start, stop):  # type: ignore[no-untyped-def]
    """Predict, then learn, episodes `start` to `stop`: phi (n, H, d) of what was done, its cells and boxes (n, H)."""
    _, H, d = phi.shape
    m = seen.fit.shape[2]
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
            seen.visits[h, cell] += 1.0
            seen.tallies[h, cell, box] += 1.0
            for i in range(d):
                seen.moments[h, i, box] += phi[k, h, i]
                seen.epoch_moments[h, i, box] += phi[k, h, i]
                for j in range(d):
                    seen.gram[h, i, j] += phi[k, h, i] * phi[k, h, j]
                    seen.epoch_gram[h, i, j] += phi[k, h, i] * phi[k, h, j]
        seen.counts[SEEN] += 1

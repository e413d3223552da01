"""Is the next state's law linear in the features? A martingale test of the regression's residuals.

Put the next states into m = 16 fixed boxes; y = e_box ∈ {0, 1}^m says which one came. If P_h(s'|s,a) = φ(s,a)ᵀμ_h(s'),
then E[y | past] = Mᵀφ for one matrix M (d, m) of each step. Predict p by anything fixed before the episode. Then

    exp(‖y − Mᵀφ‖² − ‖y − p‖²)   has conditional mean ≤ 1:

its exponent is ⟨t, y − Mᵀφ⟩ − ‖t‖²/4 with t = 2(p − Mᵀφ), and ⟨t, y⟩ lies in an interval of length √2‖t‖ at most, so
that Hoeffding's lemma gives exp(‖t‖²/4). M is not known, but the product for the true M is at least

    exp(min_M Σ‖y − Mᵀφ‖² − Σ‖y − p‖²)

which can be computed. By Ville's inequality it ever reaches 1/δ with probability at most δ. So: if some prediction made
beforehand is better than the best linear fit made afterwards, by ln(1/δ), features are not linear. M may be of any
size, and so may the columns of φ.

The prediction draws the mean of a cell (s, a), cells of many states folded into 512, to the linear fit of the past:

    p = (Σ_cell y + K·Mᵀφ)/(n_cell + K),     K ∈ {16, 64, 256, 1024}, the mean of the four products.

Epoch j = 0, 1, … has the share 1/((j+1)(j+2)) of δ: what was learned before it is used and costs nothing in it. The
first begins at episode 64, the next when there are twice as many. Episodes are taken in as they were deployed, for p
must be fixed before the next one: if one of them is missing, nobody knows what it would have said, and which one is
missing may depend on those after it. So the epoch ends there, and the next one begins with what is deployed from then
on. Episodes in between are learned from only.
"""

import math

import numpy as np

from episafe.kernels.residual_losses import ALARM, BEGAN, EPOCH, NEXT, NOT_ON, PULLS, SEEN, UNTIL, Residuals, take_in
from episafe.types import Array, IntArray

NUM_BOXES, NUM_CELLS, MOST_FEATURES = 16, 512, 100
FIRST_EPOCH, LOOK = 64, 0.05
RIDGE = 1.0
# φ of what was done (n, H, d), its cell and the box of what came (n, H)
ResidualData = tuple[Array, IntArray, IntArray]


class ResidualMonitor:
    """The test above, for one task of horizon H with d features."""

    def __init__(self, horizon: int, dim: int, share: float) -> None:
        H, d, m = horizon, dim, NUM_BOXES
        self.share = share
        self.seen = Residuals(
            np.zeros((H, NUM_CELLS)), np.zeros((H, NUM_CELLS, m)), np.zeros((H, d, d)), np.zeros((H, d, m)),
            np.zeros((H, d, m)), np.zeros((H, d, d)), np.zeros((H, d, m)), np.zeros(1), np.zeros(len(PULLS)),
            np.array([0, -1, NOT_ON, FIRST_EPOCH, 0, FIRST_EPOCH]),
        )  # fmt: skip

    def watch(self, phi: Array, cells: IntArray, boxes: IntArray) -> None:
        """Take in episodes, as `ResidualData`, in the order of deployments."""
        counts, start = self.seen.counts, 0
        while start < len(phi):
            stop = min(len(phi), start + int(counts[NEXT] - counts[SEEN]))
            take_in(self.seen, phi, cells, boxes, start, stop)
            start = stop
            if counts[SEEN] == counts[NEXT]:
                self._look()

    def miss(self, num_deployed: int) -> None:
        """An episode is missing; so many were deployed after it, and are to come."""
        counts = self.seen.counts
        counts[BEGAN] = NOT_ON
        counts[UNTIL] = max(int(counts[UNTIL]), int(counts[SEEN]) + num_deployed)
        counts[NEXT] = max(int(counts[UNTIL]), int(counts[SEEN]) + 1)

    def _look(self) -> None:
        """Compare, fit again, and begin the next epoch when it is time to."""
        seen, counts = self.seen, self.seen.counts
        now, j, on = int(counts[SEEN]), int(counts[EPOCH]), counts[BEGAN] != NOT_ON
        if on and counts[ALARM] == 0 and self.log_evidence() >= math.log((j + 1) * (j + 2) / self.share):
            counts[ALARM] = now
        ridge = RIDGE * np.eye(seen.gram.shape[1])
        seen.fit[...] = np.linalg.solve(seen.gram + ridge, seen.moments)
        if now >= (2 * counts[BEGAN] if on else counts[UNTIL]):
            counts[EPOCH], counts[BEGAN] = j + 1, now
            for array in (seen.triangle, seen.rotated, seen.best, seen.losses):
                array[...] = 0.0
        counts[NEXT] = min(now + 1 + int(LOOK * now), 2 * int(counts[BEGAN]))

    def log_evidence(self) -> float:
        """ln of the mean over K of exp(min_M Σ‖y − Mᵀφ‖² − Σ‖y − p‖²) in this epoch."""
        return float(np.logaddexp.reduce(self.seen.best - self.seen.losses)) - math.log(len(PULLS))

    def status(self) -> dict[str, object]:
        """Figures as plain values."""
        evidence = -math.inf if self.seen.counts[BEGAN] == NOT_ON else self.log_evidence()
        return {"episodes": int(self.seen.counts[SEEN]), "log_evidence": evidence}

"""The monitors that need utilities alone: incumbent, threshold, bound, drift. One compiled pass over a batch."""

import math
from typing import NamedTuple

import numpy as np

from episafe.checks import TOLERANCE
from episafe.kernels.compilation import kernel
from episafe.kernels.confidence_sequence import BETS
from episafe.monitors.alarm import Alarm
from episafe.monitors.claims import Claim, new_claim, weigh
from episafe.monitors.drift import Drift, compare, log_term, new_drift
from episafe.monitors.mean_intervals import interval
from episafe.types import Array, IntArray

LOOK = 0.001  # the interval is asked again when 0.1 % more episodes were seen, up to 1000 after each
INCUMBENT, CHECKED = 1, 2  # bits: the incumbent acted; the plan was not the incumbent, and says it was checked


class Promise(NamedTuple):
    """What utilities are compared with.

    `threshold` b; `incumbent` b + ξ, −inf where ξ is unknown; `ceiling` H, NaN where utilities are noisy; `steady`,
    whether the incumbent is to have one mean at all times; `sigma` of its utilities, where they are noisy.
    """

    threshold: float
    incumbent: float
    ceiling: float
    steady: bool = True
    sigma: float = math.nan


class Seen(NamedTuple):
    """All that was seen: `incumbent` (3,) n, ΣU, ΣU²; `interval` (2,); the claims; drift.

    `counts` (4,): episodes watched, the incumbent's, their number at the alarm, 0 if none, and at the next look.
    """

    incumbent: Array
    interval: Array
    threshold: Claim
    bound: Claim
    drift: Drift
    counts: IntArray


class Batch(NamedTuple):
    """Episodes: `utilities` and `bounds` (n,), `who` (n,) in the bits above, `sigmas` (n,), where they are noisy."""

    utilities: Array
    bounds: Array
    who: IntArray
    sigmas: Array


class UtilityMonitors:
    """Incumbent, threshold, bound and drift, each with a false alarm at any time with probability `share` at most."""

    def __init__(self, promise: Promise, share: float) -> None:
        self.promise, self.share = promise, share
        self.seen = Seen(
            np.zeros(3), np.array([-np.inf, np.inf]), new_claim(), new_claim(), new_drift(), np.zeros(4, dtype=np.int64)
        )
        self._log_terms = math.log(2 * len(BETS) / share), math.log(1 / share), log_term(share)

    def watch(self, batch: Batch) -> list[Alarm]:
        """Take in a batch, and say what it contradicts that was not contradicted before."""
        before = self._raised()
        _take_in(self.seen, self.promise, batch, *self._log_terms)
        new = [what for what, was, now in zip(before, before.values(), self._raised().values(), strict=True)
               if now and not was]  # fmt: skip
        return [Alarm(what, self._says(what), int(self.seen.counts[0])) for what in new]  # type: ignore[arg-type]

    def _raised(self) -> dict[str, int]:
        seen = self.seen
        marks = seen.counts[2], seen.threshold.counts[1], seen.bound.counts[1], seen.drift.counts[2]
        return dict(zip(("incumbent", "threshold", "bound", "drift"), map(int, marks), strict=True))

    def _says(self, what: str) -> str:
        seen, at = self.seen, self._raised()[what]
        if what == "incumbent":
            low, high = seen.interval
            return (
                f"the incumbent is not as safe as stated: its utility is in [{low:.4g}, {high:.4g}], below "
                f"{self.promise.incumbent:.4g} = threshold + slack, by {at} of its episodes"
            )
        if what == "drift":
            low, high = float(seen.drift.ends[:, 0].max()), float(seen.drift.ends[:, 1].min())
            return (
                f"the incumbent's utility has changed: once it was above {low:.4g}, once below {high:.4g}, "
                f"by {at} of its episodes"
            )
        claim: Claim = getattr(seen, what)
        mean, claimed = claim.sums / max(int(claim.counts[0]), 1)
        than = "the threshold" if what == "threshold" else "the bounds that they were deployed on"
        return (
            f"policies that passed the check are below {than}: {mean:.4g} on average, not {claimed:.4g}, by {at} of "
            "their episodes"
        )

    def status(self) -> dict[str, dict[str, object]]:
        """Figures of each monitor, as plain values."""
        seen, raised = self.seen, self._raised()
        low, high = map(float, seen.interval)
        found: dict[str, dict[str, object]] = {
            "incumbent": {
                "episodes": int(seen.counts[1]), "interval": [low, high], "stated": self.promise.incumbent
            },
            "drift": {"episodes": int(seen.counts[1]), "intervals": int(seen.drift.counts[0])},
        }  # fmt: skip
        for what in ("threshold", "bound"):
            claim: Claim = getattr(seen, what)
            n = int(claim.counts[0])
            mean, claimed = map(float, claim.sums / n) if n else (math.nan, math.nan)
            found[what] = {"episodes": n, "mean_utility": mean, "claimed": claimed}
        return {what: {**said, "alarm_at": raised[what]} for what, said in found.items()}


@kernel
def _take_in(seen, promise, batch, interval_term, claim_term, drift_term):  # type: ignore[no-untyped-def]
    H = promise.ceiling
    for k in range(batch.utilities.shape[0]):
        utility = batch.utilities[k]
        seen.counts[0] += 1
        if batch.who[k] & INCUMBENT:
            seen.counts[1] += 1
            seen.incumbent[0] += 1.0
            seen.incumbent[1] += utility
            seen.incumbent[2] += utility * utility
            if seen.counts[1] >= seen.counts[3]:
                _ask(seen, promise, interval_term)
            if promise.steady:
                compare(seen.drift, seen.incumbent, H, promise.sigma, drift_term)
        if batch.who[k] & CHECKED:
            weigh(seen.threshold, utility, promise.threshold, H, batch.sigmas[k], claim_term)
            if not math.isnan(batch.bounds[k]):
                weigh(seen.bound, utility, batch.bounds[k], H, batch.sigmas[k], claim_term)


@kernel
def _ask(seen, promise, log_term):  # type: ignore[no-untyped-def]
    """The interval now, and whether it lies below what is stated."""
    n, total, squares = seen.incumbent[0], seen.incumbent[1], seen.incumbent[2]
    low, high = interval(n, total, squares, promise.ceiling, promise.sigma, log_term)
    seen.interval[0], seen.interval[1] = max(seen.interval[0], low), min(seen.interval[1], high)
    seen.counts[3] = seen.counts[1] + 1 + int(LOOK * n)
    if seen.counts[2] == 0 and seen.interval[1] < promise.incumbent - TOLERANCE:
        seen.counts[2] = seen.counts[1]

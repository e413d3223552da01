"""The monitors that need utilities alone: incumbent, threshold, bound, drift."""

import math

from episafe.kernels.claim_wealth import Claim
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.drift_intervals import log_term
from episafe.kernels.utility_tests import Batch, Promise, nothing_seen, take_in
from episafe.monitors.alarm import Alarm


class UtilityMonitors:
    """Incumbent, threshold, bound and drift, each with a false alarm at any time with probability `share` at most."""

    def __init__(self, promise: Promise, share: float) -> None:
        self.promise, self.share = promise, share
        self.seen = nothing_seen()
        self._log_terms = math.log(2 * len(BETS) / share), math.log(1 / share), log_term(share)

    def watch(self, batch: Batch) -> list[Alarm]:
        """Take in a batch, and say what it contradicts that was not contradicted before."""
        before = self._raised()
        take_in(self.seen, self.promise, batch, *self._log_terms)
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

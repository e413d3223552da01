"""The monitors, one row each: what it tests and assumes, its share of δ, how its alarm is read and what that says.

A monitor is there by being listed: a `Watch` asks every row of STATEMENTS, and a row must say how it is asked.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from episafe.kernels.claim_wealth import OF_BOUND, OF_COIN, OF_INCUMBENT, OF_THRESHOLD
from episafe.kernels.residual_losses import ALARM
from episafe.types import IntArray

Watched = Literal["range", "incumbent", "threshold", "bound", "spell", "drift", "residual", "coin", "replay"]

ALIKE = (
    "given its plan, an episode is independent of those before it, reported or not, and of which reports have come; "
    "and each report is of its own deployment"
)
IN_RANGE = "total utilities lie in their range, or their noise is σ-sub-Gaussian"
UTILITIES = f"{ALIKE}, and {IN_RANGE}"


class WatchedTest(NamedTuple):
    """A test that may be wrong: its share of δ, and how a `Watch` is asked what it has found.

    Attributes:
        share: of delta; its alarm is false, at any time of an endless run, with probability at most share·delta.
        counter: where it counts how many episodes it had watched when it raised its alarm, 0 before: an array and the
            place in it; None where it has nothing to watch.
        says: what is contradicted, by so many episodes, in words.
        figures: what `status` shows of it.
    """

    share: float
    counter: Callable[[Any], tuple[IntArray, Any] | None]
    says: Callable[[Any, int], str]
    figures: Callable[[Any], dict[str, Any]]


class Statement(NamedTuple):
    """What a monitor says.

    Attributes:
        claim: what it holds the data against.
        assumes: what must be true besides, for its alarm to be false no more often than stated.
        reading: how it is asked; None of what cannot be wrong: whoever sees it raises the alarm at once.
        halts: whether its alarm asks for a halt.
    """

    claim: str
    assumes: str
    reading: WatchedTest | None
    halts: bool = True

    @property
    def share(self) -> float:
        """Of delta."""
        return 0.0 if self.reading is None else self.reading.share

    def says(self, delta: float) -> str:
        """All of it in words."""
        level = f"at most {self.share * delta:.3g}" if self.share else "0"
        return f"{self.claim}; the alarm is false, at any time, with probability {level}, if {self.assumes}"


def _of_claim(share: float, claim: int, says: Callable[[int, float, float], str]) -> WatchedTest:
    """A claim that the purse has bets on. Its alarm says something of how many there were, and of the sums of what was
    seen and of what was stated."""
    return WatchedTest(
        share,
        lambda watch: (watch.seen.purse.counts, (claim, 1)),
        lambda watch, at: says(at, *watch.seen.purse.sums[claim].tolist()),
        lambda watch: _claim_figures(watch, claim),
    )


def _claim_figures(watch: Any, claim: int) -> dict[str, Any]:
    purse, drift = watch.seen.purse, watch.seen.drift
    n, pending = int(purse.counts[claim, 0]), int(purse.pending[:, claim].sum())
    mean, claimed = (purse.sums[claim] / n).tolist() if n else (math.nan, math.nan)
    found = {"episodes": n, "pending": pending, "mean": mean, "claimed": claimed}
    return found | ({"interval": (drift.ends[0] + watch.floor).tolist()} if claim == OF_INCUMBENT else {})


def _means(at: int, seen: float, stated: float) -> str:
    return f"{seen / at:.4g} on average, not {stated / at:.4g}"


def _incumbent_says(at: int, seen: float, stated: float) -> str:
    means = _means(at, seen, stated)
    return f"the incumbent is not as safe as stated: {means} = threshold + slack, by {at} of its episodes"


def _policies_say(than: str) -> Callable[[int, float, float], str]:
    return lambda at, seen, stated: (
        f"policies that passed the check are below {than}: {_means(at, seen, stated)}, by {at} of their episodes"
    )


def _coin_says(at: int, seen: float, stated: float) -> str:
    return (
        f"components are not drawn by the weights of their plans, by {at} coins: the incumbent acted "
        f"{seen:.0f} times, not {stated:.4g}; what is certified of mixtures holds over their coin"
    )


def _drift_says(watch: Any, at: int) -> str:
    ends = watch.seen.drift.ends + watch.floor
    return (
        f"the incumbent's utility has changed: once it was above {ends[:, 0].max():.4g}, once below "
        f"{ends[:, 1].min():.4g}, by {at} of its episodes"
    )


def _drift_figures(watch: Any) -> dict[str, Any]:
    drift = watch.seen.drift
    return {"episodes": int(drift.sums[0]), "missing": int(drift.sums[3]), "intervals": int(drift.counts[0])}


def _spell_says(watch: Any, at: int) -> str:
    return (
        f"policies that passed the check have been below the threshold of late, by {at} of their episodes: the "
        "world is not what it was when they were certified, or episodes are not independent"
    )


def _residual_says(watch: Any, at: int) -> str:
    return (
        f"the transitions are not linear in the features, by {at} episodes: certificates that rest on features "
        "(model, fresh-data) do not hold; that from observed utilities (observation) is not touched"
    )


STATEMENTS: dict[Watched, Statement] = {  # in the order in which alarms of one episode are raised
    "incumbent": Statement("the incumbent has V^u ≥ b + ξ", UTILITIES, _of_claim(1 / 6, OF_INCUMBENT, _incumbent_says)),
    "threshold": Statement(
        "policies that passed the check have V^u ≥ b, on average; mixtures over their coin",
        UTILITIES,
        _of_claim(1 / 6, OF_THRESHOLD, _policies_say("the threshold")),
    ),
    "bound": Statement(
        "they have V^u ≥ the bound that each was deployed on, on average",
        UTILITIES,
        _of_claim(1 / 6, OF_BOUND, _policies_say("the bounds that they were deployed on")),
    ),
    "coin": Statement(
        "components are drawn by the weights of their plan",
        "it is tossed independently",
        _of_claim(1 / 12, OF_COIN, _coin_says),
    ),
    "drift": Statement(
        "the incumbent's V^u does not change",
        UTILITIES,
        WatchedTest(1 / 6, lambda watch: (watch.seen.drift.counts, 2), _drift_says, _drift_figures),
    ),
    "spell": Statement(
        "each of them has V^u ≥ b, of late too, whatever was before",
        UTILITIES,
        WatchedTest(
            1 / 12,
            lambda watch: (watch.spell.counts, 1),
            _spell_says,
            lambda watch: {"episodes": int(watch.spell.counts[0])},
        ),
    ),
    "residual": Statement(
        "P_h(s'|s,a) = φ(s,a)ᵀμ_h(s') for some μ, of any size",
        ALIKE,
        WatchedTest(
            1 / 6,
            lambda watch: None if watch.residual is None else (watch.residual.seen.counts, ALARM),
            _residual_says,
            lambda watch: watch.residual.status(),
        ),
        halts=False,
    ),
    "range": Statement("no episode has a utility outside its range", "the reports are true", None),
    "replay": Statement(
        "every deployed episode is what `move` makes of its trace; else what replays proved is withdrawn, and what "
        "was observed is not",
        "the reports are true",
        None,
        halts=False,
    ),
}
READINGS = {what: one.reading for what, one in STATEMENTS.items() if one.reading is not None}

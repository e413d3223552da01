"""What the monitors of every kind of problem share: alarms, the tests of utilities, the state as named arrays."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from episafe.checks import as_probability
from episafe.errors import DamagedFile
from episafe.kernels.confidence_sequence import BETS
from episafe.kernels.utility_tests import Batch, Promise, nothing_seen, take_in
from episafe.monitors.residual_test import ResidualData, ResidualMonitor

NUM_MONITORS = 5  # incumbent, threshold, bound, drift, residual: each has delta/5
INFINITE = ("interval", "ends")  # entries that may be infinite: nothing is known yet
COLUMNS = {"what": np.str_, "says": np.str_, "after": np.int64, "halts": np.bool_}  # of alarms in a state
Watched = Literal["range", "incumbent", "threshold", "bound", "drift", "residual"]


@dataclass(frozen=True)
class Alarm:
    """A contradiction between the data and what a monitor watches. Each monitor raises its alarm once.

    Attributes:
        what: which monitor.
        says: what is contradicted, by which figures, in words.
        after: how many episodes had been watched, this one included.
        halts: whether exploration should stop: `session.halt(alarm.says)`.
    """

    what: Watched
    says: str
    after: int
    halts: bool = True


class Watch:
    """Monitors at work. Subclasses turn plans and what came of them into numbers.

    Attributes:
        alarms: all that were raised, oldest first; each monitor raises one.
    """

    def __init__(self, delta: float, promise: Promise, features: tuple[int, int] | None) -> None:
        self.delta, self._promise, self._seen = as_probability("delta", delta), promise, nothing_seen()
        share = self.delta / NUM_MONITORS
        self._log_terms = math.log(2 * len(BETS) / share), math.log(1 / share)
        self._residual = None if features is None else ResidualMonitor(*features, share)
        self.alarms: list[Alarm] = []

    def watch_report(self, plan: Any, *report: Any) -> list[Alarm]:
        """Take in a report of a plan, after the agent accepted it; the alarms that it raises, if any."""
        raise NotImplementedError

    def _take_in(self, batch: Batch, features: ResidualData | None = None) -> list[Alarm]:
        """Take in a batch, and say what it contradicts that was not contradicted before."""
        take_in(self._seen, self._promise, batch, *self._log_terms)
        if self._residual is not None and features is not None:
            self._residual.watch(*features)
        known, now = {alarm.what for alarm in self.alarms}, int(self._seen.counts[0])
        new = [
            Alarm(what, self._says(what, at), at if what == "residual" else now, halts=what != "residual")
            for what, at in self._raised().items()
            if at and what not in known
        ]
        self.alarms += new
        return new

    def _raised(self) -> dict[Watched, int]:
        """The episodes that each monitor had watched at its alarm; 0 before."""
        seen = self._seen
        return {
            "incumbent": int(seen.counts[2]),
            "threshold": int(seen.threshold.counts[1]),
            "bound": int(seen.bound.counts[1]),
            "drift": int(seen.drift.counts[2]),
            "residual": 0 if self._residual is None else self._residual.alarm_at,
        }

    def _says(self, what: Watched, at: int) -> str:
        seen = self._seen
        if what == "residual":
            return (
                f"the transitions are not linear in the features, by {at} episodes: certificates that rest on features "
                "(model, fresh-data) do not hold; that from observed utilities (observation) is not touched"
            )
        if what == "incumbent":
            low, high = seen.interval
            return (
                f"the incumbent is not as safe as stated: its utility is in [{low:.4g}, {high:.4g}], below "
                f"{self._promise.incumbent:.4g} = threshold + slack, by {at} of its episodes"
            )
        if what == "drift":
            low, high = float(seen.drift.ends[:, 0].max()), float(seen.drift.ends[:, 1].min())
            return (
                f"the incumbent's utility has changed: once it was above {low:.4g}, once below {high:.4g}, "
                f"by {at} of its episodes"
            )
        claim = seen.threshold if what == "threshold" else seen.bound
        mean, claimed = claim.sums / max(int(claim.counts[0]), 1)
        than = "the threshold" if what == "threshold" else "the bounds that they were deployed on"
        return (
            f"policies that passed the check are below {than}: {mean:.4g} on average, not {claimed:.4g}, by {at} of "
            "their episodes"
        )

    def status(self) -> dict[str, Any]:
        """All figures as plain values: what was watched, what came out, the alarms."""
        seen, raised = self._seen, self._raised()
        episodes, stated = int(seen.counts[1]), self._promise.incumbent
        found: dict[Any, dict[str, Any]] = {
            "incumbent": {"episodes": episodes, "interval": seen.interval.tolist(), "stated": stated},
            "drift": {"episodes": episodes, "intervals": int(seen.drift.counts[0])},
        }
        for what, claim in (("threshold", seen.threshold), ("bound", seen.bound)):
            n = int(claim.counts[0])
            mean, claimed = (claim.sums / n).tolist() if n else (math.nan, math.nan)
            found[what] = {"episodes": n, "mean_utility": mean, "claimed": claimed}
        if self._residual is not None:
            found["residual"] = self._residual.status()
        figures = {what: {**said, "alarm_at": raised[what]} for what, said in found.items()}
        alarms = [vars(alarm) for alarm in self.alarms]
        return {"delta": self.delta, "episodes": int(seen.counts[0]), **figures, "alarms": alarms}

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say: δ, and every alarm in words."""
        said = "; ".join(f"{alarm.what} after {alarm.after}: {alarm.says}" for alarm in self.alarms)
        return {"monitors_delta": self.delta, "alarms": said or "none"}

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that decides future alarms, as named arrays; `restore` takes it back bit for bit."""
        arrays = {name: array.copy() for name, array in self._arrays()}
        for name, dtype in COLUMNS.items():
            arrays[f"alarms.{name}"] = np.array([getattr(alarm, name) for alarm in self.alarms], dtype=dtype)
        arrays["promise"] = np.array([self.delta, *self._promise])
        return arrays

    def restore(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from what `state` gave, in monitors built alike; a refusal changes nothing."""
        ours = self.state()
        for name in ours.keys() | state.keys():
            if name not in state or name not in ours:
                raise DamagedFile(f"the monitors' state {'lacks' if name in ours else 'has an unknown'} {name!r}")
            _check(name, state[name], ours[name])
        if not np.array_equal(state["promise"], ours["promise"], equal_nan=True):
            raise ValueError("the state is of monitors for another task or delta: build them as they were")
        for name, array in self._arrays():
            array[...] = state[name]
        columns = [state[f"alarms.{name}"].tolist() for name in COLUMNS]
        self.alarms = [Alarm(*row) for row in zip(*columns, strict=True)]

    def _arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield from _named("utilities", self._seen)
        if self._residual is not None:
            yield from _named("residual", self._residual.seen)


def _named(prefix: str, value: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The arrays of nested named tuples, by dotted paths."""
    if isinstance(value, np.ndarray):
        yield prefix, value
    else:
        for name, part in value._asdict().items():
            yield from _named(f"{prefix}.{name}", part)


def _check(name: str, given: Any, ours: np.ndarray[Any, Any]) -> None:
    alike = isinstance(given, np.ndarray) and given.dtype.kind == ours.dtype.kind and given.ndim == ours.ndim
    if not alike or (not name.startswith("alarms.") and given.shape != ours.shape):
        raise DamagedFile(f"the monitors' state has {name!r} of another kind or shape")
    infinite = name == "promise" or name.rsplit(".", 1)[-1] in INFINITE
    if given.dtype.kind == "f" and not (infinite or np.isfinite(given).all()):
        raise DamagedFile(f"the monitors' state has a number in {name!r} that is not finite")

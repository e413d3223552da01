"""What the monitors of every kind of problem each: the each of δ, the alarms, the state as named arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from episafe.checks import as_probability
from episafe.errors import DamagedFile
from episafe.kernels.utility_tests import Promise
from episafe.monitors.alarm import Alarm
from episafe.monitors.residual_test import ResidualMonitor
from episafe.monitors.utility_monitors import UtilityMonitors

NUM_MONITORS = 5  # incumbent, threshold, bound, drift, residual: each has delta/5
INFINITE = ("interval", "ends")  # entries that may be infinite: nothing is known yet


class Watch:
    """Monitors at work. Subclasses turn plans and what came of them into numbers.

    Attributes:
        alarms: all that were raised, oldest first; each monitor raises one.
    """

    def __init__(self, delta: float, promise: Promise, features: tuple[int, int] | None) -> None:
        self.delta = as_probability("delta", delta)
        each = self.delta / NUM_MONITORS
        self._utilities = UtilityMonitors(promise, each)
        self._residual = None if features is None else ResidualMonitor(*features, each)
        self.alarms: list[Alarm] = []

    def watch_report(self, plan: Any, *report: Any) -> list[Alarm]:
        """Take in a report of a plan, after the agent accepted it; the alarms that it raises, if any."""
        raise NotImplementedError

    def _raise(self, alarms: list[Alarm]) -> list[Alarm]:
        """Keep those that are new."""
        known = {alarm.what for alarm in self.alarms}
        new = [alarm for alarm in alarms if alarm.what not in known]
        self.alarms += new
        return new

    def status(self) -> dict[str, Any]:
        """All figures as plain values: what was watched, what came out, the alarms."""
        figures: dict[str, Any] = {"delta": self.delta, "episodes": int(self._utilities.seen.counts[0])}
        figures |= self._utilities.status()
        if self._residual is not None:
            figures["residual"] = self._residual.status()
        return {**figures, "alarms": [vars(alarm) for alarm in self.alarms]}

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say: δ, and every alarm in words."""
        said = "; ".join(f"{alarm.what} after {alarm.after}: {alarm.says}" for alarm in self.alarms)
        return {"monitors_delta": self.delta, "alarms": said or "none"}

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that decides future alarms, as named arrays; `restore` takes it back bit for bit."""
        arrays = {name: array.copy() for name, array in self._arrays()}
        alarms = self.alarms
        arrays["alarms.what"] = np.array([alarm.what for alarm in alarms], dtype=np.str_)
        arrays["alarms.says"] = np.array([alarm.says for alarm in alarms], dtype=np.str_)
        arrays["alarms.after"] = np.array([alarm.after for alarm in alarms], dtype=np.int64)
        arrays["alarms.halts"] = np.array([alarm.halts for alarm in alarms], dtype=np.bool_)
        arrays["promise"] = np.array([self.delta, *self._utilities.promise])
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
        columns = [state[f"alarms.{name}"].tolist() for name in ("what", "says", "after", "halts")]
        self.alarms = [Alarm(*row) for row in zip(*columns, strict=True)]

    def _arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield from _named("utilities", self._utilities.seen)
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

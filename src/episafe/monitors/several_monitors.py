"""Monitors of a task with several constraints: one set a constraint, each with its share of δ."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from episafe.checks import as_probability
from episafe.errors import DamagedFile
from episafe.monitors.base import Watch
from episafe.monitors.monitor_state import Alarm, halt_reason, in_words
from episafe.types import amounts


class SeveralMonitors:
    """What `es.Monitors` is for m constraints: monitors for each, at δ/m, which see its utilities and its bounds.

    An alarm of any of them counts; it says of which constraint it is. A false one, at any time, has probability ≤ delta
    in all.

    Args:
        task: the agent's own.
        delta: the probability of a false alarm, in all.
        build: (task with one constraint, δ) ↦ its monitors.
    """

    def __init__(self, task: Any, delta: float, build: Callable[[Any, float], Watch]) -> None:
        self.task, self.delta = task, as_probability("delta", delta)
        m, self._names = task.num_constraints, task.constraint_names
        self._each = [build(task.of_constraint(c), self.delta / m) for c in range(m)]
        self.alarms: list[Alarm] = []

    @property
    def standing(self) -> list[Alarm]:
        """The alarms that were raised since a person last let the agent go on."""
        return self._named([one.standing for one in self._each])

    def go_on(self) -> None:
        """A person lets the agent go on: if an alarm of any set stands that halts, all of them begin anew."""
        if halt_reason(self.standing):
            for one in self._each:
                one.begin_anew()

    def expect(self, deployment: int, plan: Any, component: int | None = None) -> list[Alarm]:
        """One more deployment, before anything is known of it."""
        plans = self._plans(plan)
        return self._heard(lambda c, one: one.expect(deployment, plans[c], component))

    def report(self, deployment: int, *report: Any) -> list[Alarm]:
        """What came of a deployment, after the agent accepted it."""
        return self._heard(lambda c, one: one.report(deployment, *self.task.seen_by(c, report)))

    def abandon(self, deployment: int) -> list[Alarm]:
        """Nobody will know what came of a deployment."""
        return self._heard(lambda c, one: one.abandon(deployment))

    def change(self, task: Any) -> list[Alarm]:
        """The limits of the task are others for what is deployed from now on."""
        self.task = task
        return self._heard(lambda c, one: one.change(task.of_constraint(c)))

    def keep_to(self, task: Any) -> None:
        """Hold utilities against the limits that the task has now."""
        self.task = task
        for c, one in enumerate(self._each):
            one.keep_to(task.of_constraint(c))

    def refused(self, *report: Any) -> list[Alarm]:
        """The alarm of a report that the agent refused for its range alone."""
        try:
            return self._heard(lambda c, one: one.refused(*self.task.seen_by(c, report)))
        except (IndexError, TypeError, ValueError, OverflowError):  # it does not fit otherwise
            return []

    def watch_report(self, plan: Any, *report: Any) -> list[Alarm]:
        """A deployment and its report, at once."""
        plans = self._plans(plan)
        return self._heard(lambda c, one: one.watch_report(plans[c], *self.task.seen_by(c, report)))

    def watch(self, plan: Any, *seen: Any) -> list[Alarm]:
        """The same of what one `watch` is told."""
        plans = self._plans(plan)
        return self._heard(lambda c, one: one.watch(plans[c], *self.task.seen_by(c, seen)))  # type: ignore[attr-defined]

    def _plans(self, plan: Any) -> list[Any]:
        return [replace(plan, utility_bound=bound) for bound in amounts(plan.utility_bound).tolist()]

    def _heard(self, tell: Callable[[int, Watch], list[Alarm]]) -> list[Alarm]:
        """Tell every set; the alarms, with the name of their constraint."""
        new = self._named([tell(c, one) for c, one in enumerate(self._each)])
        self.alarms += new
        return new

    def _named(self, alarms: list[list[Alarm]]) -> list[Alarm]:
        """The alarms of each set, with the name of its constraint."""
        each = zip(self._names, alarms, strict=True)
        return [replace(alarm, says=f"{name}: {alarm.says}") for name, raised in each for alarm in raised]

    def status(self) -> dict[str, Any]:
        """All figures as plain values, by constraint, and the alarms."""
        said = {name: one.status() for name, one in zip(self._names, self._each, strict=True)}
        first = said[self._names[0]]
        counts = {name: first[name] for name in ("episodes", "deployed", "waiting")}
        alarms = [vars(alarm) for alarm in self.alarms]
        return {"delta": self.delta, **counts, **said, "begun_anew": first["begun_anew"], "alarms": alarms}

    def statements(self) -> dict[str, str]:
        """What each monitor tests, how often its alarm is false, and what that assumes, in words."""
        return {
            f"{name}: {what}": says
            for name, one in zip(self._names, self._each, strict=True)
            for what, says in one.statements().items()
        }

    def settings(self) -> dict[str, str | int | float]:
        """What a record should say: δ, and every alarm in words."""
        return {"monitors_delta": self.delta, "alarms": in_words(self.alarms)}

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that decides future alarms, as named arrays."""
        return {f"{c}.{name}": array for c, one in enumerate(self._each) for name, array in one.state().items()}

    def restore(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from what `state` gave, in monitors built alike."""
        of: list[dict[str, np.ndarray[Any, Any]]] = [{} for _ in self._each]
        for name, array in state.items():
            number, _, rest = name.partition(".")
            if not number.isdigit() or int(number) >= len(of):
                raise DamagedFile(f"the monitors' state has an unknown {name!r}")
            of[int(number)][rest] = array
        for one, own in zip(self._each, of, strict=True):
            one.restore(own)
        self.alarms = self._named([one.alarms for one in self._each])

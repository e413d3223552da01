"""Being told: every event of a session as a log record with a stable name, and callbacks that cannot break it.

Records go to the logger "episafe.session" of the standard library; `record.event` is one of EVENTS, `record.details`
what there is to know, as plain values. Plans and reports are of level DEBUG, what a person decided INFO, what went
wrong WARNING, alarms, halts and a session that cannot be kept ERROR.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from episafe.monitors import Alarm
from episafe.plain_text import one_line

LOGGER = logging.getLogger("episafe.session")
logging.getLogger("episafe").addHandler(logging.NullHandler())  # who wants to read it says so
EVENTS = {
    "plan": logging.DEBUG, "report": logging.DEBUG, "abandon": logging.INFO, "candidate": logging.INFO,
    "promote": logging.INFO, "withdraw": logging.INFO, "change": logging.INFO, "resume": logging.INFO,
    "fault": logging.WARNING, "alarm": logging.ERROR, "halt": logging.ERROR, "broken": logging.ERROR,
}  # fmt: skip


class Reported(NamedTuple):
    """A report that was learned and kept.

    Attributes:
        deployment: its number; None for a report of no deployment, as from a log.
        plan_id: of its plan.
        report: an `es.Episode`, alone; of a bandit action, reward and utility.
        episode_id: the caller's name for it; None where there is none.
    """

    deployment: int | None
    plan_id: int | None
    report: tuple[Any, ...]
    episode_id: str | None


@dataclass(frozen=True)
class Notices:
    """Who is told of what.

    Args:
        on_alarm: gets every `es.Alarm` of the monitors, when the halt that it may ask for is kept.
        on_plan: gets every `es.Deployment`, when it is on the disk and before anybody acts on it.
        on_report: gets every `Reported`, when it is learned.
    """

    on_alarm: Callable[[Alarm], Any] | None = None
    on_plan: Callable[[Any], Any] | None = None
    on_report: Callable[[Reported], Any] | None = None

    def __post_init__(self) -> None:
        for name, callback in vars(self).items():
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} must be a function, got {callback!r}")

    def plan(self, made: Any) -> None:
        """A deployment is on the disk."""
        if LOGGER.isEnabledFor(logging.DEBUG):
            plan = made.plan
            tell("plan", deployment=made.id, plan=plan.id, source=plan.source, acting=made.acting)
        call(self.on_plan, made)

    def report(self, reported: Reported) -> None:
        """A report is learned."""
        if LOGGER.isEnabledFor(logging.DEBUG):
            tell("report", deployment=reported.deployment, plan=reported.plan_id, episode_id=reported.episode_id)
        call(self.on_report, reported)

    def alarm(self, alarm: Alarm) -> None:
        """A monitor has raised an alarm."""
        tell("alarm", what=alarm.what, says=alarm.says, after=alarm.after, halts=alarm.halts)
        call(self.on_alarm, alarm)


NOBODY = Notices()


def tell(event: str, **details: Any) -> None:
    """One record; text of others is one line of it."""
    said = " ".join(f"{name}={one_line(str(value))}" for name, value in details.items())
    LOGGER.log(EVENTS[event], "%s %s", event, said, extra={"event": event, "details": details})


def call(callback: Callable[[Any], Any] | None, told: Any) -> None:
    """Call back; an exception there is a record and nothing else."""
    if callback is None:
        return
    try:
        callback(told)
    except Exception as error:  # whatever somebody does with the news, the session goes on
        LOGGER.exception("callback failed: %s", one_line(str(error)), extra={"event": "callback", "details": {}})

"""Watching a run: does what is assumed still hold? Each monitor has its share of one probability of a false alarm."""

import math
from typing import Any

from episafe.monitors import round_monitors
from episafe.monitors.base import Watch
from episafe.monitors.episode_monitors import Monitors
from episafe.monitors.monitor_state import Alarm, halt_reason

__all__ = ["Alarm", "Monitors", "halt_reason", "monitors_for"]

BY_KIND: dict[str, type[Watch]] = {"mdp": Monitors, "bandit": round_monitors.Monitors, "rollout": Monitors}


def monitors_for(task: Any, delta: float) -> Watch | None:
    """The monitors of a task of whatever kind; None where utilities have no largest value, which all tests need."""
    if getattr(task, "horizon", 0.0) == math.inf:
        return None
    return BY_KIND[task.kind](task, delta)  # type: ignore[arg-type, call-arg]

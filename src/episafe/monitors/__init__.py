"""Watching a run: does what is assumed still hold? Each monitor has its share of one probability of a false alarm."""

from episafe.monitors.alarm import Alarm
from episafe.monitors.episode_monitors import Monitors

__all__ = ["Alarm", "Monitors"]

"""Toll booths on a real road: fewer booths, while 90 % of the hours have no queue, in every 28 days.

The traffic of a day is known in the evening, and so is what every roster would have done. Traffic drifts with the
season and with roadworks. So the promise is a window budget. It needs no statistics, only a roster that always keeps
up: all booths.
"""

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np

from episafe.problems.rules import Rules

sys.path.insert(0, str(Path(__file__).parent / "data"))
from days import run

NIGHT = (7, 0)  # before the weekday is known


class Booths(Rules):
    """An hour: choose the open booths, then vehicles come. A state is (weekday, queue); step 0 says the weekday."""

    horizon, num_actions, start, shape = 25, 5, NIGHT, (8, 25)
    unit, served = 350.0, 5  # vehicles per unit; units per booth and hour
    most, short = 32, 2  # units in an hour; a short queue
    units: ClassVar = {"reward": "share of booths closed", "utility": "hours without a queue (of 24)"}

    def capacity(self, action):
        return self.served * (2 + action)

    def support(self, h, state):
        return [(w,) for w in range(7 if h == 0 else self.most)]

    def incumbent(self, h, state):
        return np.eye(self.num_actions)[-1]

    def move(self, h, state, action, w):
        if h == 0:
            return (w[0], 0), 0.0, 0.0
        queue = min(max(state[1] + w[0] - self.capacity(action), 0), self.shape[1] - 1)
        return (state[0], queue), (4 - action) / 6, float(queue <= self.short)


def main(num_days=365, path=None):
    return run("road", Booths(), 0.9, num_days, path)


if __name__ == "__main__":
    main(path="road.png")

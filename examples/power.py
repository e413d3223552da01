"""Generators and a battery: fewer generators, while 95 % of the hours are supplied, in every 28 days."""

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np

from episafe.problems.rules import Rules

sys.path.insert(0, str(Path(__file__).parent / "data"))
from days import run


class Generators(Rules):
    """An hour: choose the running generators, then consumers draw power. A state is (weekday, battery level)."""

    horizon, num_actions, start, shape = 25, 7, (7, 0), (8, 7)
    unit, made, most = 400.0, 3, 22  # kW per unit; units per generator; in an hour
    units: ClassVar = {"reward": "share of generators off", "utility": "hours supplied (of 24)"}

    def capacity(self, action):
        return self.made * (1 + action)

    def support(self, h, state):
        return [(w,) for w in range(7 if h == 0 else self.most)]

    def incumbent(self, h, state):
        return np.eye(self.num_actions)[-1]

    def move(self, h, state, action, w):
        if h == 0:
            return (w[0], 3), 0.0, 0.0
        level = state[1] + self.capacity(action) - w[0]
        return (state[0], min(max(level, 0), self.shape[1] - 1)), (6 - action) / 7, float(level >= 0)


def main(num_days=365, path=None):
    return run("power", Generators(), 0.95, num_days, path)


if __name__ == "__main__":
    main(path="power.png")

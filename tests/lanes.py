"""An environment that says in every observation which copy, episode and step it belongs to; ends at different times."""

from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium import spaces

H = 5
SIZES = (8, 400, H + 1)  # copy, episode, step
ENDS = np.random.default_rng(0).integers(2, 8, size=SIZES[:2])


class Lane(gym.Env):
    """Copy `lane`: its episode e ends after `ends(lane, e)` steps; reward and cost say where they were paid.

    Args:
        lane: which copy.
        fixed: whether every start looks alike.
        limit: truncate after H steps, as a time limit does.
    """

    action_space = spaces.Discrete(2)
    observation_space = spaces.MultiDiscrete(SIZES)

    def __init__(self, lane, fixed=False, limit=True):
        self.lane, self.fixed, self.limit, self.e, self.played = lane, fixed, limit, -1, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.e, self.t = self.e + 1, 0
        self.played.append([])
        return (np.zeros(3, dtype=np.int64) if self.fixed else self.here()), {}

    def here(self):
        return np.array([self.lane, self.e, self.t])

    def step(self, action):
        assert not self.over(), "stepped after the end"
        self.t += 1
        self.played[-1].append(int(action))
        ended = self.t == ends(self.lane, self.e)
        info = {"cost": cost(self.lane, self.t)}
        return self.here(), reward(self.e, self.t), ended, self.limit and self.t == H and not ended, info

    def over(self):
        return self.t == ends(self.lane, self.e) or (self.limit and self.t == H)


def ends(lane, e):
    """2, 3, 4 or 5 steps, and 6, 7 for never."""
    return int(ENDS[lane, e])


def reward(e, t):
    return (10 * (e % 10) + t) / 100


def cost(lane, t):
    return (10 * lane + t) / 100


def lanes(kind, mode, count=4, **settings):
    """A vector environment of `count` lanes."""
    return kind([partial(Lane, i, **settings) for i in range(count)], autoreset_mode=mode)

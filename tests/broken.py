"""Environments that are broken, each in one way, and what the refusal must say."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

H = 3


class Walk(gym.Env):
    """A sound environment: a counter from 0, action 1 pays and costs."""

    action_space: spaces.Space = spaces.Discrete(2)
    observation_space: spaces.Space = spaces.Discrete(50)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.start(), {}

    def start(self):
        return 0

    def step(self, action):
        self.t += 1
        return self.returned(self.t, float(action), False, False, {"cost": float(action)})

    def returned(self, *values):
        return values


def returning(change, **attributes):
    """Walk whose step returns `change(observation, reward, terminated, truncated, info)`."""
    return type("Changed", (Walk,), {"returned": lambda self, *values: change(*values), **attributes})()


def starting(change):
    """Walk whose reset returns `change(environment)`."""

    class Changed(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return change(self)

    return Changed()


def drifting():
    """Starts at 0 whenever it is seeded, and one further at each reset after that."""

    class Drifting(Walk):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.k = 0 if seed is not None else self.k + 1
            return self.k, {}

    return Drifting()


def limited(steps):
    """Walk with a time limit that its spec says."""
    env = Walk()
    env.spec = gym.envs.registration.EnvSpec("Walk-v0", entry_point=Walk, max_episode_steps=steps)
    return env


def boxed(value, space=None):
    """Walk with one continuous observation, `value` from the first step on."""
    space = space or spaces.Box(-1.0, 1.0, (2,), np.float64)
    return type(
        "Boxed",
        (Walk,),
        {
            "observation_space": space,
            "start": lambda self: np.zeros(2),
            "returned": lambda self, o, *rest: (value, *rest),
        },
    )()


def psi(observation):
    """Two sound features of a point of the square."""
    return np.array([0.5, 0.1 * float(np.ravel(observation)[0])])


GOOD = {"features": "one-hot", "horizon": H, "cost_limit": 1.0, "slack": 0.5, "safe_policy": lambda h, s: [1.0, 0.0]}
UTILITY = {"cost_limit": None, "threshold": 1.0}

# name: (environment, changed arguments, what the message must say)
BROKEN = {
    "no environment": (object(), {}, "must be a Gymnasium environment"),
    "a class": (Walk, {}, "an object and not its class|missing"),
    "four values": (returning(lambda o, r, d, t, i: (o, r, d, i)), {}, "4 values.*split into terminated and truncated"),
    "three values": (returning(lambda o, r, d, t, i: (o, r, i)), {}, "3 values"),
    "seven values": (returning(lambda *v: (*v, 0, 0)), {}, "7 values"),
    "a list": (returning(lambda *v: list(v)), {}, "got list"),
    "info is no dict": (returning(lambda o, r, d, t, i: (o, r, d, t, None)), {}, "info at step 1.*must be a dict"),
    "info before the flags": (returning(lambda o, r, d, t, i: (o, r, i, d, t)), {}, "must be a dict.*return it last"),
    "signal missing": (returning(lambda o, r, d, t, i: (o, r, d, t, {})), {}, 'has no "cost"'),
    "signal missing later": (
        returning(lambda o, r, d, t, i: (o, r, d, t, i if o < 3 else {})), {}, 'step 3 of episode 1 has no "cost"',
    ),
    "both signals": (returning(lambda o, r, d, t, i: (o, r, d, t, i | {"utility": 1.0})), {}, "both.*leave out"),
    "a cost with a threshold": (Walk(), UTILITY, 'has "cost" and not "utility": give cost_limit'),
    "a utility with a cost limit": (
        returning(lambda o, r, d, t, i: (o, r, d, t, {"utility": 1.0})), {}, "give threshold=… in place of cost_limit",
    ),
    "six values with a threshold": (returning(lambda o, r, *v: (o, r, 0.0, *v)), UTILITY, "give cost_limit"),
    "six values and another cost": (returning(lambda o, r, *v: (o, r, 0.7, *v)), {}, "another signal in info"),
    "reward NaN": (returning(lambda o, r, *v: (o, np.nan, *v)), {}, "reward at step 1.*must be finite"),
    "reward infinite": (returning(lambda o, r, *v: (o, np.inf, *v)), {}, "reward at step 1.*must be finite"),
    "reward too large": (returning(lambda o, r, *v: (o, 7.0, *v)), {}, "is 7, outside.*as reward_range="),
    "reward negative": (returning(lambda o, r, *v: (o, -1.0, *v)), {}, "is -1, outside.*reward_range"),
    "reward an array": (returning(lambda o, r, *v: (o, np.zeros(2), *v)), {}, "reward.*must be a number"),
    "reward None": (returning(lambda o, r, *v: (o, None, *v)), {}, "reward at step 1.*must be a number"),
    "cost NaN": (returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": np.nan})), {}, "cost at step 1.*finite"),
    "cost too large": (returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": 2.0})), {}, "as cost_range="),
    "cost a truth value": (returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": True})), {}, "a number, got True"),
    "utility negative": (
        returning(lambda o, r, d, t, i: (o, r, d, t, {"utility": -0.5})), UTILITY, "as utility_range=",
    ),
    "terminated a number": (returning(lambda o, r, d, *v: (o, r, 0, *v)), {}, r"terminated.*convert it with bool"),
    "truncated None": (returning(lambda o, r, d, t, i: (o, r, d, None, i)), {}, "truncated.*must be True or False"),
    "truncated too early": (
        returning(lambda o, r, d, t, i: (o, r, d, o == 2, i)), {}, "truncates at step 2.*give horizon=2",
    ),
    "time limit too short": (limited(2), {}, "time limit is 2 steps and the horizon 3.*max_episode_steps=3"),
    "time limit too long": (limited(9), {}, "time limit is 9 steps and the horizon 3"),
    "horizon 0": (Walk(), {"horizon": 0}, "horizon must be a whole number"),
    "horizon a fraction": (Walk(), {"horizon": 2.5}, "horizon must be a whole number"),
    "reset returns no tuple": (starting(lambda env: 0), {}, "reset must return .observation, info."),
    "reset without info": (starting(lambda env: (0, None)), {}, "with info a dict"),
    "start outside the space": (starting(lambda env: (99, {})), {}, "not in the observation space"),
    "start drawn at random": (
        starting(lambda env: (int(env.np_random.integers(9)), {})), {}, "start is not fixed.*random_start=True",
    ),
    "start that drifts": (drifting(), {}, "episode 1 starts at 1.*random_start=True"),
    "observation outside the space": (returning(lambda o, *v: (60, *v)), {}, "observation 60 at step 1"),
    "observation NaN": (boxed(np.array([np.nan, 0.0])), {"features": psi}, "at step 1.*not in the observation space"),
    "observation of another shape": (boxed(np.zeros(3)), {"features": psi}, "not in the observation space"),
    "observations are a dict": (
        returning(lambda *v: v, observation_space=spaces.Dict({"x": spaces.Discrete(2)})), {}, "FlattenObservation",
    ),
    "continuous actions": (
        returning(lambda *v: v, action_space=spaces.Box(-1.0, 1.0, (1,))), {}, "actions are Discrete",
    ),
    "too many actions": (
        returning(lambda *v: v, action_space=spaces.MultiDiscrete([99, 99])), {}, "9801 actions.*offers fewer",
    ),
    "one-hot of a continuum": (boxed(np.zeros(2)), {}, "one-hot features need countable observations"),
    "features of norm 2": (Walk(), {"features": lambda s: np.array([2.0])}, "norm 2 > 1: divide"),
    "features of norm 2 later": (Walk(), {"features": lambda s: np.array([0.9 * s])}, "state 2.*norm 1.8 > 1"),
    "features NaN": (Walk(), {"features": lambda s: np.array([np.nan])}, "features at 0.*finite"),
    "features that change length": (Walk(), {"features": lambda s: np.zeros(1 + s)}, "features at 1.*shape"),
    "features for three actions": (Walk(), {"features": lambda s: np.zeros((3, 4))}, "one row for each of 2 actions"),
    "features no function": (Walk(), {"features": np.zeros((2, 2))}, "features must be OneHot"),
    "no limit": (Walk(), {"cost_limit": None}, "exactly one of threshold"),
    "two limits": (Walk(), {"threshold": 1.0}, "exactly one of threshold"),
    "limit NaN": (Walk(), {"cost_limit": np.nan}, "cost_limit must be finite"),
    "limit below zero": (Walk(), {"cost_limit": -1.0}, "cannot be kept in 3 steps"),
    "no slack": (Walk(), {"slack": 0.0}, "slack must be > 0"),
    "range upside down": (Walk(), {"reward_range": (1.0, 0.0)}, "lowest < highest"),
    "range of the other signal": (Walk(), {"utility_range": (0.0, 1.0)}, "give cost_range"),
    "range without zero": (Walk(), {"reward_range": (1.0, 2.0)}, "leaves out 0"),
    "incumbent no distribution": (Walk(), {"safe_policy": lambda h, s: [1.0, 1.0]}, "sums to 2"),
    "incumbent an action": (Walk(), {"safe_policy": lambda h, s: 0}, "must have shape .2"),
    "incumbent no function": (Walk(), {"safe_policy": [1.0, 0.0]}, "safe_policy must be a function"),
    "a vector environment": (gym.vector.SyncVectorEnv([Walk, Walk]), {}, "vector environment"),
}  # fmt: skip

"""Environments that are broken, each in one way, and what the refusal must say."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from episafe.problems.features import OneHot

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


def paired(value):
    """Walk whose observations are pairs of a number and a point, `value` from the first step on."""
    pair = spaces.Tuple([spaces.Discrete(50), spaces.Box(-np.inf, np.inf, (1,), np.float64)])
    changes = {"observation_space": pair, "start": lambda self: (0, np.zeros(1))}
    return returning(lambda o, *rest: ((o, np.array([value])), *rest), **changes)


def psi(observation):
    """Two sound features of a point of the square."""
    return np.array([0.5, 0.1 * float(np.ravel(observation)[0])])


def vector(change=lambda *v: v, mode="SAME_STEP", of=Walk, **metadata):
    """Three copies of `of` in a vector environment whose step returns `change(…)` of what it returns."""

    class Changed(gym.vector.SyncVectorEnv):
        def step(self, actions):
            return change(*super().step(actions))

    env = Changed([of] * 3, autoreset_mode=gym.vector.AutoresetMode[mode])
    env.metadata = env.metadata | metadata
    return env


def at(number, value):
    """An array of three whose entry `number` is replaced."""
    return lambda array: np.array([value if i == number else x for i, x in enumerate(array)])


def sub(number, change, **attributes):
    """A vector environment of three Walks, one of them changed."""
    made = [Walk, Walk, Walk]
    made[number] = lambda: returning(change, **attributes)
    return gym.vector.SyncVectorEnv(made)


def lying(true, named):
    """A vector environment that ends after two steps, resets by one mode and names another."""
    ending = type("Ending", (Walk,), {"returned": lambda self, o, r, d, t, i: (o, r, o == 2, t, i)})
    return vector(mode=true, of=ending, autoreset_mode=gym.vector.AutoresetMode[named])


def deaf(count=3):
    """Mode DISABLED, but `reset` does not look at the mask; the first copy ends after one step."""

    class Deaf(gym.vector.SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    ending = type("Ending", (Walk,), {"returned": lambda self, o, r, d, t, i: (o, r, o == 1, t, i)})
    return Deaf([ending] + [Walk] * (count - 1), autoreset_mode=gym.vector.AutoresetMode.DISABLED)


def without_shared_memory():
    """As AsyncVectorEnv(shared_memory=False) looks, without its processes."""
    env = gym.vector.SyncVectorEnv([Walk] * 3)
    env.shared_memory = False
    return env


GOOD = {"features": "one-hot", "horizon": H, "cost_limit": 1.0, "slack": 0.5, "safe_policy": lambda h, s: [1.0, 0.0]}
UTILITY = {"cost_limit": None, "threshold": 1.0}

# name: (environment, changed arguments, what the message must say)
BROKEN = {
    "no environment": (object(), {}, "must be a Gymnasium environment"),
    "a class": (Walk, {}, "an object and not its class"),
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
    "time limit by a wrapper": (
        gym.wrappers.TimeLimit(Walk(), 9), {}, "time limit is 9 steps and the horizon 3.*env.unwrapped",
    ),
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
    "six values with the cost last but one": (
        returning(lambda o, r, d, t, i: (o, r, d, t, 0.0, i)), {}, "truncated at step 1.*must be True or False",
    ),
    "six values with a cost of None": (returning(lambda o, r, *v: (o, r, None, *v[:2], {})), {}, "cost at step 1"),
    "six values with a cost of NaN": (returning(lambda o, r, *v: (o, r, np.nan, *v[:2], {})), {}, "cost.*finite"),
    "six values and a utility": (
        returning(lambda o, r, d, t, i: (o, r, 0.0, d, t, {"utility": 1.0})), {}, "another signal in info",
    ),
    "cost a list": (returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": [0.0]})), {}, "cost at step 1.*a number"),
    "cost below its range": (
        returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": 1.0})), {"cost_range": (-9.0, 0.5), "cost_limit": 1.0},
        "is 1, outside .-9, 0.5.: give its true range",
    ),
    "actions of a text": (returning(lambda *v: v, action_space=spaces.Text(3)), {}, "not finite: wrap"),
    "actions a tuple": (
        returning(lambda *v: v, action_space=spaces.Tuple([spaces.Discrete(2)])), {}, "actions are Discrete",
    ),
    "observations a text": (returning(lambda *v: v, observation_space=spaces.Text(3)), {}, "TransformObservation"),
    "observations a sequence": (
        returning(lambda *v: v, observation_space=spaces.Sequence(spaces.Discrete(2))), {}, "TransformObservation",
    ),
    "observation infinite": (
        boxed(np.array([np.inf, 0.0]), spaces.Box(-np.inf, np.inf, (2,), np.float64)), {"features": psi}, "not finite",
    ),
    "observation NaN in an open box": (
        boxed(np.array([np.nan, 0.0]), spaces.Box(-np.inf, np.inf, (2,), np.float64)), {"features": psi},
        "at step 1",
    ),
    "observation infinite in a tuple": (
        paired(np.inf), {"features": lambda s: np.array([0.5])}, "at step 1.*not finite: mend",
    ),
    "reset takes no seed": (
        type("Old", (Walk,), {"reset": lambda self: (0, {})})(), {}, "reset must take a seed.*wrap older environments",
    ),
    "random start a word": (Walk(), {"random_start": "no"}, "random_start must be True or False.*give"),
    "cost masked": (
        returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": np.ma.masked})), {}, "cost at step 1.*must be a number",
    ),
    "six values with two costs": (
        returning(lambda o, r, d, t, i: (o, r, np.zeros(2), d, t, {"cost": np.zeros(2)})), {},
        "cost at step 1.*must be a number",
    ),
    "observation a float for a number": (returning(lambda o, *v: (float(o), *v)), {}, "its type counts"),
    "told rewards out of range": (Walk(), {"reward": lambda h, s: [2.0, 0.0]}, "reward at step 0.*rescale"),
    "told utilities for three actions": (Walk(), {"utility": lambda h, s: np.zeros(3)}, "utility at state 0.*shape"),
    "told utilities that differ in a cell": (
        Walk(),
        {"features": OneHot(lambda s: s > 0, 2), "utility": lambda h, s: [1 - s / 9] * 2, "time_homogeneous": True},
        "utility= at step 0, state 2.*give finer cells",
    ),
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
}  # fmt: skip

BROKEN_VECTORS = {
    "autoreset mode not named": (vector(autoreset_mode=None), {}, "autoreset_mode.*None: set it to"),
    "autoreset mode unknown": (vector(autoreset_mode="sometimes"), {}, "'sometimes': set it to"),
    "autoreset mode a string": (vector(autoreset_mode="NextStep"), {}, "'NextStep': set it to"),
    "next step, named same step": (lying("NEXT_STEP", "SAME_STEP"), {}, 'no "final_obs".*set'),
    "same step, named next step": (lying("SAME_STEP", "NEXT_STEP"), {}, 'have "final_obs", as mode SAME_STEP has'),
    "a mask that is not heard": (deaf(), {}, "changed sub-environment 1.*mend reset"),
    "no shared memory": (without_shared_memory(), {}, "use shared_memory=True"),
    "final info a list": (
        vector(
            lambda o, r, d, t, i: (o, r, d, t, i | {"final_info": [{}] * 3} if "final_obs" in i else i),
            of=type("Ending", (Walk,), {"returned": lambda self, o, r, d, t, i: (o, r, o == 2, t, i)}),
        ), {}, "dict of arrays with masks.*convert",
    ),
    "final cost missing": (
        vector(of=lambda: returning(lambda o, r, d, t, i: (o, r, o == 2, t, {} if o == 2 else i))), {},
        'step 2 of episode 1, sub-environment 0 has no "cost"',
    ),
    "cost missing in one": (
        sub(1, lambda o, r, d, t, i: (o, r, d, t, {})), {}, 'step 1 of episode 2, sub-environment 1 has no "cost"',
    ),
    "cost missing in all": (vector(lambda o, r, d, t, i: (o, r, d, t, {})), {}, 'has no "cost"'),
    "both signals in one": (
        sub(2, lambda o, r, d, t, i: (o, r, d, t, i | {"utility": 0.5})), {}, "sub-environment 2 has both",
    ),
    "cost without a mask": (
        vector(lambda o, r, d, t, i: (o, r, d, t, {"cost": i["cost"]})), {}, 'without the mask "_cost".*add it',
    ),
    "mask of another length": (
        vector(lambda o, r, d, t, i: (o, r, d, t, i | {"_cost": i["_cost"][:2]})), {}, '_cost.*must have shape .3',
    ),
    "costs whole in one and fractions in another": (
        gym.vector.SyncVectorEnv([
            lambda: returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": 0})),
            lambda: returning(lambda o, r, d, t, i: (o, r, d, t, {"cost": 0.9})),
        ]), {}, r"type int64: report float\(cost\) in every sub-environment",
    ),
    "cost too large in one": (
        sub(1, lambda o, r, d, t, i: (o, r, d, t, {"cost": 3.0})), {}, "episode 2, sub-environment 1 is 3.*cost_range=",
    ),
    "reward NaN in one": (
        vector(lambda o, r, d, t, i: (o, at(2, np.nan)(r), d, t, i)), {}, "reward.*sub-environment 2 must be finite",
    ),
    "one reward for all": (vector(lambda o, r, d, t, i: (o, 0.5, d, t, i)), {}, "rewards at step 1.*shape .3,."),
    "one flag for all": (vector(lambda o, r, d, t, i: (o, r, False, t, i)), {}, "terminations at step 1.*shape"),
    "flags as numbers": (vector(lambda o, r, d, t, i: (o, r, d * 1, t, i)), {}, "terminated.*convert it with bool"),
    "infos a list of dicts": (vector(lambda o, r, d, t, i: (o, r, d, t, [i])), {}, "infos.*must be a dict.*return"),
    "four values of a vector": (vector(lambda o, r, d, t, i: (o, r, d, i)), {}, "got 4: return all"),
    "too few observations": (vector(lambda o, *v: (o[:2], *v)), {}, "return one for each of 3"),
    "observations no array": (vector(lambda o, *v: (7, *v)), {}, "no batch of.*return one for each"),
    "observation outside the space in one": (
        vector(lambda o, *v: (at(1, 77)(o), *v)), {}, "observation .*77.* at step 1 of episode 2, sub-environment 1",
    ),
    "truncated too early in one": (
        sub(1, lambda o, r, d, t, i: (o, r, d, o == 2, i)), {},
        "truncates at step 2 of episode 2, sub-environment 1.*give horizon=2",
    ),
    "time limits that differ from the horizon": (
        gym.vector.SyncVectorEnv([Walk, lambda: limited(9)]), {}, "time limit is 9 steps and the horizon 3",
    ),
    "another start in one": (
        gym.vector.SyncVectorEnv([Walk, Walk, lambda: starting(lambda env: (4, {}))]), {},
        "start is not fixed.*in sub-environment 2; give random_start=True",
    ),
    "a start that drifts in one": (
        gym.vector.SyncVectorEnv([Walk, drifting]), {}, "episode 2, in sub-environment 1, starts at 1.*random_start",
    ),
    "continuous actions in a vector": (
        vector(of=type("Box", (Walk,), {"action_space": spaces.Box(-1.0, 1.0, (1,))})), {}, "actions are Discrete",
    ),
}  # fmt: skip

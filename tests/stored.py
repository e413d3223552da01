"""Agents and worlds of every kind, and what it means for two of them to be the same bit for bit."""

import gymnasium as gym
import numpy as np

import episafe as es
from broken import GOOD, Walk, psi
from conftest import constants
from episafe.testing.assertions import require_same_arrays, require_same_records

LINEAR = ("tabular", "streaming", "linear")


def same_state(state, other):
    """Whether two states have the same names, and arrays of the same type, shape and bytes."""
    require_same_arrays(state, other, "the states differ")


def same_record(record, other):
    require_same_records(record, other, "the records differ")


def same_plan(plan, other, task, states):
    """The same facts, and the same probabilities at these states, bit for bit."""
    assert (plan.id, plan.source, plan.level, plan.reason) == (other.id, other.source, other.level, other.reason)
    np.testing.assert_array_equal([plan.lam, plan.utility_bound], [other.lam, other.utility_bound])
    ours, theirs = (getattr(p.policy, "components", (p.policy,)) for p in (plan, other))
    assert len(ours) == len(theirs)
    np.testing.assert_array_equal(getattr(plan.policy, "weights", 1), getattr(other.policy, "weights", 1))
    for policy, again in zip(ours, theirs, strict=True):
        for h in range(task.horizon):
            for state in states:
                assert policy.probabilities(h, state).tobytes() == again.probabilities(h, state).tobytes()
        if task.num_states is not None:
            assert policy.table().tobytes() == again.table().tobytes()


def by_tuples(slack=1.0):
    """Features of states that are tuples of numbers and text."""
    corners = [(0.5, "a"), (1.5, "b"), (-0.25, "a"), (0.1, "b")]

    def features(state):
        x = np.array([abs(state[0]), 1.0, float(state[1] == "a")]) / 3
        return np.concatenate([np.kron(np.eye(2), x)], axis=1)

    return es.SampledCMDP(
        features=features,
        reward=lambda h, s: np.array([0.2, min(abs(s[0]), 1.0)]),
        utility=lambda h, s: np.array([0.9, 0.4]),
        sample=lambda h, s, a, rng: corners[rng.integers(4)],
        horizon=3,
        num_actions=2,
        initial_state=(0.0, "a"),
        threshold=1.5,
        safe_policy=lambda h, s: np.array([1.0, 0.0]),
        slack=slack,
    )


def walk(**changes):
    """A Gymnasium environment with a cost; reward and utility are learned, and it might end early."""
    return es.from_gymnasium(Walk(), **{**GOOD, **changes})


class Drift(gym.Env):
    """Observations are arrays; the start is random."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._x = np.round(self.np_random.random(2), 1)
        return self._x.copy(), {}

    def step(self, action):
        self._x = np.clip(np.round(self._x + (0.1, -0.1)[action], 1), -1, 1)
        return self._x.copy(), float(self._x[0] > 0.5), False, False, {"utility": float(self._x[1] > 0)}


def drift(features):
    return es.from_gymnasium(
        Drift(),
        features=features,
        horizon=3,
        threshold=1.0,
        safe_policy=lambda h, x: np.array([1.0, 0.0]),
        slack=0.5,
        random_start=True,
    )


WORLDS = {
    **{name: (lambda name=name: es.make(name, seed=3)) for name in LINEAR},
    "tuples": by_tuples,
    "walk one-hot": lambda: walk(features=es.features.OneHot()),
    "walk features": lambda: walk(features=lambda s: psi([s / 50])),
    "walk shared": lambda: walk(features=es.features.OneHot(), time_homogeneous=True),
    "walk shared features": lambda: walk(features=lambda s: psi([s / 50]), time_homogeneous=True),
    "drift features": lambda: drift(lambda x: np.append(np.abs(x), 1.0) / 2),
    "drift cells": lambda: drift(es.features.OneHot(lambda x: tuple(np.floor(x * 2).tolist()), 25)),
}
STATES = {
    "tuples": [(0.0, "a"), (0.5, "a"), (99.0, "b")],
    "walk one-hot": [0, 1, 3, 40],
    "walk features": [0, 1, 3, 40],
    "walk shared": [0, 1, 3, 40],
    "walk shared features": [0, 1, 3, 40],
    "drift features": [np.array([0.3, 0.4]), np.array([5.0, -5.0])],
    "drift cells": [np.array([0.3, 0.4]), np.array([5.0, -5.0])],
}


def states_of(name, task):
    return STATES.get(name, range(task.num_states or 0))


EAGER = {"C_r": 0.3, "C_u": 0.05, "C_theta": 0.05, "ridge": 0.1}

AGENTS = {
    "opse": lambda task: es.OPSE(task, constants(**EAGER), es.Doubling(0.3)),
    "opse warm": lambda task: es.OPSE(task, constants(**EAGER), search=es.WarmStart()),
    "opse incumbent first": lambda task: es.OPSE(task, constants(**EAGER), es.Doubling(0.1), num_safe_episodes=70),
    "opse observation": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Observation(0.1)),
    "ghosh": lambda task: es.Ghosh2024(task, constants(**EAGER)),
    "opse no incumbent": lambda task: es.AblatedOPSE(task, constants(**EAGER), without="incumbent"),
    "opse no compensation": lambda task: es.AblatedOPSE(task, constants(**EAGER), without="compensation"),
    "opse no randomness": lambda task: es.AblatedOPSE(task, constants(**EAGER), without="randomness"),
    "lsvi-ucb": lambda task: es.LSVIUCB(task, 1000, bonus=0.001),
    "ghosh2022": lambda task: es.Ghosh2022(task, 1000, bonus=0.001),
    "uniform": lambda task: es.Fixed(task, "uniform"),
}
FINITE_AGENTS = {
    "opse fresh data": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.FreshData(0.1)),
    "opse box": lambda task: es.OPSE(task, es.Constants.proposing(), certifier=es.certify.Box(0.1)),
    "dope": lambda task: es.DOPE(task, constants(C_u=0.1), es.Doubling(0.3)),
    "optpess-lp": lambda task: es.OptPessLP(task, 1000, bonus=1e-3, replan=es.Doubling(0.3)),
    "optcmdp": lambda task: es.OptCMDP(task, 1000, bonus=0.01, replan=es.Doubling(0.3)),
    "optcmdp-bonus": lambda task: es.OptCMDPBonus(task, 1000, bonus=0.01),
    "opse no entropy": lambda task: es.AblatedOPSE(task, constants(**EAGER), without="entropy"),
    "epsmix": lambda task: es.EpsMix(task, bonus=1e-4),
    "stepmix": lambda task: es.StepMix(task, bonus=1e-4, replan=es.Doubling(0.3)),
    "triple-q": lambda task: es.TripleQ(task, 300, bonus=1e-4),
    "optdual": lambda task: es.OptDual(task, 1000, bonus=0.01),
    "optprimaldual": lambda task: es.OptPrimalDual(task, 1000, bonus=0.001),
    "optpess-primaldual": lambda task: es.OptPessPrimalDual(task, 1000, bonus=0.001),
}
FEATURE_AGENTS = {
    "opse sections": lambda task: es.OPSE(task, constants(**EAGER), search=es.Sections(4)),
}


def pairs():
    """Every agent with every world that it can live in."""
    for world in WORLDS:
        known = {**AGENTS, **(FINITE_AGENTS if world in LINEAR else {})}
        known |= FEATURE_AGENTS if world in ("linear", "tuples") else {}
        yield from ((world, agent, known[agent]) for agent in known)

"""Worlds: each plays policies of one kind of problem and, where it can, knows exact values.

A world draws all its randomness from three streams: transitions, actions, and the components of mixtures.
"""

import math
import secrets
import sys
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np

from episafe.core.agent import Agent
from episafe.core.checks import TOLERANCE, distinct_steps, require
from episafe.core.errors import Infeasible
from episafe.core.policy import Mixture, Policy
from episafe.core.task import Problem, Task
from episafe.core.types import Array, Episode, IntArray, Plan, Settings
from episafe.kernels.simulation import Law, follow, follow_chance, running_sums
from episafe.problems.linear import LinearCMDP
from episafe.problems.sampled import read_steps

OTHERS = (  # module and class of the problem, and its world
    ("gym.adapter", "GymCMDP", "worlds:GymWorld"),
    ("problems.sampled", "SampledCMDP", "worlds:World"),
    ("problems.bandit", "LinearBandit", "bandit_world:BanditWorld"),
)


Traced = tuple[IntArray, IntArray, IntArray, Array, Array]  # see `ListedWorld.play_all`
FOREIGN = "the agent was built for another problem: build it from this problem's task"


def require_reach(told: Task, true: Array) -> None:
    """Raise Infeasible if the incumbent's true utilities (m,) are below those that an agent is told."""
    text = f"utility {told.stated_utilities.tolist()}, but it has {true.tolist()}"
    reaches = (true >= told.stated_utilities - TOLERANCE).all()
    require(reaches, f"the task states that the incumbent has {text}: correct the slack", Infeasible)


class Streams(NamedTuple):
    """The random streams of a run. Bandits use the seed alone: random inputs depend on it and the round."""

    seed: int
    transitions: np.random.Generator
    choices: np.random.Generator
    mixing: np.random.Generator


def make_streams(seed: int) -> Streams:
    """Return the streams that belong to a seed."""
    return Streams(seed, *(np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(3)))


class World:
    """The world of a problem given by functions, whose exact values are unknown; the subclasses say what differs.

    Attributes:
        unknown: whether exact values are unknown, so that totals are kept.
        changes: whether the optimum changes with the episode.
        unit: what records call an episode.
    """

    unknown, changes, unit = True, False, "episodes"

    def __init__(self, problem: Any, streams: Streams) -> None:
        self.problem, self.streams = problem, streams

    def check(self, agent: Agent, num_episodes: int) -> None:
        """Raise if the agent was built for another problem, or told something false of this one."""
        require(agent.task is self.problem.task, FOREIGN)

    def draw(self, plan: Plan) -> tuple[int | None, Policy]:
        """Return the component that acts, None if the plan is no mixture, and the acting policy."""
        return plan.policy.draw(self.streams.mixing) if isinstance(plan.policy, Mixture) else (None, plan.policy)

    def values(self, plan: Plan) -> tuple[float, float | Array]:
        """Return the exact V^r and V^u of a plan; NaN where they are unknown."""
        return math.nan, np.full(self.problem.task.num_constraints, math.nan)

    def optimum(self, k: int = 0) -> float:
        """Return the exact optimum, that of episode k where it changes; NaN where it is unknown."""
        return math.nan

    def play(self, k: int, policy: Policy, component: int | None) -> Episode:
        """Play episode k: actions from one stream, transitions and chance from another."""
        problem, streams, rows = self.problem, self.streams, []
        state = begun = problem.reset()
        for h in range(problem.task.horizon):
            action = policy.act(h, state, streams.choices)
            state, *signals = problem.step(h, state, action, streams.transitions)
            rows.append((action, *signals, state))
        return read_steps(problem.task, begun, rows, component)

    def totals(self, episode: Episode) -> Array:
        """Return the total reward and utilities of an episode, (1 + m,)."""
        read = self.problem.task.read(episode)
        return np.append(read.total_reward, read.total_utility)

    def settings(self) -> Settings:
        """Return what a record says beside the problem's origin."""
        return {}

    def doubt(self) -> str:
        """Return one sentence on a likely mistake that can be found before the first episode; "" if none."""
        return ""

    def slack_units(self) -> Array:
        """Return what a slack of 1 is in the units in which the user states slacks, (m,)."""
        return np.ones(self.problem.task.num_constraints)

    def end(self) -> None:
        """Release what the run holds."""


class ListedWorld(World):
    """A problem with a known kernel: every value is exact. Episodes have traces if the agent uses them."""

    unknown = False

    def __init__(self, problem: LinearCMDP, streams: Streams, traced: bool = False) -> None:
        super().__init__(problem, streams)
        self.traced = traced
        self.sums = lru_cache(maxsize=64)(lambda policy: running_sums(policy.table()))
        self._states = np.empty(problem.P.shape[0] + 1, dtype=np.int64)
        self._actions, self._uniform = np.empty(problem.P.shape[0], dtype=np.int64), np.empty((2, problem.P.shape[0]))

    @cached_property
    def law(self) -> Law:
        """Return what loops know, read-only and in C order; P has one row if all steps share memory."""
        P, utilities = distinct_steps(self.problem.P), np.stack(self.problem._utilities)
        arrays = P, running, reward, utilities = [
            np.ascontiguousarray(array).view() for array in (P, running_sums(P), self.problem._reward, utilities)
        ]
        for array in arrays:
            array.setflags(write=False)
        return Law(P, running, reward, utilities, self.problem.task.initial_state)

    def check(self, agent: Agent, num_episodes: int) -> None:
        """Raise if the agent's task is of another problem, or states what the kernel shows to be false."""
        told, task = agent.task, self.problem.task
        require(told is task or _same(told, task), FOREIGN)
        if agent.level == "theorem" and told is not task:
            require_reach(told, np.atleast_1d(self.problem.evaluate(told.incumbent)[1]))

    def values(self, plan: Plan) -> tuple[float, float | Array]:
        """Return the exact V^r and V^u of a plan."""
        return self.problem.evaluate(plan.policy)

    def optimum(self, k: int = 0) -> float:
        """Return the exact constrained optimum."""
        return float(self.problem.optimal_value())

    def settings(self) -> Settings:
        """Return the exact values of the incumbent, to compare with."""
        reward, utility = self.problem.evaluate(self.problem.task.incumbent)
        if np.ndim(utility) == 0:
            return {"incumbent_reward": reward, "incumbent_utility": utility}
        numbered = {f"incumbent_utility_{c}": one for c, one in enumerate(utility.tolist(), 1)}
        return {"incumbent_reward": reward, **numbered}

    def play(self, k: int, policy: Policy, component: int | None) -> Episode:
        """Play episode k."""
        if self.traced:
            return self.episode(self.play_all([policy], np.zeros(1, dtype=np.int64)), 0, component)
        states, actions, uniform = self._states, self._actions, self._uniform
        states[0] = self.problem.task.initial_state
        self.streams.choices.random(out=uniform[0])
        self.streams.transitions.random(out=uniform[1])
        follow(self.sums(policy), self.law.running, uniform, states, actions)
        path = states.copy(), actions.copy()
        if self.problem.task.knows_reward:
            return Episode(*path, component=component)
        at = np.arange(len(actions)), path[0][:-1], path[1]  # a learner that is told no signals observes them
        utilities = np.stack([u[at] for u in self.problem._utilities], axis=1)
        return Episode(*path, self.problem._reward[at], utilities, component)

    def totals(self, episode: Episode) -> Array:
        """Return the total reward and utilities of an episode, (1 + m,)."""
        if episode.rewards is not None:
            return np.append(episode.rewards.cumsum()[-1], episode.utilities.cumsum(axis=0)[-1])
        at = np.arange(len(episode.actions)), episode.states[:-1], episode.actions
        signals = self.problem._reward, *self.problem._utilities
        return np.array([signal[at].cumsum()[-1] for signal in signals])  # in order, as compiled loops add

    def play_all(self, policies: Sequence[Policy], acting: IntArray) -> Traced:
        """Play E episodes with their traces; policies[acting[e]] acts in episode e, acting (E,).

        Return states (E, H+1), actions (E, H), numbers of the chance values (E, H), rewards and utilities (E, H, ·).
        """
        law, H, E = self.problem.chance_law, self.problem.task.horizon, len(acting)
        uniform = self.streams.choices.random((E, H)), self.streams.transitions.random((E, H))
        states, actions, chances = (np.empty((E, length), dtype=np.int64) for length in (H + 1, H, H))
        states[:, 0] = self.problem.task.initial_state
        sums = np.array([self.sums(policy) for policy in policies])
        follow_chance(sums, acting, law.running, law.move.next_states, uniform, (states, actions, chances))
        rows = np.minimum(np.arange(H), len(law.move.next_states) - 1)  # one row for all steps, or one per step
        at = rows, states[:, :-1], actions, chances
        return states, actions, chances, law.move.rewards[at], law.move.utilities[at]

    def episode(self, made: Traced, e: int, component: int | None) -> Episode:
        """Return episode e of those that were played, with its trace."""
        states, actions, chances, rewards, utilities = (column[e] for column in made)
        values = self.problem.chance_law.move.values
        trace = self.problem.task.initial_state, tuple(values[i] for i in chances.tolist())
        return Episode(states, actions, rewards, utilities, component, trace)


class GymWorld(World):
    """A Gymnasium environment; it receives a seed of its own from the stream of transitions."""

    def __init__(self, problem: Any, streams: Streams) -> None:
        super().__init__(problem, streams)
        self._own_seed = int(streams.transitions.integers(2**31))
        problem.seed(self._own_seed)

    def play(self, k: int, policy: Policy, component: int | None) -> Episode:
        """Play episode k."""
        episode: Episode = self.problem.play(policy, self.streams.choices, component)
        return episode

    def doubt(self) -> str:
        """Compare the horizon with episodes that are continued after it, if the environment has no time limit."""
        found = self.problem.true_length(self._own_seed + 1)
        self.problem.seed(self._own_seed)
        return (
            ""
            if found is None
            else f"episodes end after {found} steps, but the horizon is shorter: give horizon={found}"
        )

    def end(self) -> None:
        """Leave fresh randomness: what is played next must not repeat episodes of this run."""
        self.problem.seed(secrets.randbelow(2**31))

    def slack_units(self) -> Array:
        """Return the widths of the ranges of the signals."""
        return np.array([one.width for one in self.problem.limits])


def _same(one: Task, other: Task) -> bool:
    """Return whether two listed tasks have the same signals, thresholds and start."""
    if not (one.is_listed and other.is_listed and one.initial_state == other.initial_state):
        return False
    pairs = ((one.reward, other.reward), (one.utilities, other.utilities), (one.thresholds, other.thresholds))
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def world_of(problem: Problem, streams: Streams, traced: bool = False) -> World:
    """Return the world of a problem, by its type; `traced`: its episodes must have traces."""
    text = "the agent learns from traces, but the problem has no move: give move=…"
    require(not traced or problem.task.move is not None, text)
    if isinstance(problem, LinearCMDP):
        return ListedWorld(problem, streams, traced)
    for module, kind, world in OTHERS:  # imported only if the problem's own module was
        known = sys.modules.get(f"episafe.{module}")
        if known is not None and isinstance(problem, vars(known)[kind]):
            found: World = resolve_name(f"episafe.simulation.{world}")(problem, streams)
            return found
    kinds = "es.LinearCMDP, es.SampledCMDP, es.from_gymnasium(…) or es.bandits.make(…)"
    raise TypeError(f"run needs a problem such as {kinds}, got {type(problem).__name__}")

"""The world of a linear bandit: what happens in a round depends on the seed, the round and the action alone."""

import math

import numpy as np

from episafe.core.agent import Agent
from episafe.core.checks import require
from episafe.core.policy import Policy
from episafe.core.types import Array, Episode, Plan, Settings
from episafe.kernels.simulation import draw
from episafe.problems.bandit import ActionPolicy, BanditTask, Ellipsoid, LinearBandit
from episafe.simulation.worlds import FOREIGN, Streams, World, require_reach

BLOCK = 1_024  # rounds whose noise is drawn together


class BanditWorld(World):
    """Plays rounds of a `LinearBandit`; values and optima are exact."""

    unknown, unit = False, "rounds"

    def __init__(self, problem: LinearBandit, streams: Streams) -> None:
        super().__init__(problem, streams)
        self.changes = problem.task.changes
        self._block = -1, (np.zeros(0), np.zeros((0, 0)))

    def check(self, agent: Agent, num_episodes: int) -> None:
        """Raise if the agent's task has other actions or another incumbent, or states a slack that is not there."""
        told, task = agent.task, self.problem.task
        if told is task:
            return
        require(isinstance(told, BanditTask) and _same_offer(told, task, num_episodes), FOREIGN)
        require_reach(told, task.stated_utilities)

    def values(self, plan: Plan) -> tuple[float, float | Array]:
        """Return the exact expected reward and utility of a plan."""
        require(isinstance(plan.policy, ActionPolicy), "a plan of a bandit needs an es.bandits.ActionPolicy")
        return self.problem.evaluate(plan.policy)

    def optimum(self, k: int = 0) -> float:
        """Return the exact optimum of round k; raise if its incumbent lacks the slack."""
        if self.changes:
            self.problem.check_round(k)
        return float(self.problem.optimal_value(k))

    def play(self, k: int, policy: Policy, component: int | None) -> Episode:
        """Play round k."""
        assert isinstance(policy, ActionPolicy)
        block, place = divmod(k, BLOCK)
        if self._block[0] != block:
            self._block = block, chance(self.streams.seed, block, len(self.problem.theta))
        choices, noise = self._block[1]
        action = policy.actions[draw(np.cumsum(policy.weights), choices[place])]
        means = self.problem.theta @ action
        signals = means + self.problem.task.noise * noise[place]
        if self.problem.clicks:
            signals[0] = float(0.5 * math.erfc(-noise[place, 0] / math.sqrt(2.0)) < means[0])
        return Episode((k, k + 1), action[None], signals[:1], signals[None, 1:])

    def settings(self) -> Settings:
        """Return that the problem is a bandit."""
        return {"problem": "bandit"}


def chance(seed: int, block: int, num_signals: int) -> tuple[Array, Array]:
    """Return the chance of a block: uniform numbers (BLOCK,) for actions, normal ones (BLOCK, 1 + m) for noise."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, block]))
    return rng.random(BLOCK), rng.standard_normal((BLOCK, num_signals))


def _same_offer(one: BanditTask, other: BanditTask, num_rounds: int) -> bool:
    """Return whether two tasks have the same actions and incumbent in all rounds, and the same thresholds."""
    sets = [task.actions.M if isinstance(task.actions, Ellipsoid) else np.zeros(0) for task in (one, other)]
    same = (
        one.changes == other.changes
        and np.array_equal(sets[0], sets[1])
        and np.array_equal(one.thresholds, other.thresholds)
    )
    for k in range(num_rounds if one.changes else 1):
        same = same and np.array_equal(one.arms(k), other.arms(k)) and np.array_equal(one.safe(k), other.safe(k))
    return same

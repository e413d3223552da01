"""Episodes of a live environment."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from episafe.agents.base import Agent, Episode, Plan, Source
from episafe.arrays import Array
from episafe.problems.gym import GymCMDP
from episafe.problems.policy import Policy
from episafe.runs.facts import Facts
from episafe.runs.simulate import draw, running_sums


def play(problem: GymCMDP, policy: Policy, rng: np.random.Generator) -> Episode:
    """One episode of `policy` in the environment; its actions are drawn with `rng`, the rest is the environment's."""
    task = problem.task
    states, actions, seen = [problem.reset()], [], np.zeros((task.horizon, 2))
    for h in range(task.horizon):
        state = states[-1]
        action = int(draw(running_sums(policy.probabilities(h, state)), rng.random()))
        following, reward, utility = problem.step(action)
        told = task.reward_at(h, state)[action], task.utility_at(h, state)[action]
        seen[h] = np.where(np.isnan(told), (reward, utility), told)
        actions.append(action)
        states.append(following)
    return Episode(states, actions, seen[:, 0], seen[:, 1])


def live_loop(
    problem: GymCMDP,
    agent: Agent,
    choices: np.random.Generator,
    sources: list[Source],
    facts: Facts,
    totals: Array,
    toss: Callable[[Plan, int], tuple[int | None, Policy]],
    watch: Callable[[Plan, Episode], None] | None = None,
) -> Iterator[int]:
    """The loop for a live environment: values are NaN, and what was collected goes into `totals` (K, 2).

    `toss` says which component of a plan acts in an episode; `watch`, where there is one, sees each episode.
    """
    for k in range(len(facts.sources)):
        plan = agent.plan()
        facts.values[k], facts.bounds[k] = (math.nan, math.nan), (plan.lam, plan.utility_bound)
        facts.sources[k], facts.plan_ids[k] = sources.index(plan.source), plan.id
        component, acting = toss(plan, k)
        episode = replace(play(problem, acting, choices), component=component)
        totals[k] = episode.rewards.sum(), episode.utilities.sum()
        agent.learn(episode, plan_id=plan.id)
        if watch is not None:
            watch(plan, episode)
        yield k + 1

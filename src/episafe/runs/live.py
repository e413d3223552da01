"""Episodes of a live environment."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from episafe.agents.base import Agent, Episode, Plan, Source
from episafe.gym.adapter import GymCMDP
from episafe.gym.vector import VectorGymCMDP
from episafe.kernels.simulation import draw, running_sums
from episafe.problems.policy import Policy
from episafe.problems.sampled import SampledTask
from episafe.runs.columns import Facts
from episafe.types import Array


def play(problem: GymCMDP | VectorGymCMDP, policy: Policy, rng: np.random.Generator) -> Episode:
    """One episode of `policy` in the environment; its actions are drawn with `rng`, the rest is the environment's."""
    if isinstance(problem, VectorGymCMDP):
        raise ValueError("this is a vector environment: play several episodes at once with es.play_batch")
    task = problem.task
    states, actions, seen = [problem.reset()], [], np.zeros((task.horizon, 2))
    for h in range(task.horizon):
        action = int(draw(running_sums(policy.probabilities(h, states[-1])), rng.random()))
        following, reward, utility = problem.step(action)
        seen[h] = _known(task, h, states[-1], action, (reward, utility))
        actions.append(action)
        states.append(following)
    return Episode(states, actions, seen[:, 0], seen[:, 1])


def play_batch(problem: GymCMDP | VectorGymCMDP, policies: Sequence[Policy], rng: np.random.Generator) -> list[Episode]:
    """One episode of each policy, side by side; at most N of them, sub-environments without one are idle.

    For a mixture give what its coin drew: one coin an episode.
    """
    if not isinstance(problem, VectorGymCMDP):
        raise ValueError("this is no vector environment: play one episode after the other with es.play")
    task, n = problem.task, len(policies)
    states = [[first] for first in problem.reset(n)]
    actions: list[list[int]] = [[] for _ in range(n)]
    seen = np.zeros((n, task.horizon, 2))
    for h in range(task.horizon):
        for i, policy in enumerate(policies):
            actions[i].append(int(draw(running_sums(policy.probabilities(h, states[i][-1])), rng.random())))
        following, rewards, utilities = problem.step([one[-1] for one in actions])
        for i in range(n):
            seen[i, h] = _known(task, h, states[i][-1], actions[i][-1], (rewards[i], utilities[i]))
            states[i].append(following[i])
    return [Episode(states[i], actions[i], seen[i, :, 0], seen[i, :, 1]) for i in range(n)]


def play_some(
    problem: GymCMDP | VectorGymCMDP, policies: Sequence[Policy], rng: np.random.Generator
) -> Iterator[Episode]:
    """One episode of each policy, as many at a time as the environment plays."""
    for first in range(0, len(policies), problem.num_envs):
        if isinstance(problem, VectorGymCMDP):
            yield from play_batch(problem, policies[first : first + problem.num_envs], rng)
        else:
            yield play(problem, policies[first], rng)


def _known(task: SampledTask, h: int, state: Any, action: int, seen: tuple[float, float]) -> Array:
    """Reward and utility of a step: as the task tells them, else as they were seen."""
    told = task.reward_at(h, state)[action], task.utility_at(h, state)[action]
    return np.where(np.isnan(told), seen, told)


def live_loop(
    problem: GymCMDP | VectorGymCMDP,
    agent: Agent,
    choices: np.random.Generator,
    sources: list[Source],
    facts: Facts,
    totals: Array,
    toss: Callable[[Plan, int], tuple[int | None, Policy]],
    first: int = 0,
    note: Callable[[int, Episode, Agent], None] = lambda k, episode, agent: None,
) -> Iterator[int]:
    """The loop for a live environment: values are NaN, and what was collected goes into `totals` (K, 2).

    `toss` says which component of a plan acts in an episode. A vector environment plays N episodes of one plan before
    the next, and fewer at the end of the run where N does not divide K.
    """
    K = len(facts.sources)
    for start in range(first, K, problem.num_envs):
        plan, batch = agent.plan(), range(start, min(start + problem.num_envs, K))
        tossed = [toss(plan, k) for k in batch]
        for k in batch:
            facts.values[k], facts.bounds[k] = (math.nan, math.nan), (plan.lam, plan.utility_bound)
            facts.sources[k], facts.plan_ids[k] = sources.index(plan.source), plan.id
        episodes = play_some(problem, [acting for _, acting in tossed], choices)
        for k, (component, _), episode in zip(batch, tossed, episodes, strict=True):
            totals[k] = episode.rewards.sum(), episode.utilities.sum()
            episode = replace(episode, component=component)
            agent.learn(episode, plan_id=plan.id)
            note(k, episode, agent)
        yield batch[-1] + 1

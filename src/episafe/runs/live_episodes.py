"""Episodes of a live environment."""

from collections.abc import Iterator, Sequence

import numpy as np

from episafe.errors import InvalidProblem
from episafe.gym.adapter import LiveCMDP, Played
from episafe.problems.policy import Policy
from episafe.problems.sampled_problem import SampledTask
from episafe.types import Episode


def play(problem: LiveCMDP, policy: Policy, rng: np.random.Generator) -> Episode:
    """One episode of `policy` in the environment; its actions are drawn with `rng`, the rest is the environment's."""
    if problem.is_vector:
        raise ValueError("this is a vector environment: play several episodes at once with es.play_batch")
    return next(play_some(problem, [policy], rng))


def play_batch(problem: LiveCMDP, policies: Sequence[Policy], rng: np.random.Generator) -> list[Episode]:
    """One episode of each policy, side by side; at most N of them, sub-environments without one are idle.

    For a mixture give what its coin drew: one coin an episode.
    """
    if not problem.is_vector:
        raise ValueError("this is no vector environment: play one episode after the other with es.play")
    if not 1 <= len(policies) <= problem.num_envs:
        raise InvalidProblem(f"{len(policies)} episodes at a time: give 1 to {problem.num_envs}, one a sub-environment")
    return list(play_some(problem, policies, rng))


def play_some(problem: LiveCMDP, policies: Sequence[Policy], rng: np.random.Generator) -> Iterator[Episode]:
    """One episode of each policy, as many at a time as the environment plays."""
    return (_as_episode(problem.task, played) for played in problem.play(policies, rng))


def _as_episode(task: SampledTask, played: Played) -> Episode:
    """An episode with rewards and utilities as the task tells them, else as they were seen."""
    states, actions, seen, trace = played[0], played[1], np.array(played[2]), played[3]
    utilities = seen[:, 1] if task.num_constraints == 1 else seen[:, 1:]
    for name, column, told in (("reward", seen[:, 0], task.reward_at), ("utility", utilities, task.utility_at)):
        if name not in task.unknown:
            column[:] = [told(h, states[h])[action] for h, action in enumerate(actions)]
    return Episode(states, actions, seen[:, 0], utilities, trace=trace)

"""Episodes of a live environment."""

from collections.abc import Sequence

import numpy as np

from episafe.errors import InvalidProblem
from episafe.gym.adapter import LiveCMDP
from episafe.problems.policy import Policy
from episafe.types import Episode


def play(problem: LiveCMDP, policy: Policy, rng: np.random.Generator) -> Episode:
    """One episode of `policy` in the environment; its actions are drawn with `rng`, the rest is the environment's."""
    if problem.is_vector:
        raise ValueError("this is a vector environment: play several episodes at once with es.play_batch")
    return next(problem.episodes([policy], rng))


def play_batch(problem: LiveCMDP, policies: Sequence[Policy], rng: np.random.Generator) -> list[Episode]:
    """One episode of each policy, side by side; at most N of them, sub-environments without one are idle.

    For a mixture give what its coin drew: one coin an episode.
    """
    if not problem.is_vector:
        raise ValueError("this is no vector environment: play one episode after the other with es.play")
    if not 1 <= len(policies) <= problem.num_envs:
        raise InvalidProblem(f"{len(policies)} episodes at a time: give 1 to {problem.num_envs}, one a sub-environment")
    return list(problem.episodes(policies, rng))

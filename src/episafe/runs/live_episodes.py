"""Episodes of a live environment, and what a policy is worth by fresh ones, where exact values cannot be had."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from episafe.errors import InvalidProblem
from episafe.gym.adapter import GymCMDP, LiveCMDP
from episafe.problems.policy import Policy
from episafe.stats import Z_99, normal_interval
from episafe.types import Episode, amount, amounts


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


class Estimate(NamedTuple):
    """Means of total reward and utility over fresh episodes, each with the half-width of its 99 % interval (normal).

    Of several constraints utility and half-width are (m,), each interval by itself.
    """

    reward: float
    reward_half_width: float
    utility: Any
    utility_half_width: Any

    def __str__(self) -> str:
        pairs = zip(amounts(self.utility), amounts(self.utility_half_width), strict=True)
        said = " and ".join(f"{mean:.2f} ± {half:.2f}" for mean, half in pairs)
        return f"reward {self.reward:.2f} ± {self.reward_half_width:.2f}, utility {said} (99 %)"


def estimate(problem: GymCMDP, policy: Policy, num_episodes: int = 1_000, seed: int = 0) -> Estimate:
    """Play `policy`, a mixture too, in episodes of its own; the learner sees nothing of them.

    Args:
        problem: a live environment; it is seeded for these episodes, and left with luck that nobody chose.
        policy: what to judge, e.g. `agent.plan().policy` or `problem.task.safe_policy`.
        num_episodes: how many episodes, at least 2.
        seed: of these episodes; take one that no run has used.
    """
    if not hasattr(problem, "seed"):
        raise TypeError(
            f"es.estimate plays a live environment, as es.from_gymnasium makes it, got {type(problem).__name__}: where "
            "states are listed ask problem.evaluate(policy); else es.run(problem, es.Fixed(problem.task, policy)) has "
            "the totals of its episodes"
        )
    if num_episodes < 2:
        raise ValueError(f"num_episodes must be at least 2 for an interval, got {num_episodes}")
    if not hasattr(policy, "draw") and not hasattr(policy, "probabilities"):
        raise TypeError(
            f"policy must be an es.Policy such as agent.plan().policy, got {type(policy).__name__}: make one of a "
            "function (h, state) ↦ probabilities with problem.task.as_policy(function)"
        )
    environment, choices = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(choices)
    totals = np.empty((num_episodes, 1 + problem.task.num_constraints))
    judged = policy if hasattr(policy, "draw") else problem.task.as_policy(policy)
    with problem.one_run():
        problem.seed(int(np.random.default_rng(environment).integers(2**31)))
        try:
            for k in range(num_episodes):
                acting = judged.draw(rng)[1]
                episode = play(problem, acting, rng)
                totals[k, 0], totals[k, 1:] = episode.rewards.sum(), episode.utilities.sum(axis=0)
        finally:
            problem.forget_seed()
    mean, error = normal_interval(totals, Z_99)
    return Estimate(float(mean[0]), float(error[0]), amount(mean[1:]), amount(error[1:]))

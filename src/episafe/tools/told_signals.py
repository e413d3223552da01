"""What a function tells of reward or utility, beside what the environment reports."""

from typing import Any

import numpy as np

from episafe.gym.adapter import LiveCMDP

EPISODES = 50  # of the incumbent

# (h, state, action), h as the function counts it: what is told, and each value seen
Pairs = dict[tuple[int, Any, int], tuple[float, list[float]]]


def told_and_seen(problem: LiveCMDP, name: str, rng: np.random.Generator) -> Pairs:
    """Play the incumbent, read the signal `name` that a function tells, and put the two side by side."""
    task, g = problem.task, ("reward", "utility").index(name)
    function, batches = (task.reward_at, task.utility_at)[g], -(-EPISODES // problem.num_envs)
    found: Pairs = {}
    for played in problem.reporting(name).play([task.safe_policy] * (batches * problem.num_envs), rng):
        for h, (state, action, seen) in enumerate(zip(*played, strict=False)):  # the last state has no action
            if task.key(state) not in task.outside:
                told = float(function(h, state)[action])
                place = (h - int(task.random_start), str(state), action)
                found.setdefault(place, (told, []))[1].append(seen[g])
    return found

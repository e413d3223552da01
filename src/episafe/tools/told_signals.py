"""What a function tells of reward or utility, beside what the environment reports."""

from typing import Any

import numpy as np

from episafe.gym.adapter import GymCMDP
from episafe.gym.vector import VectorGymCMDP
from episafe.problems.boundary_states import Outside

EPISODES = 50  # of the incumbent

# (h, state, action), h as the function counts it: what is told, and each value seen
Pairs = dict[tuple[int, Any, int], tuple[float, list[float]]]


def told_and_seen(problem: GymCMDP | VectorGymCMDP, name: str, rng: np.random.Generator) -> Pairs:
    """Play the incumbent, read the signal `name` that a function tells, and put the two side by side."""
    task, reporting, g = problem.task, problem.reporting(name), ("reward", "utility").index(name)
    function = (task.reward_at, task.utility_at)[g]
    found: Pairs = {}
    for _ in range(0, EPISODES, problem.num_envs):
        states = _several(reporting.reset())
        for h in range(task.horizon):
            actions = [task.safe_policy.act(h, state, rng) for state in states]
            states_then, (states, *seen) = states, _stepped(reporting, actions)
            for i, (state, action) in enumerate(zip(states_then, actions, strict=True)):
                if not isinstance(state, Outside):
                    told = float(function(h, state)[action])
                    place = (h - int(task.random_start), str(state), action)
                    found.setdefault(place, (told, []))[1].append(float(seen[g][i]))
    return found


def _stepped(problem: GymCMDP | VectorGymCMDP, actions: list[int]) -> Any:
    """Next states, rewards and utilities, of several episodes or of one as if of several."""
    if isinstance(problem, VectorGymCMDP):
        return problem.step(actions)
    return ([one] for one in problem.step(actions[0]))


def _several(states: Any) -> list[Any]:
    return states if isinstance(states, list) else [states]

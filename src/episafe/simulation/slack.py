"""Measure the slack of an incumbent from its episodes: a proved lower bound, for problems without a kernel."""

from dataclasses import dataclass

import numpy as np

from episafe.core.checks import TOLERANCE, as_count, as_probability
from episafe.core.errors import Infeasible
from episafe.core.task import Problem, Task
from episafe.core.types import Array
from episafe.simulation.checks import lower_bound
from episafe.simulation.worlds import make_streams, world_of

FIRST_EPISODES = 64
OWN_STREAM = 0x51AC  # a run with the same seed must not draw the episodes that its slack was measured with


@dataclass(frozen=True)
class MeasuredSlack:
    """The slack that was measured in episodes of the incumbent, in the units of the limits; by name for several limits.

    Attributes:
        lower: the slack is at least this, with probability 1 − delta; give it as slack=….
        mean: the slack by the mean of all episodes, which is not a bound.
        num_episodes: how many episodes were played.
        delta: the probability with which a bound may fail.
    """

    lower: float | dict[str, float]
    mean: float | dict[str, float]
    num_episodes: int
    delta: float


def measure_slack(problem: Problem, delta: float = 0.05, most_episodes: int = 100_000, seed: int = 0) -> MeasuredSlack:
    """Play the incumbent until half of its slack is proved: V̲ − b ≥ (mean − b)/2 for every limit.

    V̲ is valid for all numbers of episodes at once, so the time to stop may depend on it. It assumes that episodes are
    i.i.d., and that the stated least totals are true. Each of m limits has δ/m. A certificate that uses the bound fails
    with its own probability plus this one.
    """
    task = problem.task
    if task.is_listed:
        raise TypeError("measure_slack is for problems without a kernel: es.LinearCMDP computes the slack itself")
    delta, most = as_probability("delta", delta), as_count("most_episodes", most_episodes)
    own = int(np.random.SeedSequence(seed, spawn_key=(OWN_STREAM,)).generate_state(1)[0])
    world, m, b = world_of(problem, make_streams(own)), task.num_constraints, task.thresholds
    H, units = (task.horizon or 0) - int(task.random_start), world.slack_units()
    totals: list[Array] = []
    lower = mean = np.zeros(m)
    try:
        while len(totals) < most:
            for k in range(len(totals), min(max(FIRST_EPISODES, 2 * len(totals)), most)):
                totals.append(task.read(world.play(k, task.incumbent, None)).total_utility)
            X = np.array(totals)
            above = X - task.least_totals
            if above.min() < -TOLERANCE * H:
                raise Infeasible(f"an episode lies {-above.min():.6g} below least_total: state a total that is certain")
            known = np.array([lower_bound(np.maximum(column, 0.0), delta / m) for column in above.T])
            lower, mean = units * (task.least_totals + known - b), units * (X.mean(axis=0) - b)
            if (lower > 0).all() and (lower >= mean / 2).all():
                return MeasuredSlack(_by_name(task, lower), _by_name(task, mean), len(totals), delta)
            if any(H - lower_bound(H - column, delta / m) < b[c] for c, column in enumerate(X.T)):
                break  # the incumbent has none
    finally:
        world.end()
    c = int(np.argmin(lower - mean / 2))
    raise Infeasible(
        f"after {len(totals)} episodes the slack of {task.constraints[c].name} is {mean[c]:.4g} on average, "
        f"of which {lower[c]:.4g} is proved: play more episodes, give a safer incumbent or a lower limit"
    )


def incumbent_totals(problem: Problem, number: int, seed: int = 0) -> Array:
    """Return the total utilities (n, m) of so many episodes of the incumbent, other ones than `measure_slack` plays."""
    own = int(np.random.SeedSequence(seed, spawn_key=(OWN_STREAM, 1)).generate_state(1)[0])
    world, task = world_of(problem, make_streams(own)), problem.task
    try:
        return np.array([task.read(world.play(k, task.incumbent, None)).total_utility for k in range(number)])
    finally:
        world.end()


def _by_name(task: Task, values: Array) -> float | dict[str, float]:
    named = {one.name: float(value) for one, value in zip(task.constraints, values, strict=True)}
    return named if len(named) > 1 else float(values[0])

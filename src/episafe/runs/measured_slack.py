"""How much the incumbent has to spare, from episodes of it: a proved lower bound, for problems without a kernel."""

import math
from dataclasses import dataclass

import numpy as np

from episafe.agents.fixed import Fixed
from episafe.checks import TOLERANCE, as_count, as_probability
from episafe.errors import Infeasible
from episafe.gym.adapter import GymCMDP
from episafe.gym.vector import VectorGymCMDP
from episafe.kernels.confidence_sequence import BETS, SUM_Q, SUM_QQ, SUM_QQX, SUM_QQXX, SUM_QX, lower_bounds
from episafe.problems.sampled_problem import SampledCMDP
from episafe.problems.task import Constraint
from episafe.runs.run import run
from episafe.types import Array

AnyLive = SampledCMDP | GymCMDP | VectorGymCMDP
FIRST_EPISODES = 64
OWN_LUCK = 0x51AC  # a run of the same seed must not draw the episodes that its slack was measured with once more


@dataclass(frozen=True)
class MeasuredSlack:
    """What episodes of the incumbent say of its slack; of several constraints by their names.

    Attributes:
        lower: the slack is at least this, with probability 1 − delta; to be given as slack=…, in its units.
        mean: the slack as the mean of all episodes has it; nothing is proved of it.
        num_episodes: how many were played.
        delta: the probability with which the bound, or any of several, may fail.
    """

    lower: float | dict[str, float]
    mean: float | dict[str, float]
    num_episodes: int
    delta: float


def measure_slack(problem: AnyLive, delta: float = 0.05, most_episodes: int = 100_000, seed: int = 0) -> MeasuredSlack:
    """Play the incumbent until half of its slack is proved: V̲ − b ≥ (mean − b)/2, in every constraint.

    V̲ is the confidence sequence of `certify.Observation`, of what totals have above the least_total of the problem: it
    needs that to be true, and episodes alike and independent, and holds at all numbers of episodes at once, so that one
    may stop when it suits. Of m constraints each has δ/m. A certificate that rests on the bound fails with its own
    probability plus this one. The incumbent is safe: playing it costs no more than time.

    Example:
        >>> import episafe as es
        >>> from episafe.envs.large_linear import huge
        >>> measured = es.measure_slack(huge(10_000))
        >>> 0 < measured.lower <= measured.mean
        True
    """
    if problem.task.is_listed:
        raise TypeError("measure_slack is for problems without a kernel: LinearCMDP computes the slack from its own")
    delta, most_episodes = as_probability("delta", delta), as_count("most_episodes", most_episodes)
    task, own = problem.task, int(np.random.SeedSequence(seed, spawn_key=(OWN_LUCK,)).generate_state(1)[0])
    agent, m, H = Fixed(task, "incumbent"), task.num_constraints, task.horizon
    totals = np.zeros((0, m))
    while len(totals) < most_episodes:
        ahead = min(max(FIRST_EPISODES, len(totals)), most_episodes - len(totals))
        played = run(problem, agent, ahead, own).utility_totals
        assert played is not None
        totals = np.concatenate([totals, played.reshape(-1, m)])
        each = list(zip(task.constraints, totals.T, strict=True))
        found = [_slack(one, column, delta / m, H) for one, column in each]
        if all(lower > 0 and lower >= mean / 2 for lower, mean in found):
            return _measured(problem, found, len(totals), delta)
        if any(H - _lower_bound(H - column, delta / m) < one.threshold for one, column in each):
            break  # it has none
    c = int(np.argmin([lower / mean if mean > 0 else -np.inf for lower, mean in found]))
    lower, mean = (value * _unit(problem, c) for value in found[c])
    raise Infeasible(
        f"after {len(totals)} episodes the incumbent's slack{task.constraints[c].of} is {mean:.4g} by the mean and "
        f"only {lower:.4g} proved: give more episodes, a safer incumbent or a looser limit"
    )


def _slack(one: Constraint, totals: Array, delta: float, horizon: int) -> tuple[float, float]:
    """The slack of one constraint: what is proved, and by the mean."""
    least, b = one.least_total, one.threshold
    if totals.min() < least - TOLERANCE * horizon:
        raise Infeasible(
            f"an episode has a total utility{one.of} of {totals.min():.6g}, below the least_total of {least:.6g} that "
            "the problem states: nothing can be proved with it; state a true one"
        )
    return least + _lower_bound(totals - least, delta) - b, float(totals.mean()) - b


def _measured(problem: AnyLive, found: list[tuple[float, float]], num_episodes: int, delta: float) -> MeasuredSlack:
    """The slacks that were found, in the units of their signals."""
    raw = [(lower * _unit(problem, c), mean * _unit(problem, c)) for c, (lower, mean) in enumerate(found)]
    if len(raw) == 1:
        return MeasuredSlack(*raw[0], num_episodes, delta)
    names = problem.task.constraint_names
    lowers, means = (dict(zip(names, values, strict=True)) for values in zip(*raw, strict=True))
    return MeasuredSlack(lowers, means, num_episodes, delta)


def _lower_bound(totals: Array, delta: float) -> float:
    """V̲ of totals ≥ 0, alike and independent: below their mean at all times with probability 1 − delta."""
    sums, n, first, second = np.zeros((1, 6)), float(len(totals)), totals.sum(), (totals**2).sum()
    for column, value in ((SUM_QX, first), (SUM_Q, n), (SUM_QQXX, second), (SUM_QQX, first), (SUM_QQ, n)):
        sums[0, column] = value
    return float(lower_bounds(sums, math.log(len(BETS) / delta))[0])


def _unit(problem: AnyLive, c: int) -> float:
    """How wide the range of the signal of constraint c is that became [0, 1]."""
    origin, name = problem.origin, problem.task.constraints[c].name
    end = f"_{name}" if name else ""
    signal = origin.get(f"signal{end}", "")
    return float(origin.get(f"{signal}_high{end}", 1.0)) - float(origin.get(f"{signal}_low{end}", 0.0))

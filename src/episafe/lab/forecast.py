"""Forecast, before a start, about how many episodes it takes until half of the possible gain is there."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.core.task import Constraint, OneHot, Task
from episafe.core.types import Array
from episafe.kernels.wealth import BET_WEIGHTS, BETS, LARGEST

MARGIN = 1 / 3  # of the slack: how far above b the candidate is taken to be
HALF = 0.5 / (1 - MARGIN)  # weight at which such a candidate brings half of the gain: rewards are concave
VISITS = 2.0  # of each state and action before proposals are good; set on the problem sets of the benchmark
FIRST_TRIAL = 60  # episodes of the first trial, which knows nothing
FIRST_REPLAYS = 10  # episodes until there are traces to plan with
MOST = 10_000_000  # episodes; more is never
STEPS, POINTS = 400, 200  # numbers of episodes and means that are looked at


@dataclass(frozen=True)
class Forecast:
    """About how long it takes; a guide, not a bound.

    Attributes:
        half: episodes until half of the gain is there; ∞ for never; NaN if that cannot be told.
        text: the forecast in one or two sentences, with its reasons.
    """

    half: float
    text: str


def forecast(task: Task, totals: Array, delta: float = 0.05) -> Forecast:
    """Return about how many episodes `SafeAgent` needs until half of the gain is there.

    Args:
        task: the task, whose slacks are known.
        totals: total utilities of episodes of the incumbent, (n, m).
        delta: of the certificate.
    """
    if any(one.slack is None for one in task.constraints):
        return Forecast(math.nan, "forecast: cannot tell, the slack is unknown; measure it with es.measure_slack")
    replays = task.move is not None
    share = min(first_share(one) for one in task.constraints)
    pairs = num_pairs(task)
    if not replays and pairs is None:
        remedy = "state features with a known number of values, or list the states"
        return Forecast(math.nan, f"forecast: cannot tell, the number of states is unknown; {remedy}")
    learning = float(FIRST_REPLAYS)
    if not replays:
        steps = task.horizon or 1
        per_episode = steps if task.time_homogeneous else 1
        learning = FIRST_TRIAL + VISITS * (pairs or 0) / per_episode / max(share, 0.05)
    m = task.num_constraints
    certifying = max(
        certify(one, column, delta / m, replays) for one, column in zip(task.constraints, totals.T, strict=True)
    )
    half = learning + certifying
    if half > MOST:
        return Forecast(math.inf, "forecast: the gain takes more episodes than are practical; relax the limit")
    seen = "every episode is replayed for every candidate" if replays else f"{pairs:,} pairs of states and actions"
    reasons = f"about {count(learning)} to learn ({seen}) and {count(certifying)} to certify"
    first = "" if replays else f"; a new candidate acts in {share:.1%} of the first ones"
    return Forecast(half, f"forecast: half of the gain after about {count(half)} episodes, {reasons}{first}")


def first_share(one: Constraint) -> float:
    """Return how often a candidate of which nothing is known may act: ξ/(b + ξ − x₀), x₀ the least total."""
    slack = one.slack or 0.0
    return min(slack / max(one.threshold + slack - one.least_total, 1e-12), 1.0)


def num_pairs(task: Task) -> int | None:
    """Return how many pairs of states and actions must be told apart; d for features; None if unknown."""
    features = task.features
    if isinstance(features, OneHot):
        size = task.num_states or features.size
        return None if size is None else size * (task.num_actions or 0)
    return features.dim


def certify(one: Constraint, totals: Array, delta: float, replays: bool) -> float:
    """Return the episodes until a candidate a third of the slack above b has enough weight; ∞ for never.

    Its totals spread as the incumbent's do. L is the largest mean μ at which the mean over bets λ of
    exp(n E ln(1 + λ(X/μ − 1))) is 2/δ, and its weight ξ/(b + ξ − L). Without replays only episodes in which it
    acted count: dT = dn/weight.
    """
    slack = one.slack or 0.0
    b, least = one.threshold - one.least_total, one.least_total
    spread = np.maximum(totals - least, 0.0)
    X = spread * (b + MARGIN * slack) / max(float(spread.mean()), 1e-12)
    means = b * (np.arange(POINTS) + 1) / POINTS
    gains = np.minimum(X[:, None] / means, LARGEST) - 1.0
    growth = np.array([np.log1p(bet * gains).mean(axis=0) for bet in BETS])
    own = np.unique(np.round(np.geomspace(1, MOST, STEPS)))
    exponents = own[:, None, None] * growth
    top = exponents.max(axis=1)
    wealth = top + np.log((BET_WEIGHTS[:, None] * np.exp(exponents - top[:, None])).sum(axis=1))
    lower = np.where(wealth >= math.log(2 / delta), means, 0.0).max(axis=1)
    weights = np.where(lower >= means[-1], 1.0, np.minimum(slack / np.maximum(b + slack - lower, 1e-12), 1.0))
    acting = np.ones_like(weights) if replays else np.concatenate([weights[:1], weights[:-1]])
    episodes = np.cumsum(np.diff(own, prepend=0.0) / acting)
    there = np.flatnonzero(weights >= HALF)
    return float(episodes[there[0]]) if len(there) else math.inf


def count(episodes: float) -> str:
    """Return a number of episodes with two digits: more would be pretence."""
    if not math.isfinite(episodes):
        return "too many"
    unit = 10 ** max(math.floor(math.log10(max(episodes, 1))) - 1, 0)
    return f"{max(round(episodes / unit) * unit, 1):,.0f}"


def forecast_of(problem: Any, num_episodes: int = 200, seed: int = 0) -> Forecast:
    """Return the forecast from episodes of the incumbent."""
    from episafe.simulation.worlds import make_streams, world_of

    task, world = problem.task, world_of(problem, make_streams(seed))
    totals = [world.totals(world.play(k, task.incumbent, None))[1:] for k in range(num_episodes)]
    return forecast(task, np.array(totals))

"""Before a start: about how many episodes it takes until something is gained, why, and what would shorten it.

A forecast and no promise. It follows the confidence sequence of one candidate in the mean. The candidate is
a third of the slack above b, and its totals spread as the incumbent's do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from episafe.certify.observation import SHORTEST_TRIAL
from episafe.checks import TOLERANCE, as_probability
from episafe.errors import InvalidProblem
from episafe.gym.signal_limits import raw_total
from episafe.kernels.wealth import BETS, LARGEST
from episafe.logs.logged_episode import steps_of
from episafe.runs.worlds import world_of
from episafe.types import Array

Evidence = Literal["coin", "hindsight"]
FIRST, HALF = 0.1, 0.5  # of the way from the incumbent to the optimum
MARGIN = 1 / 3  # of the slack: how far above b the candidate is
QUALITY = 1 - MARGIN  # of the way that a candidate goes at least which aims so far above b: rewards are concave
PROPOSED = {"coin": SHORTEST_TRIAL, "hindsight": 10}  # episodes until something is proposed that knows the problem
MOST = 10_000_000  # episodes; more is never
STEPS = 400  # numbers of the candidate's own episodes that are looked at, in even ratios
POINTS = 200  # means that are bet against
NUM_EPISODES = 200  # of the incumbent that are played
SHORTER = 0.9  # times as long: less is not worth a word
FEWEST = 20  # totals that say something of their spread
SEVERAL = 3.0  # times the threshold: an incumbent with that much may have a limit in other units
WORST = ("least_total", "episode_cost_max")  # what states the worst total, of a utility and of a cost


class Shortening(NamedTuple):
    """Something that would shorten it: what, and when half of the gain would be there."""

    what: str
    half: float


@dataclass(frozen=True)
class Forecast:
    """About how long it takes.

    Attributes:
        first: episodes until a tenth of the way from the incumbent to the optimum is gone; inf for never.
        half: until half of it is.
        why: the figures behind it.
        changes: what would shorten it, the best first, three at most.
    """

    first: float
    half: float
    why: str
    changes: tuple[Shortening, ...]

    def __str__(self) -> str:
        said = f"a tenth of the gain after about {_count(self.first)}, half of it after about {_count(self.half)}"
        shorter = "; ".join(f"{one.what}: half after about {_count(one.half)}" for one in self.changes)
        return f"{said}, because {self.why}. " + (f"Shorter with {shorter}." if shorter else "Little would shorten it.")


@dataclass(frozen=True)
class Situation:
    """What a forecast goes by: b, v = b + ξ, the least total x₀, totals of the incumbent, δ, where evidence is from.

    `proposed`: after how many episodes a good candidate is there.
    """

    threshold: float
    known: float
    least: float
    totals: Array
    delta: float
    evidence: Evidence
    proposed: float


def forecast(
    problem: Any,
    totals: Sequence[float] | Array | None = None,
    delta: float = 0.05,
    evidence: Evidence | None = None,
    has_candidate: bool = False,
    on_progress: Callable[[float], object] = lambda share: None,
) -> Forecast:
    """About how many episodes it takes until something is gained, and what would shorten that.

    A guide, not a bound. It knows the certificate and not the planner: it takes the proposals to be good from the
    second on. docs/choosing.md compares forecasts with what then happened.

    Args:
        problem: a problem, which is played under its incumbent; or a task, with totals.
        totals: total utilities of episodes of the incumbent, 20 at least, (n,), or (n, m) of m constraints: from a log.
        delta: as the certifier's; each of m constraints has δ/m.
        evidence: "coin" for `Observation` and `Rollout`, which learn of a candidate when it acts; "hindsight" for
            `Hindsight`, where every trace judges every candidate. By default that of `es.OPSE(task)`: the second where
            the problem is exogenous.
        has_candidate: whether a good candidate is there from the start: one of your own, or one from a log.
        on_progress: called now and then with the share of the incumbent's episodes that were played.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("inventory")
        >>> found = es.forecast(cmdp)
        >>> found.first < found.half < 1000
        True
    """
    task = getattr(problem, "task", problem)
    given = incumbent_totals(problem, on_progress) if totals is None else totals
    columns = _as_columns(given, task.num_constraints)
    evidence = evidence or ("hindsight" if task.is_exogenous else "coin")
    share = as_probability("delta", delta) / task.num_constraints
    each = list(zip(task.constraints, columns.T, strict=True))
    all_of_it = [_situation(one, own, share, evidence, has_candidate) for one, own in each]
    found = [_of_constraint(at, task, c) for c, at in enumerate(all_of_it)]
    asked = [doubt(float(own.mean()), one.threshold, one.of) for one, own in each]
    slowest = max(range(len(found)), key=lambda c: (found[c].half, found[c].first))  # it decides
    said = found[slowest].why
    if len(found) > 1:
        said = f"{said} ({task.constraint_names[slowest]}, the slowest of {len(found)} limits)"
    return replace(found[slowest], why="; ".join([said, *filter(None, asked)]))


def doubt(mean: float, threshold: float, of: str = "") -> str:
    """A question where the incumbent has several times the threshold; "" where it has not."""
    if not 0 < SEVERAL * threshold < mean:
        return ""
    times = f"the incumbent's total{of} is {mean:.4g}, {mean / threshold:.3g} times the threshold {threshold:.4g}"
    return f"{times}: is that a total of an episode, and not a mean of its steps?"


def _as_columns(totals: Any, num_constraints: int) -> Array:
    """Totals (n,) or (n, m) as (n, m)."""
    columns = np.asarray(totals, dtype=float)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or columns.shape[1] != num_constraints:
        raise ValueError(f"totals must have shape (n, {num_constraints}), one an episode and constraint")
    return columns


def incumbent_totals(problem: Any, on_progress: Callable[[float], object]) -> Array:
    """Total utilities of episodes of the incumbent, (n,), or (n, m) of m constraints."""
    world, task = world_of(problem), problem.task
    world.begin(0, 0)
    num_batches = -(-NUM_EPISODES // world.num_parallel)
    drawn = [(None, task.safe_policy)] * world.num_parallel
    totals = list[Any]()
    for k in range(num_batches):
        totals += [task.total("utility", one.report[0]) for one in world.play(k * world.num_parallel, drawn)]
        on_progress((k + 1) / num_batches)
    return np.array(totals)


def _of_constraint(at: Situation, task: Any, c: int) -> Forecast:
    first, half = _reached(at)
    found = (Shortening(what, _reached(other)[1]) for what, other in _others(at, task, c))
    shorter = sorted((one for one in found if one.half < SHORTER * half), key=lambda one: one.half)
    return Forecast(first, half, _why(at), tuple(shorter[:3]))


def _situation(one: Any, totals: Array, delta: float, evidence: Evidence, has_candidate: bool) -> Situation:
    if evidence not in get_args(Evidence):
        raise ValueError(f'evidence must be "coin" or "hindsight", got {evidence!r}')
    if len(totals) < FEWEST or not np.isfinite(totals).all():
        raise ValueError(f"totals must be {FEWEST} finite numbers at least, one an episode: play the incumbent longer")
    b, least = one.threshold, one.least_total
    known = b + one.slack if one.slack is not None else float(totals.mean())
    if known <= b:
        raise InvalidProblem(
            f"the incumbent has {known:.6g} and the threshold{one.of} is {b:.6g}: nothing can be tried"
        )
    if (totals < least - TOLERANCE).any():
        raise InvalidProblem(f"an episode had {totals.min():.6g}, and least_total is {least:.6g}: state a true one")
    proposed = 0.0 if has_candidate else PROPOSED[evidence]
    return Situation(b, known, least, totals, delta, evidence, proposed)


def _reached(at: Situation) -> tuple[float, float]:
    """Episodes until a tenth and half of the way are gone: that share over `QUALITY` is the candidate's weight."""
    own, weights = _weights(at)
    coins = np.ones_like(weights) if at.evidence == "hindsight" else weights
    each = np.diff(own, prepend=0.0) / np.concatenate([coins[:1], coins[:-1]])  # dT = dn/w
    episodes = at.proposed + np.cumsum(each)
    found = []
    for share in (FIRST, HALF):
        there = np.flatnonzero(weights >= share / QUALITY)
        at_start = weights[0] >= share / QUALITY
        found.append(at.proposed if at_start else float(episodes[there[0]]) if len(there) else math.inf)
    first, half = (math.inf if value > MOST else value for value in found)
    return first, half


def _weights(at: Situation) -> tuple[Array, Array]:
    """The candidate's own episodes n, and its weight (v − b)/(v − L) once there were so many; 1 where L ≥ b.

    L is the largest mean m at which the mean over bets λ of exp(n E ln(1 + λ(X/m − 1))) is 2/δ, as δ_1 = δ/2.
    """
    candidate = at.threshold + MARGIN * (at.known - at.threshold) - at.least
    spread = np.maximum(at.totals - at.least, 0.0)
    X = spread * candidate / max(float(spread.mean()), 1e-12)  # as the incumbent's, with another mean
    means = (at.threshold - at.least) * (np.arange(POINTS) + 1) / POINTS
    gains = np.minimum(X[:, None] / means, LARGEST) - 1.0
    growth = np.array([np.log1p(bet * gains).mean(axis=0) for bet in BETS])  # (bets, means)
    own = np.unique(np.round(np.geomspace(1, MOST, STEPS)))
    exponents = own[:, None, None] * growth
    largest = exponents.max(axis=1)
    wealth = largest + np.log(np.exp(exponents - largest[:, None]).mean(axis=1))
    lower = np.where(wealth >= math.log(2 / at.delta), means, 0.0).max(axis=1)
    v = at.known - at.least
    weights = np.minimum((v - (at.threshold - at.least)) / np.maximum(v - lower, 1e-12), 1.0)
    return own, np.where(lower >= means[-1], 1.0, weights)


def _others(at: Situation, task: Any, c: int) -> list[tuple[str, Situation]]:
    """Situations that might be brought about, with what would have to be done."""
    slack, worst = at.known - at.threshold, float(at.totals.min())
    lower = at.threshold - slack
    found = [("a candidate of your own, or one from a log, at the start", replace(at, proposed=0.0))]
    if lower > at.least:
        found.append((f"twice the slack (a threshold of {lower:.4g})", replace(at, threshold=lower)))
    calm = at.totals.mean() + (at.totals - at.totals.mean()) / 2
    found.append(("half the spread of totals between episodes", replace(at, totals=calm)))
    if at.evidence == "coin":
        seen = "Hindsight" if task.is_exogenous else "`move` and traces, if chance is exogenous and seen"
        found.append((seen, replace(at, evidence="hindsight", proposed=min(at.proposed, PROPOSED["hindsight"]))))
    # of a cost with a range a step, one step may cost its most and leaves H − 1 at most; else nothing is known
    most = math.inf if _cost_scale(task, c) is None else float(steps_of(task) - 1)
    least = min(at.least + 0.9 * (min(worst, at.threshold) - at.least), most)
    if least > at.least + 0.1 * (at.threshold - at.least):
        found.append((_worst(least, task, c), replace(at, least=least)))
    return found


def _cost_scale(task: Any, c: int) -> Any:
    """How the cost that constraint c limits was scaled; None where it is no cost of a live environment."""
    scale = None if task.reading is None else task.reading.scales[1 + c]
    return scale if scale is not None and scale.name == "cost" else None


def _worst(least: float, task: Any, c: int) -> str:
    """How to state a least total, in the units of the limit: a cost is stated by what it is at most."""
    scale = _cost_scale(task, c)
    if scale is None:
        return f"{WORST[0]}={least:.4g}, if you know that no episode can have less, whatever is done"
    most = raw_total(least, scale, steps_of(task))
    return f"{WORST[1]}={most:.4g}, if you know that no episode can cost more, whatever is done"


def _why(at: Situation) -> str:
    slack, spread = at.known - at.threshold, float(at.totals.std(ddof=1))
    first = slack / (at.known - at.least)
    of = "the incumbent's totals spread by" if spread else "the incumbent's totals do not spread, standard deviation"
    if at.evidence == "hindsight":
        return f"the slack is {slack:.3g} above {at.threshold:.4g}, {of} {spread:.3g}, and every trace judges"
    return (
        f"the slack is {slack:.3g} above {at.threshold:.4g}, so that a new policy acts in {first:.1%} of the first "
        f"episodes, and {of} {spread:.3g}"
    )


def _count(episodes: float) -> str:
    """Two digits: more would be pretence."""
    if not math.isfinite(episodes):
        return "more episodes than anybody has"
    unit = 10 ** max(math.floor(math.log10(max(episodes, 1))) - 1, 0)
    return f"{max(round(episodes / unit) * unit, 1):,.0f} episodes"

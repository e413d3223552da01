"""Prove a limit of a candidate from a log in which another policy acted with known probabilities.

Let ρ = Π_h π(a_h|s_h)/μ(a_h|s_h), q = ρ/ρ_max and X ≥ x₀ the total utility of a logged episode. Under the logging
policy E[q] = 1/ρ_max and E[qX] = V/ρ_max, so that the wealth Π(1 + λq((X − x₀)/(ν − x₀) − 1)) is a martingale if ν = V:
that of kernels/wealth.py, where q is the share of an episode. An episode in which the log acted otherwise has q = 0 and
costs nothing. docs/appendix/logs.md has the proofs.
"""

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from episafe.core.checks import TOLERANCE, as_array, as_distributions, as_number, as_probability, is_number, require
from episafe.core.errors import InvalidEpisode, InvalidProblem
from episafe.core.policy import FunctionPolicy, Policy, StepPolicy, TablePolicy, as_policy
from episafe.core.task import Constraint, Task
from episafe.core.types import Array, Episode, IntArray, State
from episafe.data.episodes import read_episodes
from episafe.kernels.wealth import BET_WEIGHTS, BETS, credit_log, new_wealth

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from narwhals.typing import IntoDataFrame

FORMS = {0.0: 0.7, 0.3: 0.3}  # the part c of the importance-weighted total in a bet -> the weight of these bets
FALSE_ALARM = 0.01  # of the test that the mean of ρ is 1
NUM_MEANS = 64  # into which an interval of means is cut, three times
SPLIT_SEED = 0  # of the permutation before a log is split
POINTS = 40  # of the curve of bounds

ASSUMES = (
    "the log states the probabilities with which its actions were drawn; its episodes are independent and have one "
    "law, each is in it once, and none was left out because of what happened in it; episodes of the candidate follow "
    "the same law, given states and actions; min_propensity and total_range are true, and were fixed, as the candidate "
    "was, without the episodes that prove"
)
REMEDY = (
    "record the probability with which the system drew each action; in a session it is "
    "d.policy.probabilities(h, state)[action]. A deterministic rule has probability 1 and proves only policies that "
    "act in the same way"
)


@dataclass(frozen=True)
class Proof:
    """What a log proves about a candidate. `str(proof)` states it in words.

    Attributes:
        bound: the expected total utility of the candidate is at least this, with probability 1 − delta.
        passed: whether the bound reaches the limit and no test contradicts the assumptions.
        limit, delta, total_range: as they were given; delta is divided by the number of groups.
        num_episodes, num_matched: logged episodes that prove, and those with q > 0.
        largest_ratio, mean_ratio: ρ_max as stated, and the mean of ρ, which should be 1.
        alarm: why the log contradicts the assumptions; "" if it does not. The bound is then the least total.
        episodes_needed: about how many logged episodes prove the limit; ∞ if the candidate seems to be below it.
        groups: the proof of each group by label, if groups were asked for; the fields are those of the worst group.
        shares, totals: q and X of the episodes, in the order of the log.
    """

    bound: float
    passed: bool
    limit: float
    delta: float
    total_range: tuple[float, float]
    num_episodes: int
    num_matched: int
    largest_ratio: float
    mean_ratio: float
    alarm: str
    episodes_needed: float
    groups: Mapping[Hashable, "Proof"] = field(default_factory=dict, repr=False)
    shares: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    totals: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def margin(self) -> float:
        """Return how far the bound is above the limit."""
        return self.bound - self.limit

    def __str__(self) -> str:
        if self.groups:
            lines = [f"{label}: {proof._result()}" for label, proof in self.groups.items()]
            number = sum(proof.passed for proof in self.groups.values())
            head = f"{'PASSED' if self.passed else 'NOT PROVED'}. {number} of {len(lines)} groups reach the limit."
            return "\n".join([head, *lines, f"All bounds together hold if: {ASSUMES}."])
        return f"{self._result()}\nThe bound holds if: {ASSUMES}."

    def _result(self) -> str:
        if self.alarm:
            return f"NOT PROVED. {self.alarm}."
        way = "above" if self.margin >= 0 else "below"
        text = (
            f"{'PASSED' if self.passed else 'NOT PROVED'}. With {100 * (1 - self.delta):.4g} % confidence, the "
            f"expected total of the candidate is at least {self.bound:.6g}, {abs(self.margin):.4g} {way} the limit "
            f"{self.limit:g}. It could have acted as in {self.num_matched:,} of {self.num_episodes:,} logged episodes."
        )
        if self.passed:
            return text
        if math.isinf(self.episodes_needed):
            return f"{text} Its logged utility does not exceed the limit: more episodes are not expected to prove it."
        return (
            f"{text} About {self.episodes_needed:,.0f} episodes are needed, because one episode counts for at most "
            f"1/{self.largest_ratio:.4g} of an episode of the candidate."
        )

    def plot(self) -> "Figure":
        """Return a matplotlib figure of the bound against the number of matching episodes, with the limit."""
        return resolve_name("episafe.report.figures:proof_figure")(self)  # reports stand above data

    def curve(self) -> tuple[IntArray, Array]:
        """Return numbers of matching episodes and the bounds after so many, in the order of the log."""
        rows = np.unique(np.linspace(0, len(self.shares), POINTS + 1).astype(np.int64))
        bounds = [
            lower_bound(self.shares[:end], self.totals[:end], self.delta, self.total_range, self.largest_ratio)
            for end in rows.tolist()
        ]
        return np.append(0, np.cumsum(self.shares > 0))[rows], np.array(bounds)


class Steps(NamedTuple):
    """The rows of a log, checked and sorted by episode and step: E episodes, N steps, m utilities.

    Attributes:
        episodes: numbers 0..E−1 in the order in which they appear, (N,).
        starts: where each episode begins, (E,).
        steps, actions, propensities: of each row, (N,).
        states: of each row, as a policy is asked.
        totals: total utilities, (E, m).
        labels, groups: of each episode.
        ended: whether each episode says that it ended early, (E,).
    """

    episodes: IntArray
    starts: IntArray
    steps: IntArray
    actions: IntArray
    propensities: Array
    states: Sequence[State]
    totals: Array
    labels: Sequence[Hashable]
    groups: Sequence[Hashable]
    ended: NDArray[np.bool_]


def prove(
    frame: "IntoDataFrame",
    candidate: object,
    limit: float | Constraint,
    *,
    total_range: tuple[float, float],
    min_propensity: float | Sequence[float],
    delta: float = 0.05,
    split: float | None = None,
    by: str | None = None,
) -> Proof:
    """Prove from a log that the expected total utility of a candidate reaches a limit.

    The bound holds at any length of the log, so that you may prove again as it grows.

    Args:
        frame: a data frame of any library, with one row per step. Its columns are episode, step (0, 1, …), state (or
            state_0, state_1, …), action (0, 1, …), propensity and utility; `terminated` is 1 at the last step of an
            episode that ended early.
        candidate: a policy: a table (H, S, A), a function (h, state) -> probabilities, or an `es.Policy`. With
            `split` it may also be a function that fits one: first part of the frame -> policy.
        limit: a number, or an `es.Constraint` with a name, whose column is utility_NAME if the frame has it.
        total_range: least and largest total utility that an episode can have.
        min_propensity: a number that no probability of the logging policy falls below, at any action that the
            candidate may take; or one number per step. It must not be the smallest that the log shows.
        delta: the probability with which the bound may be wrong; all groups share it.
        split: the share of the episodes, drawn with a fixed seed, that fits the candidate; the others prove.
        by: a column with the group of each episode, known before it begins; each group is proved with delta/G.

    Example:
        >>> import numpy as np, pandas, episafe as es
        >>> rng, n = np.random.default_rng(0), 3000
        >>> a = rng.integers(2, size=n)
        >>> log = {"episode": range(n), "step": 0, "state": 0, "action": a, "propensity": 0.5}
        >>> frame = pandas.DataFrame(log | {"utility": (rng.random(n) < 0.5 + 0.4 * a).astype(float)})
        >>> proof = es.prove(frame, [[[0.0, 1.0]]], 0.8, total_range=(0, 1), min_propensity=0.5)
        >>> proof.passed, proof.bound > 0.85
        (True, True)
    """
    threshold = limit.threshold if isinstance(limit, Constraint) else as_number("limit", limit)
    least, most = (as_number("total_range", one) for one in total_range)
    as_probability("delta", delta)
    inside = least < threshold <= most
    require(inside, f"the limit {threshold:g} is not in total_range {least, most}: give totals of an episode")
    steps = read_steps(frame, [limit.name if isinstance(limit, Constraint) else ""], by)
    numbers = np.arange(len(steps.starts))
    if split is not None:
        as_probability("split", split)
        drawn = np.random.default_rng(SPLIT_SEED).permutation(len(numbers))
        first, numbers = (np.sort(one) for one in np.split(drawn, [round(split * len(numbers))]))
        if callable(candidate) and not isinstance(candidate, Policy):
            candidate = candidate(_part(frame, {steps.labels[i] for i in first.tolist()}))
    text = "the log has no episode that could prove anything: give more, or a smaller split"
    require(len(numbers), text, InvalidEpisode)
    shares, largest = shares_of_log(steps, as_policy(candidate, 0), min_propensity)
    totals = steps.totals[:, 0]
    _refuse_where(
        (totals < least - TOLERANCE) | (totals > most + TOLERANCE),
        lambda i: (
            f"episode {steps.labels[i]!r} has a total utility of {totals[i]:.6g}, outside total_range "
            f"{least, most}: state the range that no episode can leave"
        ),
    )
    told = threshold, (least, most), largest
    totals = totals.clip(least, most)
    if by is None:
        return _proof(shares[numbers], totals[numbers], delta, *told)
    members: dict[Hashable, list[int]] = {}
    for i in numbers.tolist():
        members.setdefault(steps.groups[i], []).append(i)
    proofs = {one: _proof(shares[i], totals[i], delta / len(members), *told) for one, i in members.items()}
    worst = min(proofs.values(), key=lambda proof: (proof.passed, proof.bound))
    return Proof(**{**vars(worst), "groups": proofs})


def _proof(
    shares: Array, totals: Array, delta: float, limit: float, total_range: tuple[float, float], largest: float
) -> Proof:
    mean, alarm = float(shares.mean()) * largest, alarm_of(shares, largest)
    bound = total_range[0] if alarm else lower_bound(shares, totals, delta, total_range, largest, limit)
    passed, matched = not alarm and bound >= limit, int(np.count_nonzero(shares))
    needed = len(shares) if passed else episodes_needed(shares, totals, delta, limit, total_range[0], largest)
    if not matched:  # at the most that an episode can tell
        best = np.ones(1), np.array([total_range[1]])
        needed = largest * episodes_needed(*best, delta, limit, total_range[0], 1.0)
    told = bound, passed, limit, delta, total_range, len(shares), matched, largest, mean, alarm, float(needed)
    return Proof(*told, shares=shares, totals=totals)


# the bound


def lower_bound(
    shares: Array,
    totals: Array,
    delta: float,
    total_range: tuple[float, float],
    largest: float,
    limit: float = math.inf,
) -> float:
    """Return the largest mean at which the wealth of all episodes together has reached 1/δ.

    It is a product, so that the order of the episodes does not matter. It falls with the mean, so that the interval
    around the bound can be cut again with the same episodes.
    """
    lower, upper = total_range
    forms = [form_of(shares, totals, total_range[0], largest, part) for part in FORMS]
    for _ in range(3):
        means = lower + (upper - lower) * np.arange(1, NUM_MEANS + 1) / NUM_MEANS
        means = np.unique(np.append(means, limit)) if lower < limit < upper else means
        refuted = log_wealth(forms, tuple(FORMS.values()), means, total_range[0]) >= -math.log(delta)
        above = len(means) if refuted.all() else int(np.argmin(refuted))
        lower, upper = float(means[above - 1]) if above else lower, float(means[min(above, len(means) - 1)])
    return lower


def form_of(shares: Array, totals: Array, least: float, largest: float, part: float) -> tuple[Array, Array]:
    """Return the pairs (s, Y) with s(Y'/ν' − 1) = (1 − c) q(X'/ν' − 1) + c (ρX'/ν' − 1), where X' = X − x₀.

    c = 0 is the share form, c = 1 the importance-weighted total. Both parts have mean 0 if ν = V. The second serves
    policies that differ from the logging policy a little in many steps, where q is small in every episode.
    """
    found = part + (1 - part) * shares
    weight = np.divide(shares * (part * largest + 1 - part), found, out=np.zeros_like(found), where=found > 0)
    return found, least + (totals - least) * weight


def log_wealth(forms: Sequence[tuple[Array, Array]], weights: Sequence[float], means: Array, least: float) -> Array:
    """Return the logarithm of the wealth against each mean, mixed over bets and over forms (s, Y) with weights."""
    wealth = new_wealth(len(forms), len(means), np.array([least]))
    wealth.means[:] = means
    for i, (form, weight) in enumerate(zip(forms, weights, strict=True)):
        wealth.logs[i] = np.log(weight * BET_WEIGHTS)
        credit_log(wealth, i, np.ascontiguousarray(form[0]), np.ascontiguousarray(form[1][:, None]))
    found: Array = np.logaddexp.reduce(wealth.logs + np.log(wealth.products), axis=(0, 1, 3))
    return found


def alarm_of(shares: Array, largest: float) -> str:
    """Return why the mean of ρ is not 1; "" if that is not refuted. It is wrong with probability FALSE_ALARM."""
    mean = 1 / largest
    if mean > 1 - TOLERANCE:
        refuted = bool((shares < 1 - TOLERANCE).any())
    else:
        refuted = any(
            log_wealth([(np.ones(len(seen)), seen)], (1.0,), np.array([expected]), 0.0)[0] >= math.log(2 / FALSE_ALARM)
            for seen, expected in ((shares, mean), (1 - shares, 1 - mean))
        )
    return refuted * (
        f"The mean of the importance ratio is {shares.mean() * largest:.4g} over {len(shares):,} episodes, but it "
        "should be 1. So propensities are wrong, or episodes are missing or appear twice: correct the log"
    )


def episodes_needed(shares: Array, totals: Array, delta: float, limit: float, least: float, largest: float) -> float:
    """Return about how many episodes like these prove the limit: at the rate at which the best bet has grown."""
    found = math.inf
    for part, weight in FORMS.items():
        s, Y = form_of(shares, totals, least, largest, part)
        gains = s * ((Y - least) / (limit - least) - 1)
        growth = np.array([np.log1p(bet * gains).sum() for bet in BETS.tolist()]) / len(shares)
        found = min(found, (-np.log(delta * weight * BET_WEIGHTS[growth > 0]) / growth[growth > 0]).min(initial=found))
    return float(found)


# the log


def read_steps(frame: "IntoDataFrame", limits: Sequence[str], by: str | None = None) -> Steps:
    """Return the rows of a data frame, checked: every episode has its steps 0, 1, … once.

    Args:
        frame: as of `prove`.
        limits: names; the column of a limit is utility_NAME, or `utility`.
        by: the column of groups, or None.
    """
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    columns = table.columns
    require("propensity" in columns, f"the log has no column 'propensity': {REMEDY}", InvalidEpisode)
    axes = ["state"] if "state" in columns else [f"state_{i}" for i in range(len(columns)) if f"state_{i}" in columns]
    utilities = [f"utility_{name}" if f"utility_{name}" in columns else "utility" for name in limits]
    for name in ("episode", "step", *(axes or ["state"]), "action", *utilities, *([by] if by else [])):
        text = f"the log has no column {name!r}: add it; it has {', '.join(columns)}"
        require(name in columns, text, InvalidEpisode)
    require(len(table), "the log has no rows: give one per step", InvalidEpisode)
    numbers: dict[Hashable, int] = {}
    labels = table["episode"].to_list()
    episodes = np.array([numbers.setdefault(label, len(numbers)) for label in labels])
    steps = _whole(table["step"].to_numpy(), "step")
    order = np.lexsort((steps, episodes))
    episodes, steps = episodes[order], steps[order]
    starts = np.searchsorted(episodes, np.arange(len(numbers)))
    distinct = list(numbers)
    _refuse_where(
        steps != np.arange(len(steps)) - starts[episodes],
        lambda i: f"episode {distinct[episodes[i]]!r} does not have its steps 0, 1, … once each: give every row once",
    )
    states = [table[name].to_list() for name in axes]
    told = np.stack([_numbers(table[name].to_numpy(), name)[order] for name in utilities], axis=-1)
    ended = _numbers(table["terminated"].to_numpy(), "terminated") if "terminated" in columns else np.zeros(len(labels))
    ends = np.append(starts[1:], len(labels)) - 1
    groups = table[by].to_list() if by else []
    return Steps(
        episodes,
        starts,
        steps,
        _whole(table["action"].to_numpy(), "action")[order],
        _numbers(table["propensity"].to_numpy(), "propensity")[order],
        [states[0][i] for i in order] if axes == ["state"] else list(np.array(states).T[order]),
        np.add.reduceat(told, starts, axis=0),
        distinct,
        [groups[i] for i in order[starts]] if by else [],
        ended[order][ends] > 0,
    )


def shares_of_log(steps: Steps, policy: Policy, min_propensity: float | Sequence[float]) -> tuple[Array, float]:
    """Return q = ρ/ρ_max of each episode, (E,), and ρ_max = Π_h max π_h/min_propensity_h.

    No ratio of a step exceeds the stated one, so that the product is at most 1. Steps after an early end have ratio 1.
    """
    lengths = np.diff(np.append(steps.starts, len(steps.steps)))
    H, scalar = int(lengths.max()), is_number(min_propensity)
    table = policy.table() if isinstance(policy, TablePolicy) else None
    table = policy.rows[:, None] if isinstance(policy, StepPolicy) else table
    if table is not None:
        H = len(table)
    elif not scalar:
        H = len(np.asarray(min_propensity))
    elif lengths.min() < H:
        raise InvalidProblem(
            f"episodes have {lengths.min()} to {H} steps: give min_propensity as a list, one number for each step that "
            "an episode can have, because longer episodes than those of the log may occur"
        )
    least = as_array("min_propensity", [min_propensity] * H if scalar else min_propensity, (H,))
    text = f"min_propensity must be in (0, 1], got {min_propensity!r}: derive it from the logging rule"
    require(((least > 0) & (least <= 1)).all(), text)
    _refuse_where(
        ((lengths < H) & ~steps.ended) | (lengths > H),
        lambda i: (
            f"episode {steps.labels[i]!r} has {lengths[i]} steps of {H}: give every step, and `terminated` = 1 "
            "at the last step of an episode that ended early"
        ),
    )
    acted = _asked(steps, policy) if table is None else _looked_up(steps, table, isinstance(policy, StepPolicy))
    most = np.ones(H) if table is None else table.max(axis=(1, 2))
    propensities = steps.propensities

    def place(i: int) -> str:
        label = steps.labels[steps.episodes[i]]
        return f"the propensity {propensities[i]:.6g} at step {steps.steps[i]} of episode {label!r}"

    wrong = ~((propensities > 0) & (propensities <= 1 + TOLERANCE))
    _refuse_where(wrong, lambda i: f"{place(i)} is not in (0, 1]: {REMEDY}")
    _refuse_where(
        (acted > 0) & (propensities < least[steps.steps] * (1 - TOLERANCE)),
        lambda i: (
            f"{place(i)} is below min_propensity {least[steps.steps[i]]:g}, at an action of the candidate: state "
            "a bound that the logging policy guarantees, not the smallest value of the log"
        ),
    )
    largest = np.maximum(most / least, 1.0)
    left = np.append(np.cumprod(1 / largest[::-1])[::-1], 1.0)  # of an episode that ends before step h
    ratios = np.minimum(acted / propensities / largest[steps.steps], 1.0)  # above 1 by rounding only
    shares = np.multiply.reduceat(ratios, steps.starts) * left[lengths]
    return shares, float(np.prod(largest))


def _looked_up(steps: Steps, table: Array, is_schedule: bool) -> Array:
    """Return π_h(a|s) of each row, (N,), by a table (H, S, A), or (H, 1, A) of a schedule."""
    states = np.zeros_like(steps.steps) if is_schedule else _whole(np.asarray(steps.states), "state")
    _refuse_where(
        (states >= table.shape[1]) | (steps.actions >= table.shape[2]) | (steps.steps >= len(table)),
        lambda i: (
            f"step {steps.steps[i]}, state {steps.states[i]!r}, action {steps.actions[i]} is not in the table of "
            f"the candidate, {table.shape}: number steps, states and actions from 0"
        ),
    )
    return table[steps.steps, states, steps.actions]


def _asked(steps: Steps, policy: Policy) -> Array:
    """Return π_h(a|s) of each row, (N,), of a policy that is asked once at each step and state."""
    ask = policy.function if isinstance(policy, FunctionPolicy) else policy.probabilities
    known: dict[Hashable, int] = {}
    answers: list[ArrayLike] = []
    met = []
    for h, state in zip(steps.steps.tolist(), steps.states, strict=True):
        key = (h, state.tobytes() if isinstance(state, np.ndarray) else state)
        i = known.setdefault(key, len(known))
        if i == len(answers):
            answers.append(ask(h, state))
        met.append(i)
    rows = as_distributions("probabilities of the candidate", answers, (None, None))
    text = f"the log has action {steps.actions.max()}, and the candidate {rows.shape[1]} actions"
    require(steps.actions.max() < rows.shape[1], text, InvalidEpisode)
    return rows[met, steps.actions]


# logs that a session reads


def logged_shares(
    frame: "IntoDataFrame", task: Task, policies: Sequence[Policy], min_propensity: float | Sequence[float] | None
) -> tuple[list[str], Array, Array, str]:
    """Return a digest of each logged episode, q (n, E) under each policy, X (E, m), and what they assume.

    The order is a fixed random one, because a session uses the best prefix.
    """
    steps = read_steps(frame, [one.name for one in task.constraints])
    if min_propensity is None:
        raise InvalidProblem("give min_propensity=…, a lower bound on the propensities of the logging policy")
    if task.encode is not None:
        steps = steps._replace(states=[task.encode(state) for state in steps.states])
    found = [shares_of_log(steps, policy, min_propensity) for policy in policies]
    for q, largest in found:
        alarm = alarm_of(q, largest)
        require(not alarm, alarm, InvalidEpisode)
    shares = np.array([q for q, _ in found])
    parts = [np.split(one, steps.starts[1:]) for one in (steps.actions, steps.propensities)]
    rows = zip(steps.labels, *parts, steps.totals, strict=True)
    digests = [_digest(label, *(one.tobytes() for one in row)) for label, *row in rows]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digests))
    return [digests[i] for i in order], shares[:, order], steps.totals[order], ASSUMES


def logged_episodes(frame: "IntoDataFrame", task: Task) -> tuple[list[str], list[Episode]]:
    """Return a digest of each logged episode and the episodes, in a fixed random order."""
    import narwhals as nw

    labels = list(dict.fromkeys(nw.from_native(frame, eager_only=True)["episode"].to_list()))
    episodes = read_episodes(frame, task)
    digests = [_digest(label, repr(one.trace).encode()) for label, one in zip(labels, episodes, strict=True)]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digests)).tolist()
    return [digests[i] for i in order], [episodes[i] for i in order]


def _digest(label: Hashable, *parts: bytes) -> str:
    return hashlib.sha256(b"\n".join([repr(label).encode(), *parts])).hexdigest()[:16]


def _part(frame: "IntoDataFrame", labels: set[Hashable]) -> "IntoDataFrame":
    """Return the rows of some episodes, as a data frame of the same library."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    return table.filter([label in labels for label in table["episode"].to_list()]).to_native()


def _numbers(values: ArrayLike, name: str) -> Array:
    """Return a column as finite numbers."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidEpisode(f"the column {name!r} has values that are not numbers ({error}): correct them") from error
    place = f"of the column {name!r} is"
    _refuse_where(~np.isfinite(found), lambda i: f"row {i} {place} {found[i]}: give a finite number")
    return found


def _whole(values: ArrayLike, name: str) -> IntArray:
    """Return a column as whole numbers from 0."""
    found = _numbers(values, name)
    place = f"of the column {name!r} is"
    _refuse_where((found < 0) | (found != np.floor(found)), lambda i: f"row {i} {place} {found[i]:g}: number from 0")
    return found.astype(np.int64)


def _refuse_where(wrong: NDArray[np.bool_], text: Callable[[int], str]) -> None:
    """Raise for the first row or episode that is wrong."""
    if wrong.any():
        raise InvalidEpisode(text(int(np.argmax(wrong))))

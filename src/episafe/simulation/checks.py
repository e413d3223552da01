"""Check a problem by playing its incumbent: what is wrong, and how to repair it.

`es.run` uses `Watch` on its first episodes; the command `check` uses `check_problem`.
"""

import math
import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np

from episafe.certify.replays import replays_of
from episafe.core.checks import TOLERANCE
from episafe.core.errors import InvalidEpisode
from episafe.core.task import Problem, Task
from episafe.core.types import ENDED, Array, Episode
from episafe.kernels.wealth import BETS
from episafe.simulation.worlds import World, make_streams, world_of

CHECKED_AT = (20, 40, 80, 160, 320, 640)  # episodes of the incumbent after which `es.run` looks for common mistakes
LAST_EPISODE = 2_000  # after which it does not look any more
DOUBT_DELTA = 0.002  # of each bound that it uses
SEVERAL = 3.0  # times a threshold of at most 1, which may then be meant per step
DELTA = 0.01  # of the interval for the incumbent's utility
FEW = 0.05  # share of trials below which learning is slow; a rule of thumb

Finding = tuple[Literal["ok", "warning", "error"], str]  # of a check: the verdict, and what was found and what to do


def doubt(task: Task, totals: Array, first: int = 0) -> str:
    """Return one sentence on the most likely mistake, given totals of the incumbent (n, ·); "" if none.

    The columns are those of the limits from number `first` on. Each limit is compared with a confidence bound that
    holds at all n at once: if the incumbent exceeds every limit by its slack, a run says that it does not with
    probability δm at most.
    """
    H = float((task.horizon or 0) - int(task.random_start))
    for one, column in zip(task.constraints[first:], totals.T, strict=False):
        b, most = one.threshold, H - lower_bound(np.maximum(H - column, 0.0), DOUBT_DELTA)
        seen = f"the incumbent's mean total of {one.name} is {column.mean():.4g} in {len(column)} episodes"
        if most < b - TOLERANCE:
            remedy = "lower the limit, give a safer incumbent, or use cost_limit= if the signal is a cost"
            return f"{seen}, below the threshold {b:.4g}: {remedy}"
        if one.slack is not None and most < b + one.slack - TOLERANCE:
            remedy = "correct slack= (es.measure_slack)" if column.mean() > b else "lower the limit, or correct slack="
            return f"{seen}, below threshold + slack = {b + one.slack:.4g}: {remedy}"
    return ""


def doubt_units(task: Task, totals: Array, first: int = 0) -> str:
    """Return one sentence if a threshold of at most 1 is far below all totals (n, ·): it may be meant per step."""
    for one, column in zip(task.constraints[first:], totals.T, strict=False):
        if 0 < one.threshold <= 1 and lower_bound(np.maximum(column, 0.0), DOUBT_DELTA) > SEVERAL * one.threshold:
            times = f"{column.mean() / one.threshold:.3g} times the threshold {one.threshold:.4g}"
            seen = f"the mean total of {one.name} is {column.mean():.4g} in {len(column)} episodes"
            return f"{seen}, {times}: give the limit as a total of an episode"
    return ""


class Watch:
    """Looks for common mistakes in the first episodes of a run, and warns once, in one sentence.

    It looks when 20, 40, …, 640 episodes, or episodes of the incumbent, were played.
    """

    def __init__(self, world: World) -> None:
        self._task, self._active = world.problem.task, world.unknown
        self._all: list[Array] = []
        self._incumbent: list[Array] = []
        self._say(world.doubt(), 5)

    def see(self, policy: object, total_utility: Array) -> None:
        """Note an episode; only those of the incumbent say whether it keeps its limits."""
        if self._active:
            self._look(self._all, total_utility, doubt_units)
            if policy is self._task.incumbent:
                self._look(self._incumbent, total_utility, doubt)
            self._active = self._active and len(self._all) < LAST_EPISODE

    def _look(self, totals: list[Array], new: Array, judge: Callable[[Task, Array], str]) -> None:
        totals.append(new)
        if len(totals) in CHECKED_AT:
            self._say(judge(self._task, np.array(totals)), 7)

    def _say(self, sentence: str, calls: int) -> None:
        """Warn at the line of the user, so many calls above."""
        if sentence and self._active:
            self._active = False
            warnings.warn(sentence, stacklevel=calls)


def check_problem(problem: Problem, num_episodes: int = 200, seed: int = 0) -> list[Finding]:
    """Play the incumbent, and return what was found: Gymnasium's checker, episodes, utility, trials, moves, start."""
    task = problem.task
    if task.horizon is None:
        return [("ok", "the task has only totals: there are no episodes to play")]
    findings = _gymnasium(problem)
    try:
        world = world_of(problem, make_streams(seed))
        findings += [("warning", text)] if (text := world.doubt()) else []
        episodes = [task.read(world.play(k, task.incumbent, None)) for k in range(num_episodes)]
    except ValueError as error:  # the problem's own faults: InvalidProblem, InvalidEpisode
        return [*findings, ("error", f"an episode failed: {error}")]
    findings.append(("ok", f"{num_episodes} episodes of the incumbent, {task.horizon} steps each"))
    totals = np.array([episode.total_utility for episode in episodes])
    exact = None if world.unknown else np.atleast_1d(world.problem.evaluate(task.incumbent)[1])
    for c, column in enumerate(totals.T):
        findings += [_incumbent(task, c, column, None if exact is None else float(exact[c])), _trials(task, c)]
    findings += _ends(task, episodes) + _moves(task, episodes)
    return findings


def _gymnasium(problem: object) -> list[Finding]:
    """Return what Gymnasium's own checker says of an environment."""
    env = vars(problem).get("env")
    if env is None:
        return []
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # its faults are of many kinds
            return [("error", f"Gymnasium's checker: {type(error).__name__}: {error}")]
    notes = [str(one.message).replace("\x1b[33mWARN: ", "").replace("\x1b[0m", "")[:200] for one in noted]
    return [("warning", f"Gymnasium's checker: {notes[0]}") if notes else ("ok", "Gymnasium's checker passed")]


def _incumbent(task: Task, c: int, totals: Array, exact: float | None) -> Finding:
    """Compare the incumbent's utility, with a 99 % interval, with threshold and slack; an exact one keeps them."""
    one, H = task.constraints[c], float((task.horizon or 0) - int(task.random_start))
    if exact is not None:
        text = f"{one.name}: the incumbent has {exact:.4g} (exact); limit {one.threshold:.4g}"
        return ("ok", text if one.slack is None else f"{text}, slack {one.slack:.4g}")
    low = one.least_total + lower_bound(totals - one.least_total, DELTA / 2)
    high, b = H - lower_bound(H - totals, DELTA / 2), one.threshold
    found = f"{one.name}: the incumbent has {totals.mean():.4g}, between {low:.4g} and {high:.4g} (99 %); limit {b:.4g}"
    if high < b:
        return ("error", f"{found}: it is not safe; give a safer incumbent or lower the limit")
    if text := doubt(task, totals[:, None], c) or doubt_units(task, totals[:, None], c):
        return ("warning", text)
    if one.slack is None:
        return ("ok", f"{found}; prove a slack with es.measure_slack")
    if high < b + one.slack - TOLERANCE:
        return ("error", f"{found}: the slack {one.slack:.4g} is too large; give at most {max(low - b, 0):.4g}")
    if low < b + one.slack - TOLERANCE:
        return ("warning", f"{found}: the slack {one.slack:.4g} is not certain; play more episodes")
    return ("ok", f"{found}, slack {one.slack:.4g}")


def _trials(task: Task, c: int) -> Finding:
    """Return how often a candidate of which nothing is known may be tried: ξ/(b + ξ − x₀), x₀ the least total."""
    one = task.constraints[c]
    if one.slack is None or one.threshold <= one.least_total:
        return ("ok", f"{one.name}: the share of trials depends on the slack, which is unknown")
    share = one.slack / (one.threshold + one.slack - one.least_total)
    text = f"{one.name}: a new candidate acts in {share:.1%} of the first episodes"
    if share < FEW:
        return ("warning", f"{text}: learning is slow; state least_total, or lower the limit")
    return ("ok", text)


def _ends(task: Task, episodes: list[Episode]) -> list[Finding]:
    """Return a warning if episodes that end early look safe."""
    if task.is_listed or ENDED not in task.outside:
        return []
    share = float(np.mean([episode.states[-1] == ENDED for episode in episodes]))
    after = max(task.outside[ENDED][1])
    if share and after > 0:
        remedy = "if ending early is unsafe, add the cost of the remaining steps to the last step"
        return [("warning", f"{share:.0%} of the episodes end early, and later steps have utility {after:g}: {remedy}")]
    return [("ok", f"{share:.0%} of the episodes end early")]


def _moves(task: Task, episodes: list[Episode]) -> list[Finding]:
    """Compare each step with what `move` computes from the random input that was seen."""
    if task.move is None or episodes[0].trace is None:
        return []
    replays = replays_of(task, "check")
    for number, episode in enumerate(episodes):
        try:
            _, fault = replays.judge(episode)
        except InvalidEpisode as error:
            fault = str(error)
        if fault:
            return [("error", f"move disagrees with episode {number} {fault}: correct move= or the random inputs")]
    return [("ok", f"{len(episodes)} episodes agree with move")]


def lower_bound(totals: Array, delta: float) -> float:
    """Return a lower bound on the mean of independent totals ≥ 0 (n,), valid at all n at once with probability 1 − δ.

    The wealth (1/B) Σ_k Π_t (1 + λ_k (X_t/g − 1)) is a nonnegative martingale if g is the mean, and falls in g. The
    bound is the largest g at which it reaches 1/δ (Ville's inequality), found by halving; 0 if there is none.
    """
    low, high = 0.0, float(totals.mean())
    for _ in range(50):
        g = (low + high) / 2
        if g <= 0:
            break
        logs = np.log1p(BETS[:, None] * (totals / g - 1)).sum(axis=1)
        reached = logs.max() + math.log(np.exp(logs - logs.max()).mean()) >= math.log(1 / delta)
        low, high = (g, high) if reached else (low, g)
    return low

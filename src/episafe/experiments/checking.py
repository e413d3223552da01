"""`episafe check`: plays a live problem under its incumbent and says what is wrong and how to mend it."""

import importlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from episafe.agents.base import Episode
from episafe.arrays import Array
from episafe.errors import InvalidProblem
from episafe.problems.checks import TOLERANCE
from episafe.problems.gym import GymCMDP
from episafe.problems.outside import ENDED, Outside
from episafe.runs.live import play

Z = 2.576  # of a 99 % interval


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what, "ok", "warning" or "error", what was found, and what to do about it."""

    what: str
    verdict: str
    found: str


def load(name: str) -> GymCMDP:
    """The problem that `module:name` stands for: a problem of `from_gymnasium`, or a function that makes one."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"give module:name, e.g. shop:problem for `problem` in shop.py, got {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ValueError(f"{error}: run from the folder of {module}.py, or install it") from error
    except AttributeError as error:
        raise ValueError(f"{module} has no {attribute!r}") from error
    finally:
        sys.path.pop(0)
    if callable(found):
        found = found()
    if not isinstance(found, GymCMDP):
        raise ValueError(
            f"{name} is a {type(found).__name__}: name what es.from_gymnasium returns, or a function of it"
        )
    return found


def check(problem: GymCMDP, num_episodes: int = 200, seed: int = 0) -> list[Finding]:
    """Gymnasium's own checker, then episodes of the incumbent: ranges, ends, repeats, features, its utility."""
    findings = [_gymnasium(problem)]
    problem.seed(seed)
    rng, episodes = np.random.default_rng(seed), []
    try:
        for _ in range(num_episodes):
            episodes.append(play(problem, problem.task.safe_policy, rng))
    except InvalidProblem as error:
        return [*findings, Finding("episodes", "error", str(error))]
    findings.append(Finding("episodes", "ok", f"{num_episodes} of the incumbent, {problem.task.horizon} steps each"))
    looks: tuple[Callable[[GymCMDP, list[Episode]], Finding], ...] = (_ends, _start, _features, _repeats, _incumbent)
    return findings + [look(problem, episodes) for look in looks]


def _gymnasium(problem: GymCMDP) -> Finding:
    """What `gymnasium.utils.env_checker.check_env` says."""
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            check_env(problem.env.unwrapped, skip_render_check=True)
        except Exception as error:  # its faults are of many kinds, and all are the environment's
            return Finding("Gymnasium's checker", "error", f"{type(error).__name__}: {error}")
    if noted:
        return Finding("Gymnasium's checker", "warning", str(noted[0].message).replace("\x1b[33mWARN: ", "")[:200])
    return Finding("Gymnasium's checker", "ok", "passed")


def _ends(problem: GymCMDP, episodes: list[Episode]) -> Finding:
    """Early ends: with a cost they look safe."""
    share = float(np.mean([episode.states[-1] is ENDED for episode in episodes]))
    if share and problem.origin["signal"] == "cost":
        return Finding(
            "early ends",
            "warning",
            f"{share:.0%} of the episodes end early and cost nothing after: ending early looks safe. If it is not, "
            "charge the rest of the episode in the cost of the last step; if it is, all is well",
        )
    return Finding("early ends", "ok", f"{share:.0%} of the episodes")


def _start(problem: GymCMDP, episodes: list[Episode]) -> Finding:
    """Whether a random start looks alike in both halves: each coordinate's means, within five standard errors."""
    if not problem.task.random_start:
        return Finding("start", "ok", "fixed")
    starts = np.array([np.ravel(np.asarray(e.states[1], dtype=float)) for e in episodes])
    first, second = np.array_split(starts, 2)
    error = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second)) + 1e-12
    gap = np.abs(first.mean(axis=0) - second.mean(axis=0)) / error
    if (gap > 5).any():
        found = f"coordinate {int(gap.argmax())} moved by {gap.max():.0f} standard errors between two halves"
        return Finding("start", "error", f"{found}: the start must be drawn alike each time; drop what drifts")
    return Finding("start", "ok", "random, no drift seen")


def _features(problem: GymCMDP, episodes: list[Episode]) -> Finding:
    """The norms of the features at visited states; above 1 they are refused before this."""
    task = problem.task
    if task.one_hot:
        return Finding("features", "ok", "one-hot")
    norms = [np.linalg.norm(task.features(s), axis=1).max() for e in episodes for s in e.states if not _outside(s)]
    largest = max(norms)
    if largest > 1 + 1e-9:
        return Finding("features", "error", f"norm {largest:.4g} > 1: divide all features by {largest:.6g}")
    if largest < 0.3:
        return Finding("features", "warning", f"largest norm {largest:.3g}: small features learn slowly; scale them up")
    return Finding("features", "ok", f"dimension {task.dim}, largest norm {largest:.3g}")


def _repeats(problem: GymCMDP, episodes: list[Episode]) -> Finding:
    """Whether reward and utility repeat at the same step, state and action."""
    seen: dict[Any, list[Array]] = {}
    for episode in episodes:
        for h, (state, action) in enumerate(zip(episode.states, episode.actions, strict=False)):
            value = np.array([episode.rewards[h], episode.utilities[h]])
            seen.setdefault((h, problem.task.key(state), action), []).append(value)
    repeated = [np.array(values) for values in seen.values() if len(values) > 1]
    if not repeated:
        return Finding("repeats", "ok", "no state was seen twice, so nothing can be said")
    spread = np.max([np.ptp(values, axis=0) for values in repeated], axis=0)
    if (spread > 1e-9).any():
        found = f"at the same state and action they differ by up to {spread[0]:.3g} and {spread[1]:.3g}"
        return Finding("reward and utility", "warning", f"{found}: what is kept is the expected utility; raise C_theta")
    return Finding("reward and utility", "ok", f"no noise at {len(repeated)} states and actions")


def _incumbent(problem: GymCMDP, episodes: list[Episode]) -> Finding:
    """The incumbent's utility with a 99 % interval (normal), against threshold and slack."""
    totals = np.array([np.sum(episode.utilities) for episode in episodes])
    mean, half = float(totals.mean()), Z * float(totals.std(ddof=1)) / len(totals) ** 0.5
    b, slack = problem.task.threshold, problem.task.slack
    found = f"utility {mean:.4g} ± {half:.2g} (99 %, normal), in [0, 1] a step; threshold {b:.4g}, slack {slack:.3g}"
    if mean + half < b:
        return Finding("incumbent", "error", f"{found}: it is not safe; give a safer one or relax the limit")
    if mean + half < b + slack - TOLERANCE:  # the told slack is rounded too
        return Finding(
            "incumbent", "error", f"{found}: the slack is not there; give at most {max(mean - half - b, 0):.3g}"
        )
    if mean - half < b + slack - 1e-9:
        return Finding("incumbent", "warning", f"{found}: not certain; play more episodes, or give a smaller slack")
    return Finding("incumbent", "ok", found)


def _outside(state: Any) -> bool:
    return isinstance(state, Outside)

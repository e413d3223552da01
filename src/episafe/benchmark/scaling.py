"""How regret grows with K, 1/ξ, S, A, H and d: one of them is varied, all else stays, and an exponent is fitted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from episafe.benchmark.comparison import settings
from episafe.benchmark.problem_sets import problem_set
from episafe.envs import make
from episafe.envs.baseline import baseline
from episafe.experiments.job import Job, folder_name
from episafe.learning.constants import Constants
from episafe.problems.cmdp import LinearCMDP
from episafe.problems.sampled_problem import known_slack
from episafe.runs.record import Record, is_complete
from episafe.stats import t_interval

POOR = "episafe.benchmark.scaling:poor_incumbent"
EPISODES = "K"
AXES: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {  # axis: environment, and its options at every value
    "1/ξ": (POOR, tuple({"share": share} for share in (0.4, 0.2, 0.1, 0.05))),
    "S": ("tabular", tuple({"num_states": S} for S in (4, 8, 16))),
    "A": ("tabular", tuple({"num_actions": A} for A in (2, 4, 8))),
    "H": ("tabular", tuple({"horizon": H} for H in (3, 6, 12))),
    "d": ("linear", tuple({"dim": d, "num_states": 40} for d in (3, 6, 12))),
}
SHARES = (0.125, 0.25, 0.5, 1.0)  # of a run, for K


@dataclass(frozen=True)
class ScaledAgent:
    """One agent in a chart: a name, the agent, its constants, and whether B_† grows as 1/ξ, as in the theorem.

    It is then the tuned one at the largest ξ.
    """

    label: str
    agent: str
    constants: str = "published"
    follows_slack: bool = False


LINES = (
    ScaledAgent("OPSE-LCMDP, tuned constants", "opse", "tuned"),
    ScaledAgent("OPSE-LCMDP, tuned, B_† ~ 1/ξ", "opse", "tuned", follows_slack=True),
    ScaledAgent("OPSE, certified by observation", "opse-observation"),
    ScaledAgent("OptPess-LP", "optpess-lp"),
    ScaledAgent("DOPE, authors’ constants", "dope-authors"),
    ScaledAgent("EpsMix", "epsmix"),
)


@dataclass(frozen=True)
class Exponent:
    """Regret ~ x^exponent: the mean over problems of least-squares slopes in logarithms, and half its 95 % interval.

    Attributes:
        axis, label: what is varied, and for whom.
        x, regret: where, and the mean total regret there.
        violating: runs that violate, of all.
    """

    axis: str
    label: str
    exponent: float
    half_width: float
    x: tuple[float, ...]
    regret: tuple[float, ...]
    violating: int
    problems: int


def poor_incumbent(seed: int, share: float) -> LinearCMDP:
    """The tabular problem of a seed with an incumbent that earns as little as one of this slack can.

    ξ is a share of the largest slack that any policy has. With the best policy of a small slack for an incumbent there
    would be nothing left to gain as ξ shrinks.
    """
    drawn = make("tabular", seed)
    told, slack = drawn.task, share * known_slack(drawn.task)
    table = baseline(drawn.P, 1 - told.reward, told.utility, told.initial_state, told.threshold, slack)
    return LinearCMDP(
        drawn.P, told.reward, told.utility, None, told.initial_state, told.threshold, table, slack, origin=drawn.origin
    )


def jobs(num_problems: int, num_episodes: int) -> list[Job]:
    """Every line at every value of every axis; runs at the first value of S serve for K too."""
    return [
        _job(axis, line, i, seed, num_episodes)
        for seed in problem_set("tabular").seeds[:num_problems]
        for axis, (_, values) in AXES.items()
        for line in lines(axis)
        for i in range(len(values))
    ]


def exponents(num_problems: int, num_episodes: int, folder: Path) -> list[Exponent]:
    """What the records say, axis by axis; K first, from the runs at the first value of S. Problems that lack a run of
    a line are left out of it."""
    found = []
    at = [max(int(share * num_episodes), 1) for share in SHARES]
    for line in lines("S"):
        each = _records("S", line, (0,), num_problems, num_episodes, folder)
        found.append(_fitted(EPISODES, line, at, [[of[0].regret()[k - 1] for k in at] for of in each], each))
    for axis, (_, values) in AXES.items():
        for line in lines(axis):
            each = _records(axis, line, range(len(values)), num_problems, num_episodes, folder)
            regret = [[record.regret()[-1] for record in of] for of in each]
            found.append(_fitted(axis, line, [_x(axis, options) for options in values], regret, each))
    return [one for one in found if one.problems]


def lines(axis: str) -> list[ScaledAgent]:
    """The lines of an axis: B_† follows ξ where ξ is varied."""
    return [line for line in LINES if axis == "1/ξ" or not line.follows_slack]


def _records(
    axis: str, line: ScaledAgent, values: Sequence[int], num_problems: int, num_episodes: int, folder: Path
) -> list[list[Record]]:
    """The records of a line, problem by problem, at these values of an axis."""
    places = [
        [folder / _job(axis, line, i, seed, num_episodes).name for i in values]
        for seed in problem_set("tabular").seeds[:num_problems]
    ]
    return [[Record.load(place) for place in of] for of in places if all(map(is_complete, of))]


def _x(axis: str, options: Mapping[str, Any]) -> float:
    first = float(next(iter(options.values())))
    return 1 / first if axis == "1/ξ" else first


def _job(axis: str, line: ScaledAgent, i: int, seed: int, num_episodes: int) -> Job:
    env, values = AXES[axis]
    said, changes = settings(), {}
    if line.follows_slack:
        shipped = Constants.tuned(poor_incumbent(seed, **values[i]).task).B_dagger
        changes = {"B_dagger": shipped * values[0]["share"] / values[i]["share"]}
    replan = "" if line.agent in said["own"] else said["replan"]
    told = {"axis": axis, "options": values[i], "episodes": num_episodes, "changes": changes}
    name = folder_name("scaling", line.agent, seed, told)
    made = Job(name, env, line.agent, seed, num_episodes, replan=replan, constants=line.constants)
    return replace(made, changes=tuple(changes.items()), options=tuple(values[i].items()), cost=float(num_episodes))


def _fitted(
    axis: str, line: ScaledAgent, at: Sequence[float], regret: Any, each: Sequence[Sequence[Record]]
) -> Exponent:
    """Slopes of ln regret in ln x, problem by problem; regret that is not positive says nothing and is left out."""
    regrets, ln_x = np.array(regret, dtype=np.float64).reshape(-1, len(at)), np.log(np.array(at, dtype=np.float64))
    usable = regrets[(regrets > 0).all(axis=1)]
    slopes = [np.polyfit(ln_x, np.log(of), 1)[0] for of in usable]
    mean, half = t_interval(np.array(slopes)) if slopes else (math.nan, math.nan)
    violating = sum(bool(record.violating().any()) for of in each for record in of)
    means = tuple(float(value) for value in usable.mean(axis=0)) if slopes else ()
    return Exponent(axis, line.label, float(mean), float(half), tuple(map(float, at)), means, violating, len(usable))

"""Regret against violation over one multiplier, for OPSE, Ghosh et al. and DOPE, as many settings for each.

The best setting of each agent is then judged on other problems: on those that picked it, it looks too good.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE
from episafe.envs import make
from episafe.experiments.agent_choice import build_agent
from episafe.learning.constants import Constants
from episafe.learning.replanning import Doubling
from episafe.learning.transition_counts import Radius
from episafe.problems.cmdp import LinearCMDP
from episafe.registry import REGISTRY
from episafe.reports.tables import csv_text
from episafe.runs.run import run
from episafe.stats import rate_interval
from episafe.storage.atomic_files import write_text
from episafe.tools.calibration import scaled

ENVS = ("tabular", "streaming", "linear")
MULTIPLIERS = (2.0, 1.0, 0.5, 0.25, 0.125, 0.06, 0.03)  # as many for every agent: the same budget
FIRST_SEED = 200  # tuned on 5000 and up, reported on 0 to 99; these are fresh to both
FRESH_SEED = 20_000  # fresh to what these pick
REPLAN = Doubling(0.3)

AGENTS = {f"{name}, {which}": (name, which) for name, entry in REGISTRY.items() for which in entry.frontier}

Point = dict[str, Any]


def _built(agent: str, cmdp: LinearCMDP, env: str, multiplier: float) -> Agent:
    """The agent, its constants multiplied; for DOPE, on a box as wide as the multiplier says: its scales are C = 1."""
    name, which = AGENTS[agent]
    constants = Constants.tuned(cmdp.task) if which == "tuned" else Constants.paper(env, REGISTRY[name].published_as)
    if name == "dope":
        return DOPE(cmdp.task, constants, REPLAN, radius=Radius(multiplier, multiplier))
    return build_agent(name, cmdp, scaled(constants, multiplier), REPLAN)


def frontier(
    envs: Sequence[str], num_seeds: int, num_episodes: int, on_points: Callable[[int], None] = lambda num_done: None
) -> list[Point]:
    """Every agent at every multiplier on every environment, on seeds FIRST_SEED, FIRST_SEED + 1, …"""
    points = []
    for env in envs:
        problems = {seed: make(env, seed) for seed in range(FIRST_SEED, FIRST_SEED + num_seeds)}
        for agent in AGENTS:
            for multiplier in MULTIPLIERS:
                points.append(_point(env, agent, multiplier, problems, num_episodes))
                on_points(len(points))
    return points


def picked(points: Sequence[Point]) -> list[Point]:
    """Of each agent on each environment the point of least regret among those without violation; none where none is."""
    safe = sorted((point for point in points if not point["num_violating"]), key=lambda point: -point["regret"])
    best = {(point["env"], point["agent"]): point for point in safe}  # the last of each is the least
    places = dict.fromkeys((point["env"], point["agent"]) for point in points)
    return [best[place] for place in places if place in best]


def judged(
    points: Sequence[Point], num_seeds: int, on_points: Callable[[int], None] = lambda num_done: None
) -> list[Point]:
    """These points again, on seeds FRESH_SEED, FRESH_SEED + 1, …, with the exact interval of the violation rate."""
    found = []
    for point in points:
        env, agent, multiplier, num_episodes = (point[name] for name in ("env", "agent", "multiplier", "num_episodes"))
        problems = {seed: make(env, seed) for seed in range(FRESH_SEED, FRESH_SEED + num_seeds)}
        again = _point(env, agent, multiplier, problems, num_episodes)
        low, high = rate_interval(again["num_violating"], num_seeds)
        found.append({**again, "rate_low": low, "rate_high": high, "regret_where_picked": point["regret"]})
        on_points(len(found))
    return found


def num_points(envs: Sequence[str]) -> int:
    """How many points `frontier` makes on these environments."""
    return len(envs) * len(AGENTS) * len(MULTIPLIERS)


def _point(env: str, agent: str, multiplier: float, problems: dict[int, LinearCMDP], num_episodes: int) -> Point:
    """One agent at one multiplier on one environment: means over the seeds, and how many problems ever violated."""
    made = {seed: _built(agent, cmdp, env, multiplier) for seed, cmdp in problems.items()}
    records = [run(cmdp, made[seed], num_episodes, seed) for seed, cmdp in problems.items()]
    regret, regret_half_width = _interval([record.regret()[-1] for record in records])
    violation, violation_half_width = _interval([record.violation()[-1] for record in records])
    return {
        "env": env,
        "agent": agent,
        "level": next(reversed(made.values())).level,
        "multiplier": multiplier,
        "num_problems": len(problems),
        "num_episodes": num_episodes,
        "regret": regret,
        "regret_half_width": regret_half_width,
        "violation": violation,
        "violation_half_width": violation_half_width,
        "num_violating": sum(bool(record.violating().any()) for record in records),
    }


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and 95 % half-width (normal)."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(half)


def table(winners: Sequence[Point]) -> Table:
    """What `judged` found, for people."""
    shown = Table(
        "environment", "agent", "multiplier", "regret", "violating", "rate, 95 %", title="Picked, judged afresh"
    )
    for one in winners:
        regret = f"{one['regret']:.0f} ± {one['regret_half_width']:.0f}"
        rate = f"{one['rate_low']:.3f} to {one['rate_high']:.3f}"
        violating = f"{one['num_violating']} of {one['num_problems']}"
        shown.add_row(one["env"], one["agent"], f"{one['multiplier']:g}", regret, violating, rate)
    return shown


def write_frontier(points: Sequence[Point], winners: Sequence[Point], folder: Path) -> list[Path]:
    """frontier.csv, frontier.png and winners.csv in `folder`."""
    from episafe.reports.frontier_figure import write_frontier_figure  # drawing libraries take a second to import

    write_text(folder / "frontier.csv", csv_text(points))
    write_text(folder / "winners.csv", csv_text(winners))
    return [folder / "frontier.csv", folder / "winners.csv", write_frontier_figure(points, folder / "frontier.png")]

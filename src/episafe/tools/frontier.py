"""Regret against violation over one multiplier, for OPSE, Ghosh et al. and DOPE, as many settings for each."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from episafe.agents.base import Agent
from episafe.agents.dope import DOPE, Radius
from episafe.envs import make
from episafe.experiments.agent_choice import build_agent
from episafe.learning.constants import Constants
from episafe.learning.replanning import Doubling
from episafe.problems.cmdp import LinearCMDP
from episafe.registry import REGISTRY
from episafe.runs.run import run
from episafe.storage.atomic_files import write_text
from episafe.tools.calibration import scaled

ENVS = ("tabular", "streaming", "linear")
MULTIPLIERS = (2.0, 1.0, 0.5, 0.25, 0.125, 0.06, 0.03)  # as many for every agent: the same budget
FIRST_SEED = 200  # tuned on 5000 and up, reported on 0 to 99; these are fresh to both
REPLAN = Doubling(0.3)

AGENTS = {f"{name}, {which}": (name, which) for name, entry in REGISTRY.items() for which in entry.frontier}


def _built(agent: str, cmdp: LinearCMDP, env: str, multiplier: float) -> Agent:
    """The agent, its constants multiplied; for DOPE, on a box as wide as the multiplier says: its scales are C = 1."""
    name, which = AGENTS[agent]
    constants = Constants.tuned(cmdp.task) if which == "tuned" else Constants.paper(env, REGISTRY[name].published_as)
    if name == "dope":
        return DOPE(cmdp.task, constants, REPLAN, radius=Radius(multiplier, multiplier))
    return build_agent(name, cmdp, scaled(constants, multiplier), REPLAN)


@dataclass(frozen=True)
class Point:
    """One agent at one multiplier on one environment: means over the seeds, and how many problems ever violated."""

    env: str
    agent: str
    level: str
    multiplier: float
    num_problems: int
    num_episodes: int
    regret: float
    regret_half_width: float
    violation: float
    violation_half_width: float
    num_violating: int


def frontier(
    envs: Sequence[str],
    num_seeds: int,
    num_episodes: int,
    on_point: Callable[[Point], None] = lambda point: None,
    agents: Sequence[str] = tuple(AGENTS),
) -> list[Point]:
    """Every agent at every multiplier on every environment, on seeds FIRST_SEED, FIRST_SEED + 1, …"""
    points = []
    for env in envs:
        problems = {seed: make(env, seed) for seed in range(FIRST_SEED, FIRST_SEED + num_seeds)}
        for agent in agents:
            for multiplier in MULTIPLIERS:
                points.append(_point(env, agent, multiplier, problems, num_episodes))
                on_point(points[-1])
    return points


def num_points(envs: Sequence[str]) -> int:
    """How many points `frontier` makes on these environments."""
    return len(envs) * len(AGENTS) * len(MULTIPLIERS)


def _point(env: str, agent: str, multiplier: float, problems: dict[int, LinearCMDP], num_episodes: int) -> Point:
    regrets, violations, violating, level = [], [], 0, "heuristic"
    for seed, cmdp in problems.items():
        made = _built(agent, cmdp, env, multiplier)
        record = run(cmdp, made, num_episodes, seed)
        regrets.append(record.regret()[-1])
        violations.append(record.violation()[-1])
        violating += bool(record.violating().any())
        level = made.level
    return Point(
        env,
        agent,
        level,
        multiplier,
        len(problems),
        num_episodes,
        *_interval(regrets),
        *_interval(violations),
        violating,
    )


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and 95 % half-width (normal)."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(half)


def write_frontier(points: Sequence[Point], folder: Path) -> list[Path]:
    """frontier.csv and frontier.png in `folder`."""
    from episafe.reports.frontier_figure import write_frontier_figure  # drawing libraries take a second to import

    rows = [asdict(point) for point in points]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "frontier.csv", text.getvalue())
    return [folder / "frontier.csv", write_frontier_figure(rows, folder / "frontier.png")]

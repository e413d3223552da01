"""Regret against violation over one multiplier, for OPSE, Ghosh et al. and DOPE, as many settings for each.

The best setting of each agent is then judged on other problems: on those that picked it, it looks too good.
"""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from episafe.envs import PAPER
from episafe.experiments.job import Job
from episafe.registry import REGISTRY
from episafe.reports.tables import csv_text
from episafe.runs.record import Record
from episafe.stats import rate_interval
from episafe.storage.atomic_files import write_text

ENVS = tuple(PAPER)
MULTIPLIERS = (2.0, 1.0, 0.5, 0.25, 0.125, 0.06, 0.03)  # as many for every agent: the same budget
FIRST_SEED = 200  # tuned on 5000 and up, reported on 0 to 99; these are fresh to both
FRESH_SEED = 20_000  # fresh to what these pick
REPLAN = "doubling:0.3"

AGENTS = {f"{name}, {which}": (name, which) for name, entry in REGISTRY.items() for which in entry.frontier}

Point = dict[str, Any]
Perform = Callable[[Sequence[Job]], Path]  # runs what is missing of some jobs; returns the folder of their records


def frontier(envs: Sequence[str], num_seeds: int, num_episodes: int, perform: Perform) -> list[Point]:
    """Every agent at every multiplier on every environment, on seeds FIRST_SEED, FIRST_SEED + 1, …"""
    places = list(product(envs, AGENTS, MULTIPLIERS))
    return _points(places, range(FIRST_SEED, FIRST_SEED + num_seeds), num_episodes, perform)


def picked(points: Sequence[Point]) -> list[Point]:
    """Of each agent on each environment the point of least regret among those without violation; none where none is."""
    safe = sorted((point for point in points if not point["num_violating"]), key=lambda point: -point["regret"])
    best = {(point["env"], point["agent"]): point for point in safe}  # the last of each is the least
    places = dict.fromkeys((point["env"], point["agent"]) for point in points)
    return [best[place] for place in places if place in best]


def judged(points: Sequence[Point], num_seeds: int, perform: Perform) -> list[Point]:
    """These points again, on seeds FRESH_SEED, FRESH_SEED + 1, …, with the exact interval of the violation rate."""
    if not points:
        return []
    places = [(point["env"], point["agent"], point["multiplier"]) for point in points]
    seeds = range(FRESH_SEED, FRESH_SEED + num_seeds)
    found = []
    for point, again in zip(points, _points(places, seeds, points[0]["num_episodes"], perform), strict=True):
        low, high = rate_interval(again["num_violating"], num_seeds)
        found.append({**again, "rate_low": low, "rate_high": high, "regret_where_picked": point["regret"]})
    return found


def _points(
    places: Sequence[tuple[str, str, float]], seeds: Sequence[int], num_episodes: int, perform: Perform
) -> list[Point]:
    """One point a place: environment, agent, multiplier."""
    jobs = {place: [_job(*place, seed, num_episodes) for seed in seeds] for place in places}
    records = perform([job for group in jobs.values() for job in group])
    return [_point(*place, group, records) for place, group in jobs.items()]


def _job(env: str, agent: str, multiplier: float, seed: int, num_episodes: int) -> Job:
    name, which = AGENTS[agent]
    folder = f"{env}-{name}-{which}-{multiplier:g}-{seed}"
    return Job(
        folder, env, name, seed, num_episodes, replan=REPLAN, constants=which, multiplier=multiplier, cost=num_episodes
    )


def _point(env: str, agent: str, multiplier: float, jobs: Sequence[Job], folder: Path) -> Point:
    """One agent at one multiplier on one environment: means over the seeds, and how many problems ever violated."""
    records = [Record.load(folder / job.name) for job in jobs]
    regret, regret_half_width = _interval([record.regret()[-1] for record in records])
    violation, violation_half_width = _interval([record.violation()[-1] for record in records])
    return {
        "env": env,
        "agent": agent,
        "level": records[-1].settings["level"],
        "multiplier": multiplier,
        "num_problems": len(jobs),
        "num_episodes": jobs[0].num_episodes,
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
    shown = Table("set", "agent", "bonus ×", "regret", "violate", "rate, 95 %", title="Picked, judged afresh")
    for one in winners:
        regret = f"{one['regret']:.0f} ± {one['regret_half_width']:.0f}"
        rate = f"{100 * one['rate_low']:.1f}–{100 * one['rate_high']:.1f} %"
        violating = f"{one['num_violating']} of {one['num_problems']}"
        shown.add_row(one["env"], one["agent"], f"{one['multiplier']:g}", regret, violating, rate)
    return shown


def write_frontier(points: Sequence[Point], winners: Sequence[Point], folder: Path) -> list[Path]:
    """frontier.html, frontier.png, frontier.csv and winners.csv in `folder`."""
    from episafe.reports import frontier_page  # drawing libraries take a second to import

    page = frontier_page.to_html(points, winners)
    texts = {"frontier.html": page, "frontier.csv": csv_text(points), "winners.csv": csv_text(winners)}
    for name, text in texts.items():
        write_text(folder / name, text)
    return [*(folder / name for name in texts), frontier_page.write_figure(points, folder / "frontier.png")]

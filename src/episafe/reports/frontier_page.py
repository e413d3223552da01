"""The frontier as a page and a figure: regret and violation against the multiplier, no point on another."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from episafe.registry import REGISTRY
from episafe.reports.labels import name
from episafe.reports.metrics import Interval
from episafe.reports.page_frame import render
from episafe.reports.panels import warp
from episafe.reports.paper_figures import save
from episafe.reports.pictures import Dots, Mark, Picture, Polyline, Scale
from episafe.reports.tables import number, plus_minus

Point = Mapping[str, Any]
QUANTITIES = {"regret": "Regret, total (less is better)", "violation": "Violation, total (0 is safe)"}
DECADES = {"regret": 3, "violation": 4}  # that a logarithmic axis tells apart below the largest value
APART = 0.045  # of a decade, between points of two agents at the same multiplier
HEADINGS = (
    "Environment", "Agent", "Multiplier", "Regret", "Violating problems", "Share that violates, 95 %",
    "Regret where picked",
)  # fmt: skip


def label(agent: str) -> str:
    """The name of a row, as "OPSE-LCMDP, tuned constants"."""
    kind, _, which = agent.partition(", ")
    return f"{name(kind)}, {which} constants" if which else name(kind)


def pictures(points: Sequence[Point], env: str) -> list[Picture]:
    """Regret and violation of every agent against its multiplier, side by side."""
    return [_picture(points, env, quantity) for quantity in QUANTITIES]


def _picture(points: Sequence[Point], env: str, quantity: str) -> Picture:
    mine = [point for point in points if point["env"] == env]
    agents = list(dict.fromkeys(point["agent"] for point in points))
    largest = max([abs(point[quantity]) for point in mine], default=0.0) or 1.0
    unit = 10.0 ** (math.floor(math.log10(largest)) + 1 - DECADES[quantity])
    marks = list[Mark]()
    for rank, agent in enumerate(agents):
        of = sorted((point for point in mine if point["agent"] == agent), key=lambda point: -point["multiplier"])
        marks += _marks(of, quantity, unit, APART * (rank - (len(agents) - 1) / 2)) if of else []
    drawn = [0.0, *(y for mark in marks if isinstance(mark, Polyline) for y in mark.y.tolist())]
    powers = unit * 10.0 ** np.arange(DECADES[quantity] + 1)
    values = [*(-powers[::-1]), 0.0, *powers]
    low_end, high_end = min(drawn), max(drawn) or 1.0
    room = 0.06 * (high_end - low_end)
    ticks = tuple((float(warp(np.array(v), unit)), f"{v:,g}") for v in values)
    inside = tuple((at, text) for at, text in ticks if low_end - room <= at <= high_end + room)
    down = Scale(f"{quantity}, log scale", low_end - room, high_end + room, inside)
    given = sorted({point["multiplier"] for point in mine}, reverse=True)
    ends = -math.log10(given[0]) - 0.15, -math.log10(given[-1]) + 0.15
    across = Scale("multiplier of the bonuses, falling", *ends, tuple((-math.log10(m), f"{m:g}") for m in given))
    return Picture(QUANTITIES[quantity], across, down, marks)


def _marks(of: Sequence[Point], quantity: str, unit: float, aside: float) -> list[Mark]:
    """One agent: intervals, a line and dots; of OPSE with the published constants dashed and hollow."""
    agent = of[0]["agent"]
    kind, _, which = agent.partition(", ")
    colour = (REGISTRY[kind].colour if kind in REGISTRY else "") or "#8B4513"
    is_second = kind == "opse" and which == "published"
    x = -np.log10([point["multiplier"] for point in of]) + aside
    mean = np.array([point[quantity] for point in of])
    error = np.nan_to_num([point[f"{quantity}_half_width"] for point in of])
    least = 0.0 if quantity == "violation" else -np.inf
    low, y, high = (warp(values, unit) for values in (np.maximum(mean - error, least), mean, mean + error))
    bars = [Polyline(np.full(2, at), np.array([low[i], high[i]]), colour, width=1) for i, at in enumerate(x)]
    line = Polyline(x, y, colour, label(agent), "dash" if is_second else "solid")
    return [*bars, line, Dots(x, y, colour, hollow=is_second, size=3)]


def to_html(points: Sequence[Point], winners: Sequence[Point]) -> str:
    """The page: who won on which problems, and what that was worth on fresh ones; then every point."""
    first = points[0]
    drawn = [{"title": env[:1].upper() + env[1:], "pictures": pictures(points, env)} for env in _envs(points)]
    return render(
        "frontier.html",
        title="Regret against violation over one multiplier of the bonuses",
        sub=f"{first['num_problems']} problems and {first['num_episodes']:,} episodes a point, mean and 95 % interval",
        levels=", ".join(dict.fromkeys(point["level"] for point in points)),
        headings=HEADINGS,
        rows=[_row(winner) for winner in winners],
        none_left=_without_row(points, winners),
        charts=drawn,
        entries=pictures(points, _envs(points)[0])[0].legend,
    )


def _envs(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point["env"] for point in points))


def _without_row(points: Sequence[Point], winners: Sequence[Point]) -> list[str]:
    """Who has no row where, because every setting violated."""
    left: dict[str, list[str]] = {}
    picked = {(one["env"], one["agent"]) for one in winners}
    for env, agent in dict.fromkeys((point["env"], point["agent"]) for point in points):
        if (env, agent) not in picked:
            left.setdefault(label(agent), []).append(env)
    return [f"{agent}: every setting violates on {', '.join(envs)}." for agent, envs in left.items()]


def _row(one: Point) -> list[str]:
    regret = plus_minus(Interval(one["regret"], one["regret_half_width"]))
    rate = f"{100 * one['rate_low']:.1f} to {100 * one['rate_high']:.1f} %"
    violating = f"{one['num_violating']} of {one['num_problems']}"
    where = number(one["regret_where_picked"])
    return [one["env"], label(one["agent"]), f"{one['multiplier']:g}", regret, violating, rate, where]


def write_figure(points: Sequence[Point], path: Path) -> Path:
    """The pictures as one PNG: a column an environment."""
    envs = _envs(points)
    drawn = Figure(figsize=(4.6 * len(envs), 7.6), layout="constrained")
    grid = drawn.subplots(2, len(envs), squeeze=False)
    for column, env in enumerate(envs):
        for axes, picture in zip(grid[:, column], pictures(points, env), strict=True):
            picture.draw(axes)
            axes.set_title(f"{env}: {picture.title}", fontsize=10.5, loc="left")
    handles, labels = grid[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    problems, episodes = points[0]["num_problems"], points[0]["num_episodes"]
    drawn.suptitle(
        f"Regret and violation as one multiplier scales all bonuses: mean of {problems} problems, "
        f"{episodes:,} episodes, 95 % intervals"
    )
    return save(drawn, path)

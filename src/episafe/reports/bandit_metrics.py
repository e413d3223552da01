"""What only bandits are asked: when a learner beats the incumbent, how often it deploys it, what slack costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from episafe.reports.labels import name, place_title
from episafe.reports.metrics import HAS_INCUMBENT, Interval
from episafe.reports.pictures import BLUE, GREY, Dots, Picture, Polyline, Scale, with_minus
from episafe.reports.record_groups import Group, shortest
from episafe.reports.tables import number, plus_minus
from episafe.runs.record import Record, is_complete
from episafe.storage.atomic_files import write_text
from episafe.types import Array, IntArray

SLACK, FIGURE = "slack", "figures/slack"
HEADINGS = [
    "Environment", "Agent", "Level", "Runs", "Beats the incumbent from round (median)", "at the latest",
    "Runs that never do", "Incumbent deployments (largest)", "Bound of the theorem",
]  # fmt: skip
NUM_WORDS = 3


Rounds = tuple[Group, list[tuple[int, Array]], IntArray, float]  # regrets by seed, incumbent deployments, their bound


def break_even(regret: Array, incumbent: Array) -> int:
    """The first round, from 1, from which on the regret stays below the incumbent's; one more than K where never."""
    length = min(len(regret), len(incumbent))
    above = np.flatnonzero(regret[:length] >= incumbent[:length])
    return int(above[-1]) + 2 if len(above) else 1


def rounds(group: Group, records: Sequence[Record]) -> Rounds:
    """What is asked of the records of one group of bandits."""
    regrets = [(int(record.settings.get("seed", -1)), record.regret()) for record in records]
    deployed = np.array([record.safe_deployments()[-1] for record in records])
    return group, regrets, deployed, float(records[0].settings.get("deployment_bound", np.nan))


def section(found: Sequence[Rounds], folder: Path) -> dict[str, Any] | None:
    """A section of the report, None without bandits; also written as rounds.md beside it."""
    played = [(group, seed, regret) for group, regrets, _, _ in found for seed, regret in regrets]
    incumbents = {(group.where, seed): regret for group, seed, regret in played if group.agent == "incumbent"}
    rows = [_cells(one, incumbents) for one in found if one[0].agent != "incumbent"]
    rows = [cells for cells in rows if cells]
    if not rows:
        return None
    slack = _slack_curve(folder / SLACK)
    lines = ["| " + " | ".join(cells) + " |" for cells in (HEADINGS, ["---"] * len(HEADINGS), *rows)] + [""]
    pictures = _pictures(slack) if slack else []
    if slack:
        lines += ["| Slack ξ | Regret | Incumbent deployments |", "|---|---:|---:|"]
        lines += [f"| {xi:g} | {plus_minus(regret)} | {plus_minus(used)} |" for xi, regret, used in slack]
        _write_figure(pictures, folder)
    write_text(folder / "rounds.md", "\n".join([*lines, ""]))
    return {
        "key": KEY,
        "headings": HEADINGS,
        "rows": rows,
        "num_words": NUM_WORDS,
        "slack": pictures,
        "slack_key": SLACK_KEY,
    }


def _cells(of: Rounds, incumbents: Mapping[tuple[str, int], Array]) -> list[str]:
    """A row of the table; empty where the incumbent was not run on the same problems."""
    group, regrets, deployed, bound = of
    places = [((group.where, seed), regret) for seed, regret in regrets]
    pairs = [(regret, incumbents[place]) for place, regret in places if place in incumbents]
    if not pairs:
        return []
    at = [break_even(regret, other) for regret, other in pairs]
    never = sum(k > len(other) for k, (_, other) in zip(at, pairs, strict=True))
    latest = f"{max(at):,}" if not never else "–"
    words = [place_title(group.place), name(group.agent), group.level if group.agent in HAS_INCUMBENT else "none"]
    ours = f"{number(float(deployed.mean()))} ({deployed.max():,})"
    allowed = f"{bound:,.0f}" if np.isfinite(bound) else "–"
    return [*words, str(len(at)), f"{np.median(at):,.0f}", latest, str(never), ours, allowed]


KEY = (
    "The regret of a learner falls below that of the incumbent, deployed for ever "
    "on the same problem, at the round shown, and stays below to the end. The bound on incumbent deployments is that "
    "of the theorem “Logarithmic |U| bound”, 32 d C_u² ξ⁻² ln(2K/δ), times e^growth under Doubling(growth). Where it "
    "exceeds the number of rounds it says nothing."
)
SLACK_KEY = "OPLB-SP with the determinant radius on the finite sets, mean and 95 % interval over runs."


def _slack_curve(folder: Path) -> list[tuple[float, Interval, Interval]]:
    """Slack, regret and incumbent deployments of the runs below `folder`, by slack."""
    if not folder.is_dir():
        return []
    found: dict[float, list[tuple[float, float]]] = {}
    for path in sorted(folder.iterdir()):
        if is_complete(path):
            record = Record.load(path)
            shortest([record])
            ends = (float(record.regret()[-1]), float(record.safe_deployments()[-1]))
            found.setdefault(float(record.settings["slack"]), []).append(ends)
    return [(slack, *(Interval.over(list(x)) for x in zip(*found[slack], strict=True))) for slack in sorted(found)]  # type: ignore[misc]


def _pictures(slack: Sequence[tuple[float, Interval, Interval]]) -> list[Picture]:
    """Regret and incumbent deployments against the slack, both logarithmic, each with the slope that is expected."""
    xi = np.log10([x for x, _, _ in slack])
    ticks = tuple((float(at), f"{x:g}") for at, (x, _, _) in zip(xi, slack, strict=True))
    room = 0.05 * (float(np.ptp(xi)) or 1.0)
    across = Scale("slack ξ, logarithmic", float(xi.min()) - room, float(xi.max()) + room, ticks)
    regret, deployments = ([row[i] for row in slack] for i in (1, 2))
    return [
        _picture("Regret", "regret", regret, -1.0, xi, across),
        _picture("Incumbent deployments", "deployments", deployments, -2.0, xi, across),
    ]


def _picture(title: str, unit: str, values: Sequence[Any], power: float, xi: Array, across: Scale) -> Picture:
    """Intervals against the logarithm of the slack, and a line of the slope that is expected."""
    mean = np.array([value.mean for value in values])
    high = mean + np.array([value.half_width for value in values])
    low = np.maximum(2 * mean - high, 0.1 * mean)
    y = np.log10(np.array([low, mean, high]))
    guide = y[1, -1] + power * (xi - xi[-1])
    slope = Polyline(xi, guide, GREY, with_minus(f"slope {power:g}"), "dot")
    bars = [Polyline(np.full(2, x), y[[0, 2], i], BLUE) for i, x in enumerate(xi)]
    line = Polyline(xi, y[1], BLUE, "mean and 95 % interval over runs")
    drawn = np.concatenate([y.ravel(), guide])
    decades = range(int(np.floor(np.nanmin(drawn))), int(np.ceil(np.nanmax(drawn))) + 1)
    ticks = tuple((k, f"{10.0**k:,g}") for k in decades)
    down = Scale(f"{unit}, logarithmic", decades[0], decades[-1], ticks)
    return Picture(title, across, down, [slope, *bars, line, Dots(xi, y[1], BLUE, size=3)])


def _write_figure(pictures: Sequence[Picture], folder: Path) -> None:
    from matplotlib.figure import Figure  # drawing libraries take a while to import

    from episafe.reports.paper_figures import METADATA, save

    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, picture in zip(drawn.subplots(1, 2), pictures, strict=True):
        picture.draw(axes)
        axes.legend(frameon=False)
    for kind in METADATA:
        save(drawn, folder / f"{FIGURE}.{kind}", kind)

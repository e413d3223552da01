"""One picture for one problem: what the incumbent, the learner and the optimum earn, and what must be kept."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from episafe.reports.paper_figures import save
from episafe.reports.pictures import BLUE, GREEN, GREY, RED
from episafe.runs.record import Record
from episafe.stats import normal_interval
from episafe.types import Array

NUM_BLOCKS = 12  # of a run without exact values: each is drawn as a mean with its interval


@dataclass(frozen=True, eq=False)
class Outcome:
    """Runs of one problem, or of several alike, and what to compare them with.

    Attributes:
        title: what the problem is.
        records: the runs.
        incumbents: reward and utility of the incumbent, one pair a run; the utility is (m,) of several constraints.
        optima: reward of the optimum, or of the best policy known, one a run; None where none is known.
        kept: what the utility is, for its axis, e.g. "demand served"; a tuple with one for each constraint.
        best: what the optima are: "optimum", or "best known".
    """

    title: str
    records: Sequence[Record]
    incumbents: Sequence[tuple[float, Any]]
    optima: Sequence[float] | None
    kept: str | tuple[str, ...]
    best: str = "optimum"

    def shares(self, rewards: Array, run: int) -> Array:
        """Rewards as a share of the way from incumbent (0) to optimum (1); over the incumbent's where none is known."""
        return (rewards - self.incumbents[run][0]) / self.span(run)

    def by_constraint(self) -> list["Outcome"]:
        """The same as if each constraint were the only one."""
        names = (self.kept,) if isinstance(self.kept, str) else self.kept
        return [
            replace(
                self,
                records=[record.of_constraint(c) for record in self.records] if len(names) > 1 else self.records,
                incumbents=[(reward, float(np.atleast_1d(kept)[c])) for reward, kept in self.incumbents],
                kept=name,
            )
            for c, name in enumerate(names)
        ]

    def span(self, run: int) -> float:
        """The way from incumbent to optimum; the incumbent's reward where no optimum is known."""
        incumbent = self.incumbents[run][0]
        return incumbent if self.optima is None else self.optima[run] - incumbent


def draw_outcomes(outcomes: Sequence[Outcome], horizon: int | Sequence[int], path: str | Path) -> Path:
    """A row an outcome: the reward on the left, then each utility that must be kept; written as PNG.

    `horizon`: the largest utility of an episode, which is 100 %; one for all, or one an outcome.
    """
    most = [horizon] * len(outcomes) if isinstance(horizon, int) else horizon
    panels = 1 + max(len(outcome.by_constraint()) for outcome in outcomes)
    drawn = Figure(figsize=(5.75 * panels, 3.6 * len(outcomes)), layout="constrained")
    rows = drawn.subfigures(len(outcomes), 1, squeeze=False)[:, 0]
    for row, outcome, largest in zip(rows, outcomes, most, strict=True):
        left, *others = row.subplots(1, panels)
        row.suptitle(f"{outcome.title}; a line a run", fontsize=12, fontweight="bold")
        _draw_rewards(left, outcome)
        several = outcome.by_constraint()
        for axes, one in zip(others, several, strict=False):
            _draw_utilities(axes, one, largest)
        for axes in others[len(several) :]:
            axes.set_axis_off()
    return save(drawn, Path(path))


def _draw_rewards(axes: Axes, outcome: Outcome) -> None:
    for run, record in enumerate(outcome.records):
        values, half_width = _shown(record, 0)
        shares = outcome.shares(values, run)
        _line(axes, record, 100 * shares, 100 * half_width / outcome.span(run))
    _level(axes, 0.0, GREY, "incumbent")
    if outcome.optima is not None:
        _level(axes, 100.0, GREEN, outcome.best)
    unit = "% above the incumbent" if outcome.optima is None else f"% of the way to the {outcome.best}"
    axes.set_title("Reward", fontsize=10.5)
    axes.set_ylabel(unit)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))
    _finish(axes)


def _draw_utilities(axes: Axes, outcome: Outcome, horizon: int) -> None:
    scale = 100 / horizon
    for record in outcome.records:
        values, half_width = _shown(record, 1)
        _line(axes, record, scale * values, scale * half_width, most=100.0)
    b = scale * outcome.records[0].threshold
    _level(axes, scale * float(np.mean([u for _, u in outcome.incumbents])), GREY, "incumbent")
    _level(axes, b, RED, "threshold")
    low, high = axes.get_ylim()
    low = min(low, b - 0.25 * (high - b))
    axes.set_ylim(low, high)
    axes.axhspan(low, b, color=RED, alpha=0.12, linewidth=0)
    axes.text(0.5, 0.02, "unsafe", color=RED, transform=axes.transAxes, ha="center", va="bottom", fontsize=10)
    name = str(outcome.kept)
    means = f"means of {len(outcome.records[0].sources) // NUM_BLOCKS} episodes, 95 % intervals"
    what = "every deployed policy" if outcome.records[0].is_exact else means
    axes.set_title(f"{name[0].upper()}{name[1:]}: {what}", fontsize=10.5)
    axes.set_ylabel("%")
    _finish(axes)


def _line(axes: Axes, record: Record, values: Array, half_width: Array, most: float = np.inf) -> None:
    """One run: a line where values are exact, else block means with their intervals; no value is above `most`."""
    ends = np.arange(1, len(values) + 1) * (1 if record.is_exact else len(record.sources) // NUM_BLOCKS)
    axes.plot(ends, values, color=BLUE, linewidth=1.4, alpha=0.8)
    if not record.is_exact:
        high = np.minimum(values + half_width, most)
        axes.fill_between(ends, values - half_width, high, color=BLUE, alpha=0.12, linewidth=0)


def _level(axes: Axes, y: float, colour: str, name: str) -> None:
    """A level to compare with, named at its right end."""
    axes.axhline(y, color=colour, linewidth=1.6, linestyle="--", zorder=1)
    axes.annotate(
        name, (1.0, y), xycoords=axes.get_yaxis_transform(), xytext=(5, 0), textcoords="offset points", color=colour,
        va="center", fontsize=10, annotation_clip=False,
    )  # fmt: skip


def _finish(axes: Axes) -> None:
    axes.set_xlabel("episode")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _shown(record: Record, signal: int) -> tuple[Array, Array]:
    """Rewards (0) or utilities (1), 95 % half-widths (normal): means of blocks, or exact values with half-width 0."""
    if record.is_exact:
        return (record.reward_values, record.utility_values)[signal], np.zeros(1)
    totals = (record.reward_totals, record.utility_totals)[signal]
    if totals is None or len(totals) < 2 * NUM_BLOCKS:
        raise ValueError(f"a picture of observed totals needs at least {2 * NUM_BLOCKS} episodes")
    size = len(totals) // NUM_BLOCKS
    return normal_interval(totals[: size * NUM_BLOCKS].reshape(NUM_BLOCKS, size).T)

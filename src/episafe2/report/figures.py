"""Figures: each function returns a matplotlib Figure, for notebooks, papers and, by `to_svg`, pages."""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from episafe2.core.types import Array
from episafe2.run.record import Record

BLUE, GREEN, RED, GREY = "#2A86C8", "#009E73", "#D55E00", "#808080"  # learned, optimum, limit, incumbent
PALETTE = ("#2A86C8", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31", "#7A7A7A")
POINTS = 400  # of a curve: more cannot be seen
TEXT = "#010203"  # replaced by the page's own colour, so that figures follow light and dark
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "episafe",
} | dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), TEXT)


class Drawing(Figure):
    """A figure that a notebook shows by itself."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=90)
        return file.getvalue()


def run_figure(record: Record, units: Mapping[str, str] | None = None) -> Figure:
    """Return what one run reached: reward, utility of each limit against its threshold, and which policy acted."""
    units = units or {}
    names = record.constraint_names or ("utility",)
    with rc_context(STYLE):
        figure = Drawing(figsize=(6.4, 2.6 * (2 + len(names))), layout="constrained")
        axes = figure.subplots(2 + len(names), 1, sharex=True)
        draw_reward(axes[0], record, units.get("reward", ""))
        for c, name in enumerate(names):
            draw_utility(axes[1 + c], record, c, name, units.get(name, ""))
        draw_acting(axes[-1], record)
        axes[-1].set_xlabel("episode")
    return figure


def draw_reward(axes: Axes, record: Record, unit: str = "") -> None:
    """Draw the expected reward of the deployed policies, or means of observed totals where that is unknown."""
    K = len(record.reward_values)
    if np.isfinite(record.reward_values).all():
        x, y = thinned(record.reward_values)
        axes.plot(x, y, color=BLUE, label="deployed policy (exact)")
    elif record.reward_totals is not None:
        x, y = window_means(record.reward_totals)
        axes.plot(x, y, color=BLUE, label=f"mean of observed totals ({window(K)} episodes)")
    if math.isfinite(record.optimum):
        axes.axhline(record.optimum, color=GREEN, linestyle="--", label="constrained optimum")
    start = record.reward_values[0]
    if math.isfinite(start) and record.sources[0] == "safe":
        axes.axhline(start, color=GREY, linestyle=":", label="incumbent")
    axes.set_title("Expected reward per episode" + (f", {unit}" if unit else ""))
    axes.legend(loc="lower right", fontsize=8)


def draw_utility(axes: Axes, record: Record, c: int, name: str, unit: str = "") -> None:
    """Draw the expected utility of the deployed policies against the limit."""
    threshold = float(np.atleast_1d(record.threshold)[c])
    values = column(record.utility_values, c)
    if np.isfinite(values).all():
        x, y = thinned(values)
        axes.plot(x, y, color=BLUE, label="deployed policy (exact)")
    elif record.utility_totals is not None:
        totals = column(record.utility_totals, c)
        axes.plot(np.arange(1, len(totals) + 1), totals, ".", color=BLUE, alpha=0.2, markersize=2, label="one episode")
        x, y = window_means(totals)
        axes.plot(x, y, color=BLUE, label=f"mean of {window(len(totals))} episodes")
    axes.axhline(threshold, color=RED, linestyle="--", label="limit")
    axes.set_title(f"Expected {name} per episode" + (f", {unit}" if unit else ""))
    axes.legend(loc="lower right", fontsize=8)


def draw_acting(axes: Axes, record: Record) -> None:
    """Draw the share of episodes in which the incumbent and learned policies acted, in windows.

    The four learned policies that acted most are shown by name, if they acted in at least 5 % of the episodes.
    """
    acting, incumbent = record.acting, record.incumbent_acted()
    K = len(acting)
    names, counts = np.unique(acting[~incumbent], return_counts=True)
    shown = [str(names[i]) for i in np.argsort(-counts) if counts[i] >= 0.05 * K][:4]
    masks = [incumbent, *(~incumbent & (acting == name) for name in shown)]
    masks.append(~np.logical_or.reduce(masks))
    labels = ["incumbent", *shown, "other learned policies" if shown else "learned policies"]
    colours = [GREY, *PALETTE[: len(shown)], "#9CC3E6"]
    edges = np.unique(np.linspace(0, K, min(40, K) + 1).astype(int))
    bottom, width = np.zeros(len(edges) - 1), np.diff(edges)
    for mask, label, colour in zip(masks, labels, colours, strict=True):
        if mask.any():
            shares = _shares(mask, edges)
            axes.bar(edges[:-1], shares, width, bottom, align="edge", color=colour, label=label)
            bottom = bottom + shares
    axes.set_ylim(0, 1)
    axes.set_title("Which policy acted, share of episodes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), fontsize=8, ncols=3)


def _shares(mask: Any, edges: Any) -> Array:
    sums = np.concatenate([[0], np.cumsum(mask)])
    return np.diff(sums[edges]) / np.diff(edges)


def comparison_figure(groups: Mapping[str, Sequence[Record]], title: str, colours: Mapping[str, str]) -> Figure:
    """Return regret and violation of several agents on one environment: mean and 95 % interval over runs."""
    with rc_context(STYLE):
        figure = Drawing(figsize=(9.6, 3.4), layout="constrained")
        regret, violation = figure.subplots(1, 2)
        for i, (name, records) in enumerate(groups.items()):
            colour = colours.get(name) or PALETTE[i % len(PALETTE)]
            draw_band(regret, [one.regret() for one in records], colour, name)
            violations = [one.violation() for one in records]
            draw_band(violation, [one if one.ndim == 1 else one.sum(axis=1) for one in violations], colour, name)
        regret.set_title(f"{title}: regret")
        violation.set_title("violation of deployed policies")
        for axes in (regret, violation):
            axes.set_xlabel("episode")
        handles, labels = regret.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=8)
    return figure


def mean_interval(values: Array) -> tuple[float, float]:
    """Return the mean and the half-width of its 95 % t-interval; NaN for a single value."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return float(values.mean()), math.nan
    return float(values.mean()), float(t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))


def draw_band(axes: Axes, runs: Sequence[Array], colour: str, label: str) -> None:
    """Draw the mean of several runs with its 95 % t-interval."""
    from scipy.stats import t

    length = min(map(len, runs))
    at = thin(length)
    values = np.array([one[at] for one in runs])
    mean, n = values.mean(axis=0), len(runs)
    axes.plot(at + 1, mean, color=colour, label=label)
    if n > 1:
        half = t.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n)
        axes.fill_between(at + 1, mean - half, mean + half, color=colour, alpha=0.18, linewidth=0)


def evidence_figure(
    bounds: Mapping[str, Sequence[tuple[int, float]]], threshold: float, weights: Sequence[float], unit: str = ""
) -> Figure:
    """Return why deployments were allowed: proved bounds of the components, and the weight of learned policies.

    Args:
        bounds: by policy, the pairs (deployment, proved lower bound) at which the bound changed.
        threshold: the limit.
        weights: of everything but the incumbent, per deployment.
        unit: of the utility.
    """
    with rc_context(STYLE):
        figure = Drawing(figsize=(6.4, 4.6), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for colour, (name, steps) in zip(PALETTE * (1 + len(bounds) // len(PALETTE)), bounds.items(), strict=False):
            at, values = zip(*steps, strict=True) if steps else ((), ())
            upper.step([*at, len(weights)], [*values, *values[-1:]], where="post", color=colour, label=name)
        upper.axhline(threshold, color=RED, linestyle="--", label="limit")
        upper.set_title("Proved lower bound of each policy" + (f", {unit}" if unit else ""))
        upper.legend(fontsize=8, ncols=2)
        lower.fill_between(np.arange(len(weights)), weights, color=BLUE, alpha=0.5, step="post", linewidth=0)
        lower.set_ylim(0, 1)
        lower.set_title("Probability that a learned policy acts")
        lower.set_xlabel("deployment")
    return figure


def totals_figure(totals: Array, threshold: float, name: str, unit: str = "") -> Figure:
    """Return the spread of episode totals, with the limit on their expectation."""
    with rc_context(STYLE):
        figure = Drawing(figsize=(6.4, 2.4), layout="constrained")
        axes = figure.subplots()
        axes.hist(totals, bins=min(30, max(5, len(np.unique(totals)))), color=BLUE, alpha=0.7)
        axes.axvline(threshold, color=RED, linestyle="--", label="limit on the expectation")
        axes.axvline(float(np.mean(totals)), color=BLUE, label="mean")
        axes.set_xlabel(f"total {name} of an episode" + (f", {unit}" if unit else ""))
        axes.set_ylabel("episodes")
        axes.legend(fontsize=8)
    return figure


def policy_figure(learned: Array, incumbent: Array, state_names: Sequence[str], action_names: Sequence[str]) -> Figure:
    """Return the likeliest action per step and state of a learned policy, marked where it differs from the incumbent.

    Args:
        learned, incumbent: tables (H, S, A); at most the 40 states that differ most are shown.
        state_names, action_names: for people; numbers where they are empty.
    """
    differs = 0.5 * np.abs(learned - incumbent).sum(axis=2)
    states = np.sort(np.argsort(-differs.max(axis=0), kind="stable")[:40])
    best, A = learned.argmax(axis=2)[:, states], learned.shape[2]
    with rc_context(STYLE):
        figure = Drawing(figsize=(7.2, 1.4 + 0.22 * len(states)), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(best.T, aspect="auto", cmap="viridis", vmin=0, vmax=max(A - 1, 1), interpolation="nearest")
        h, s = np.nonzero(differs[:, states] > 0.5)
        axes.plot(h, s, "o", color="white", markersize=3, label="differs from the incumbent")
        axes.set_yticks(range(len(states)), [_name(state_names, one) for one in states], fontsize=7)
        axes.set_xlabel("step")
        axes.set_title("Likeliest action; dots: differs from the incumbent")
        axes.grid(visible=False)
        bar = figure.colorbar(image, ax=axes, ticks=range(A) if A <= 12 else None)
        if A <= 12:
            bar.ax.set_yticklabels([_name(action_names, a) for a in range(A)], fontsize=7)
    return figure


def _name(names: Sequence[str], i: int) -> str:
    return str(names[i]) if len(names) > i else str(i)


def benchmark_figure(rows: Sequence[Any], title: str) -> Figure:
    """Return regret against the share of violating deployments, one point per agent of one set."""
    with rc_context(STYLE):
        figure = Drawing(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for i, row in enumerate(rows):
            colour = PALETTE[i % len(PALETTE)]
            axes.errorbar(row.violating_share, row.regret, row.regret_half_width, fmt="o", color=colour)
            axes.annotate(row.agent, (row.violating_share, row.regret), (5, 3), textcoords="offset points", fontsize=8)
        axes.axhline(1.0, color=GREY, linestyle=":", linewidth=1)
        axes.set_xlabel("share of deployed policies below a limit")
        axes.set_ylabel("regret (incumbent = 1)")
        axes.set_title(title)
    return figure


def to_svg(figure: Figure) -> str:
    """Return a figure as an SVG element whose text and axes follow the colour of the page."""
    file = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r'\1 width="100%"', text, count=1)
    return text.replace(TEXT, "currentColor").replace("font: ", "font-family: inherit; font: ")


def window(K: int) -> int:
    """Return over how many episodes observed totals are averaged."""
    return max(min(100, K // 10), 1)


def window_means(totals: Array) -> tuple[Array, Array]:
    """Return moving means of observed totals, and the episodes at which the windows end."""
    n = window(len(totals))
    sums = np.concatenate([[0.0], np.cumsum(totals)])
    means = (sums[n:] - sums[:-n]) / n
    at = thin(len(means))
    return (at + n).astype(float), means[at]


def thin(length: int) -> Any:
    """Return at most `POINTS` indices, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, POINTS)).astype(int))


def thinned(values: Array) -> tuple[Array, Array]:
    """Return episodes from 1 and values, thinned."""
    at = thin(len(values))
    return (at + 1).astype(float), values[at]


def column(values: Array, c: int) -> Array:
    """Return the values of limit c, (K,)."""
    return values if values.ndim == 1 else values[:, c]


def save_figures(figures: Iterable[tuple[str, Figure]], folder: Any) -> None:
    """Write figures as PNG and PDF, for papers."""
    for name, figure in figures:
        with rc_context({"pdf.fonttype": 42}):
            figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})
            figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})

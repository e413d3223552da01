"""Figures: each function returns a matplotlib Figure, for notebooks, papers and, by `to_svg`, pages."""

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from episafe.core.types import INCUMBENT, Array, IntArray, Unit
from episafe.data.prove import Proof
from episafe.simulation.record import Record, window

BLUE, GREEN, RED, GREY = "#2A86C8", "#009E73", "#D55E00", "#808080"  # learned, optimum, limit, incumbent
PALETTE = ("#2A86C8", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#7B52AB", "#8C6D31", "#7A7A7A")
POINTS = 250  # of a curve: more cannot be seen
FEW_RUNS = 5  # below, intervals are so wide that they hide the means: the runs are drawn
WIDTH = 5.0  # inches of a panel: its text is legible on a phone, and two panels stand side by side on a screen
TEXT = "#010203"  # replaced by the page's own colour, so that figures follow light and dark
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "axes.axisbelow": True,
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


@contextmanager
def drawing(height: float = 2.8, rows: int = 1, width: float = WIDTH) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield an empty figure and its panels, below each other, in the style of all figures."""
    with rc_context(STYLE):
        figure = Drawing(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0].tolist()


def run_figure(record: Record) -> Figure:
    """Return all panels of one run below each other: reward, utility of each limit, which policy acted, and why."""
    m, proved = len(record.limit_names), record.history is not None
    rows = 2 + m * (1 + proved) + proved
    with drawing(2.5 * rows, rows, 6.4) as (figure, panels):
        draw_reward(panels[0], record)
        for c in range(m):
            draw_utility(panels[1 + c], record, c)
        draw_acting(panels[1 + m], record)
        for c in range(m if proved else 0):
            draw_bounds(panels[2 + m + c], *bounds_over_time(record, c))
            panels[2 + m + c].legend(fontsize=8, ncols=2)
        if proved:
            draw_weights(panels[-1], *weights_over_time(record))
    return figure


def panel_figure(draw: Callable[..., None], *arguments: object) -> Figure:
    """Return a figure with one panel: `draw_reward`, `draw_utility` or `draw_acting` of a record."""
    with drawing() as (figure, (axes,)):
        draw(axes, *arguments)
    return figure


def acting_figure(record: Record) -> Figure:
    """Return which policy acted, as shares of the episodes over time."""
    return panel_figure(draw_acting, record)


def with_unit(text: str, unit: Unit) -> str:
    """Return a title with the unit, if there is one, on a line of its own."""
    return f"{text}\n{fill(unit.text, 60)}" if unit.text else text


def draw_reward(axes: Axes, record: Record) -> None:
    """Draw the expected reward of the deployed policies, or means of observed totals where that is unknown."""
    start = float(record.settings.get("incumbent_reward", math.nan))
    lines = ((record.optimum, GREEN, "--", "constrained optimum"), (start, GREY, ":", "incumbent"))
    _draw_signal(axes, record, "reward", record.reward_values, record.reward_totals, lines)


def draw_utility(axes: Axes, record: Record, c: int) -> None:
    """Draw the expected utility of the deployed policies against limit c, or means of totals where that is unknown."""
    name, totals, b = record.limit_names[c], record.utility_totals, float(np.atleast_1d(record.threshold)[c])
    observed = None if totals is None else column(totals, c)
    line = b, RED, "--", f"limit: {record.unit(name).bound}"
    _draw_signal(axes, record, name, column(record.utility_values, c), observed, [line])


def _draw_signal(
    axes: Axes,
    record: Record,
    name: str,
    values: Array,
    totals: Array | None,
    lines: Iterable[tuple[float, str, str, str]],
) -> None:
    """Draw exact values, or means of observed totals where these are unknown, and the lines that are known."""
    unit, n = record.unit(name), window(len(values))
    if np.isfinite(values).all():
        at = thin(len(values))
        axes.plot(at + 1, unit.raw(values[at]), color=BLUE, label="deployed policy")
    elif totals is not None:
        sums = np.concatenate([[0.0], np.cumsum(totals)])
        at = thin(len(totals) - n + 1)
        axes.plot(at + n, unit.raw((sums[at + n] - sums[at]) / n), color=BLUE, label=f"mean of {n} episodes")
    for value, colour, style, label in lines:
        if math.isfinite(value):
            axes.axhline(unit.raw(value), color=colour, linestyle=style, label=label)
    exact = f"Expected {name}" if record.is_exact else name.capitalize()
    _finish(axes, with_unit(f"{exact} per episode", unit))


def _finish(axes: Axes, title: str, label: str = "episode", ncols: int = 3) -> None:
    """Give a panel its title, and a legend below it."""
    axes.set_title(title)
    axes.set_xlabel(label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), fontsize=9, ncols=ncols, handlelength=1.6)


def draw_acting(axes: Axes, record: Record) -> None:
    """Draw the share of episodes in which the incumbent and learned policies acted, in windows.

    The four learned policies that acted most are shown by name, if they acted in at least 5 % of the episodes.
    """
    acting, incumbent = record.acting, record.incumbent_acted()
    K = len(acting)
    names, counts = np.unique(acting[~incumbent], return_counts=True)
    shown = sorted((str(names[i]) for i in np.argsort(-counts) if counts[i] >= 0.05 * K), key=in_order)[:4]
    masks = [incumbent, *(~incumbent & (acting == name) for name in shown)]
    masks.append(~np.logical_or.reduce(masks))
    labels = ["incumbent", *shown, "other learned policies" if shown else "learned policies"]
    named = policy_colours(record)
    colours = [GREY, *(named[name] for name in shown), "#9CC3E6"]
    edges = np.unique(np.linspace(0, K, min(40, K) + 1).astype(int))
    bottom = np.zeros(len(edges) - 1)
    for mask, label, colour in zip(masks, labels, colours, strict=True):
        if mask.any():
            top = bottom + np.add.reduceat(mask, edges[:-1], dtype=np.int64) / np.diff(edges)
            axes.stairs(top, edges, baseline=bottom, fill=True, color=colour, linewidth=0, label=label)
            bottom = top
    axes.set_ylim(0, 1)
    axes.set_xlim(0, K)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _finish(axes, "Which policy acted, share of the episodes")


def in_order(name: str) -> tuple[str, int]:
    """Return a key that sorts proposal-9 before proposal-10."""
    text, _, number = name.rpartition("-")
    return (text, int(number)) if number.isdigit() else (name, 0)


def comparison_figure(
    groups: Mapping[str, Sequence[Record]], quantity: Literal["regret", "violation"], colours: Mapping[str, str]
) -> Figure:
    """Return the regret, or the violation summed over limits, of several agents: mean and 95 % interval over runs."""
    title = "Regret" if quantity == "regret" else "Violation by deployed policies"
    with drawing(2.9 + 0.12 * len(groups)) as (figure, (axes,)):
        for name, runs in groups.items():
            ends = [one.regret() if quantity == "regret" else one.violation() for one in runs]
            draw_band(axes, [one.reshape(len(one), -1).sum(axis=1) for one in ends], colours[name], name)
        _finish(axes, title, ncols=2)
    return figure


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each agent or policy; grey for the incumbent."""
    learned = [name for name in dict.fromkeys(names) if name.lower() != INCUMBENT]
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(learned)} | {INCUMBENT: GREY, "Incumbent": GREY}


def mean_interval(values: Array) -> tuple[Array, Array]:
    """Return the mean over runs (the first axis) and the half-width of its 95 % t-interval; NaN for a single run."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    n = len(values)
    if n < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), stdtrit(n - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(n)


def draw_band(axes: Axes, runs: Sequence[Array], colour: str, label: str) -> None:
    """Draw the mean of several runs with its 95 % t-interval; with the runs themselves if they are few."""
    length = min(map(len, runs))
    at = thin(length)
    values = np.array([one[at] for one in runs])
    (mean, half), n = mean_interval(values), len(runs)
    axes.plot(at + 1, mean, color=colour, label=label)
    if 1 < n < FEW_RUNS:
        axes.plot(at + 1, values.T, color=colour, linewidth=0.6, alpha=0.5)
    elif n > 1:
        low = np.maximum(mean - half, 0.0) if values.min() >= 0 else mean - half  # violations are not negative
        axes.fill_between(at + 1, low, mean + half, color=colour, alpha=0.18, linewidth=0)


Steps = Sequence[tuple[int, float]]  # (episode or deployment, value) at which a value changed


def evidence_figure(
    bounds: Mapping[str, Steps],
    threshold: float,
    weights: Sequence[float],
    unit: Unit = Unit(),  # noqa: B008  # a constant
    at: Sequence[int] = (),
) -> Figure:
    """Return why deployments were allowed: proved bounds of the components, and the weight of learned policies.

    Args:
        bounds: by policy, the pairs (deployment, proved lower bound) at which the bound changed.
        threshold: the limit.
        weights: of everything but the incumbent, per deployment.
        unit: of the limit, in which bounds are shown.
        at: the deployments of the weights, where they are not all.
    """
    places = at if len(at) else range(len(weights))
    with drawing(4.6, 2) as (figure, (upper, lower)):
        draw_bounds(upper, bounds, threshold, places[-1] + 1, unit)
        draw_weights(lower, places, weights, "deployment")
        _legend_below(figure, upper)
    return figure


def allowed_figure(record: Record) -> Figure:
    """Return why the deployments of a run were allowed: bounds in each limit and weights over time."""
    m = len(record.limit_names)
    with drawing(2.3 * (1 + m), 1 + m) as (figure, panels):
        for c in range(m):
            draw_bounds(panels[c], *bounds_over_time(record, c))
        draw_weights(panels[m], *weights_over_time(record))
        _legend_below(figure, panels[0])
    return figure


def draw_bounds(
    axes: Axes,
    bounds: Mapping[str, Steps],
    threshold: float,
    end: int,
    unit: Unit,
    colours: Mapping[str, str] | None = None,
    limit: str = "",
) -> None:
    """Draw proved bounds as steps, and the limit; what is assumed of the incumbent is dotted."""
    colours = colours or colours_of(bounds)
    for name, steps in bounds.items():
        at, values = zip(*steps, strict=True) if steps else ((), ())
        known = name != INCUMBENT
        axes.step(
            [*at, end], unit.raw(np.array([*values, *values[-1:]])), where="post", color=colours[name],
            linestyle="-" if known else ":", label=name if known else "incumbent (assumed)",
        )  # fmt: skip
    axes.axhline(unit.raw(threshold), color=RED, linestyle="--", label=f"limit: {unit.bound}")
    side = "upper" if unit.factor < 0 else "lower"
    axes.set_title(with_unit(f"Proved {side} bound of each policy{', ' + limit if limit else ''}", unit))


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, handlelength=1.6)


def draw_weights(axes: Axes, at: Sequence[int], weights: Sequence[float], label: str = "episode") -> None:
    """Draw the probability that a learned policy acts."""
    axes.fill_between(at, weights, color=BLUE, alpha=0.5, step="post", linewidth=0)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Probability that a learned policy acts")
    axes.set_xlabel(label)


def policy_colours(record: Record) -> dict[str, str]:
    """Return a colour for each policy, the same in all figures of a record."""
    return colours_of([*(record.history.names if record.history else ()), *np.unique(record.acting).tolist()])


def bounds_over_time(record: Record, c: int) -> tuple[dict[str, Steps], float, int, Unit, dict[str, str], str]:
    """Return the bounds of the incumbent and of the five policies of the largest weight, with what is drawn beside."""
    history = record.history
    assert history is not None
    heaviest = sorted(range(1, len(history.names)), key=lambda i: -history.weights[:, i].sum())[:5]
    steps: dict[str, Steps] = {}
    for i in [0, *sorted(heaviest)]:
        known = np.flatnonzero(np.isfinite(history.bounds[:, i, c]))
        steps[history.names[i]] = [(int(history.episodes[p]), float(history.bounds[p, i, c])) for p in known]
    name, colours = record.limit_names[c], policy_colours(record)
    shown = name if len(record.limit_names) > 1 else ""
    return steps, float(np.atleast_1d(record.threshold)[c]), len(record.sources), record.unit(name), colours, shown


def weights_over_time(record: Record) -> tuple[list[int], list[float]]:
    """Return episodes, and the probability that a learned policy acts in them."""
    assert record.history is not None
    return record.history.episodes.tolist(), (1.0 - record.history.weights[:, 0]).tolist()


def totals_figure(totals: Array, threshold: float, name: str, unit: Unit) -> Figure:
    """Return the spread of episode totals, with the limit on their expectation."""
    totals, threshold = unit.raw(totals), unit.raw(threshold)
    with drawing() as (figure, (axes,)):
        counts, edges = np.histogram(totals, bins=min(30, max(5, len(np.unique(totals)))))
        axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.6, linewidth=0)
        axes.axvline(threshold, color=RED, linestyle="--", label="limit on the expectation")
        axes.axvline(float(np.mean(totals)), color=BLUE, label="mean")
        axes.set_ylabel("episodes")
        _finish(axes, with_unit(f"Total {name} of single episodes", unit), "total of an episode")
    return figure


def benchmark_figure(own: Sequence[Any], reference: Sequence[Any]) -> Figure:
    """Return the regret of each agent of one set, with its interval; crosses have policies below a limit."""
    rows = [*((row, True) for row in own), *((row, False) for row in reference)]
    with drawing(1.3 + 0.24 * len(rows)) as (figure, (axes,)):
        for place, (row, is_own) in enumerate(rows):
            colour = RED if row.violating else BLUE if is_own else GREY
            low, x, high = np.clip([row.regret_low, row.regret, row.regret_high], -0.2, 2.0).tolist()
            ends, mark = [[x - low], [high - x]], "x" if row.violating else "o"
            axes.errorbar(x, place, xerr=ends, fmt=mark, color=colour, markersize=5)
        axes.axvline(1.0, color=GREY, linestyle=":", linewidth=1)
        axes.set_yticks(range(len(rows)), [row.agent for row, _ in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(-0.25, 2.05 if any(row.regret > 1.2 for row, _ in rows) else 1.25)
        axes.set_xlabel("regret (optimum: 0, incumbent: 1)")
        axes.grid(axis="y", visible=False)
    return figure


def to_svg(figure: Figure) -> str:
    """Return a figure as an SVG element whose text and axes follow the colour of the page."""
    file = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r' d="[^"]*"', lambda d: re.sub(r"(\.\d\d)\d+", r"\1", d[0]), text)  # hundredths of a point suffice
    text = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r'\1 width="100%"', text, count=1)
    return text.replace(TEXT, "currentColor").replace("font: ", "font-family: inherit; font: ")


def thin(length: int) -> IntArray:
    """Return at most `POINTS` indices, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, POINTS)).astype(np.int64))


def column(values: Array, c: int) -> Array:
    """Return the values of limit c, (K,)."""
    return values if values.ndim == 1 else values[:, c]


def proof_figure(proof: Proof) -> Figure:
    """Return the bound that a log proves against the number of episodes that match the candidate, with the limit."""
    with drawing(3.0) as (figure, (axes,)):
        for k, (label, one) in enumerate((proof.groups or {"bound": proof}).items()):
            axes.plot(*one.curve(), color=PALETTE[k % len(PALETTE)], drawstyle="steps-post", label=str(label))
        axes.axhline(proof.limit, color=RED, linewidth=1, linestyle="--", label="limit")
        axes.set(xlabel="logged episodes that match the candidate", ylabel="expected total, lower bound")
        axes.set_title(f"{'Passed' if proof.passed else 'Not proved'}: {100 * (1 - proof.delta):.4g} % confidence")
        axes.legend()
    return figure

"""Figures for papers: one a problem, as PNG and PDF, byte for byte the same for the same records."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator

from episafe.reports.panels import NUM_TICKS, Chart, Line, Panel
from episafe.storage.atomic_files import atomic

WIDTH, HEIGHT, DPI = 12.0, 4.2, 150
LONG_NAME = 36  # characters; four names of this length fill the width, three longer ones
# without them the files would say when and with what they were made
METADATA = {"png": {"Software": None}, "pdf": {"Creator": None, "Producer": None, "CreationDate": None}}
_DASHES = {
    "solid": "-", "dash": (0, (5, 2)), "dashdot": (0, (6, 2, 1.2, 2)), "dot": (0, (1.2, 1.6)),
    "longdash": (0, (10, 3)), "longdashdot": (0, (10, 2, 1.2, 2)),
}  # fmt: skip
_MARKERS = {"": "", "circle": "o", "square": "s", "triangle-up": "^", "diamond": "D"}


def write_figures(
    charts: Sequence[Chart], folder: Path, on_progress: Callable[[float], object] = lambda share: None
) -> list[Path]:
    """Writes <env>-<variant>.png and .pdf a chart and, where a variant has several, all-<variant>: as in the paper.

    `on_progress` is called with the share that is drawn.
    """
    together = {file_stem(chart.place): [chart] for chart in charts}
    for variant in dict.fromkeys(chart.place[1] for chart in charts):
        rows = [chart for chart in charts if chart.place[1] == variant]
        together |= {file_stem(("all", variant)): rows} if len(rows) > 1 else {}
    paths, total, done = list[Path](), len(METADATA) * sum(map(len, together.values())), 0
    for stem, rows in together.items():
        drawn = figure(rows)
        for kind in METADATA:
            paths.append(save(drawn, folder / f"{stem}.{kind}", kind))
            done += len(rows)
            on_progress(done / total)
    return paths


def save(drawn: Figure, path: Path, kind: str = "png") -> Path:
    """Write a figure as PNG or PDF."""
    with atomic(path) as file, rc_context({"pdf.fonttype": 42}):  # text as text
        drawn.savefig(file, format=kind, dpi=DPI, metadata=METADATA[kind])
    return path


def file_stem(place: tuple[str, str]) -> str:
    """The name of a place as a file name."""
    return re.sub(r"[^\w.-]+", "-", "-".join(part for part in place if part)).strip("-.") or "problem"


def figure(rows: Sequence[Chart]) -> Figure:
    """A row a chart, its panels side by side over one legend."""
    drawn = Figure(figsize=(WIDTH, HEIGHT * len(rows)), layout="constrained")
    for row, chart in zip(drawn.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        for axes, panel in zip(row.subplots(1, len(chart.panels)), chart.panels, strict=True):
            _draw(axes, panel)
        handles, labels = row.axes[0].get_legend_handles_labels()
        fitting = 4 if max(map(len, labels)) <= LONG_NAME else 3
        row.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), fitting), frameon=False)
        shown = "mean and 95 % interval over runs" if chart.has_intervals else "single runs and their mean"
        row.suptitle(f"{chart.title}, {shown}", fontsize=11)
    return drawn


def _draw(axes: Axes, panel: Panel) -> None:
    axes.axhline(0.0, color="#999999", linewidth=0.8, zorder=1)
    for line in panel.lines:
        _draw_line(axes, panel, line)
    axes.set_title(panel.title, fontsize=10.5)
    axes.set(xlabel="round" if panel.rounds else "episode", ylabel=panel.unit)
    if panel.rounds:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylim(*panel.axis.ends)
    if panel.axis.unit:
        ticks = panel.axis.ticks()
        axes.yaxis.set_major_locator(FixedLocator(panel.axis.position(ticks).tolist()))
        axes.set_yticklabels([f"{tick:,g}" for tick in ticks])
    else:
        axes.yaxis.set_major_locator(MaxNLocator(NUM_TICKS, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.remark:
        remark = "\n".join(panel.remark)
        text = axes.text(0.03, 0.02, remark, transform=axes.transAxes, fontsize=8.5, linespacing=1.1)
        text.set_in_layout(False)  # a long remark must not squeeze the panels


def _draw_line(axes: Axes, panel: Panel, line: Line) -> None:
    curve, style = line.curve, line.style
    mean, low, high = map(panel.axis.position, (curve.mean, curve.low, curve.high))
    axes.plot(
        curve.episodes, mean, label=line.label, color=style.colour, linestyle=_DASHES[style.dash],
        linewidth=style.width, marker=_MARKERS[style.marker], markevery=0.12, markersize=5, zorder=3,
    )  # fmt: skip
    axes.fill_between(curve.episodes, low, high, color=style.colour, alpha=0.15, linewidth=0, zorder=2)
    for run in curve.runs:
        axes.plot(curve.episodes, panel.axis.position(run), color=style.colour, linewidth=0.6, zorder=2)

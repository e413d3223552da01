"""Figures for papers: one a problem, as PNG and PDF, byte for byte the same for the same records."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from episafe.reports.panels import Chart
from episafe.storage.atomic_files import atomic

WIDTH, HEIGHT, DPI = 12.0, 4.2, 150
LONG_NAME = 36  # characters; four names of this length fill the width, three longer ones
# without them the files would say when and with what they were made
METADATA = {"png": {"Software": None}, "pdf": {"Creator": None, "Producer": None, "CreationDate": None}}


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
            panel.draw(axes)
        handles, labels = row.axes[0].get_legend_handles_labels()
        fitting = 4 if max(map(len, labels)) <= LONG_NAME else 3
        row.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), fitting), frameon=False)
        alone = all(len(curve.runs) for curve in chart.curves)
        shown = "single runs and their mean" if alone else "mean and 95 % interval over runs"
        row.suptitle(f"{chart.title}, {shown}", fontsize=11)
    return drawn

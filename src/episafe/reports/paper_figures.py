"""Pictures by matplotlib: figures for papers, one a problem, as PNG and PDF, byte for byte the same for the same
records; and that of one run, for notebooks."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from episafe.reports.panels import Chart
from episafe.reports.pictures import Picture
from episafe.reports.run_pictures import change_pictures, pictures
from episafe.runs.record import Record
from episafe.storage.atomic_files import atomic

WIDTH, HEIGHT, DPI = 12.0, 4.2, 150
LONG_NAME = 36  # characters; four names of this length fill the width, three longer ones
MOST_LINES, LINE = 6, 0.22  # lines of a legend for which there is room in a row; inches of each further one
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
    named = [[mark.label for mark in chart.panels[0].legend] for chart in rows]
    fitting = [4 if max(map(len, names)) <= LONG_NAME else 3 for names in named]
    lines = [-(-len(names) // across) for names, across in zip(named, fitting, strict=True)]
    heights = [HEIGHT + LINE * max(0, count - MOST_LINES) for count in lines]
    drawn = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts = drawn.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, chart, across in zip(parts, rows, fitting, strict=True):
        for axes, panel in zip(row.subplots(1, len(chart.panels)), chart.panels, strict=True):
            panel.draw(axes)
        handles, labels = row.axes[0].get_legend_handles_labels()
        row.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), across), frameon=False)
        alone = all(len(curve.runs) for curve in chart.curves)
        shown = "single runs and their mean" if alone else "mean and 95 % interval over runs"
        row.suptitle(f"{chart.title}, {shown}", fontsize=11)
    return drawn


class Drawing(Figure):
    """A figure that a notebook shows by itself, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        """The figure as a notebook asks for it."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=80)
        return file.getvalue()


def run_figure(record: Record, learned: Any = None, incumbent: Any = None) -> Figure:
    """The pictures of a run as a report has them, for notebooks: `record.plot()`. Where two policies are given, also
    where they differ."""
    changes = list[Picture]()
    if learned is not None and incumbent is not None:
        change = learned.table() - incumbent.table()
        changes = change_pictures(change, [str(s) for s in range(change.shape[1])])
    drawn = [picture for of in pictures(record).values() for picture in of] + changes
    rows = -(-len(drawn) // 2)
    figure = Drawing(figsize=(12, 3.2 * rows), layout="constrained")
    for place, picture in enumerate(drawn, start=1):
        axes = figure.add_subplot(rows, 2, place)
        picture.draw(axes)
        if picture.legend:
            axes.legend(  # below the name of the axis: it lies on no line
                loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4.5, ncols=2, fontsize=8, frameon=False
            )
    return figure

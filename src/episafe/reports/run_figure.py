"""The pictures of a run as one matplotlib figure, for notebooks: `record.plot()`."""

import io
from typing import Any

from matplotlib.figure import Figure

from episafe.reports.pictures import Picture
from episafe.reports.run_pictures import change_pictures, pictures
from episafe.runs.record import Record


class Drawing(Figure):
    """A figure that a notebook shows by itself, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        """The figure as a notebook asks for it."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=80)
        return file.getvalue()


def draw(record: Record, learned: Any = None, incumbent: Any = None) -> Figure:
    """The same pictures as a report has; where two policies are given, also where they differ."""
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
            axes.legend(loc="best", fontsize=8, framealpha=0.9)
    return figure

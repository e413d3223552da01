"""What a picture shows: marks on two axes. A page has it as SVG, a notebook and a paper by matplotlib."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from episafe.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # which take a while to import, and a page does without

BLUE, GREEN, RED, GREY = "#0072B2", "#009E73", "#D55E00", "#6B6B6B"  # learned, optimum, threshold, incumbent
FRAME = "#C6CAD1"
WIDTH, HEIGHT = 440, 280  # of an SVG, in its own units; text is 10 to 13.5 of them high, by how wide a page shows it
CHARACTER, LINE_HEIGHT = 7.6, 14  # units, about the width of the largest, and from one line of text to the next
NEAR = 22  # units below a point in which a line would run through the words there
DASHES = {"solid": "", "dash": "7 4", "dashdot": "8 3 2 3", "dot": "2 3", "longdash": "12 4", "longdashdot": "12 3 2 3"}
NOTHING = Markup("")
_AT_MARKERS = 0.12  # of the width, from one marker of a line to the next


@dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
        title: what it counts, and in what unit.
        low, high: where it begins and ends.
        ticks: where, and what is written there.
        ruled: whether a line is drawn across at each of them.
    """

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    ruled: bool = True

    @classmethod
    def linear(cls, title: str, low: float, high: float, num_ticks: int = 5) -> "Scale":
        """Round numbers at ticks."""
        at = round_numbers(low, high, num_ticks)
        return cls(title, low, high, tuple((x, f"{round(x, 9):,.6g}") for x in at))

    def share(self, values: Array) -> Array:
        """How far along the axis, from 0 to 1."""
        return (np.asarray(values, dtype=np.float64) - self.low) / ((self.high - self.low) or 1.0)


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 · 10^k from low to high, of the least step that fits at most so many times between them.

    Where these are fewer than two, the step is a smaller one.
    """
    if not 0 < high - low < math.inf:
        return [low] if low == high else []
    room, slack = (high - low) / most, 1e-9 * (high - low)
    unit = 10.0 ** math.floor(math.log10(room))
    first = next(step for step in (1, 2, 5, 10) if step * unit >= room)
    found: list[float] = []
    for step in (unit * one for one in (10, 5, 2, 1, 0.5, 0.2, 0.1) if one <= first):
        found = [n * step for n in range(math.ceil((low - slack) / step), math.floor((high + slack) / step) + 1)]
        if len(found) >= 2:
            break
    return found


@dataclass(frozen=True)
class PlotArea:
    """Where the axes of an SVG lie."""

    x: Scale
    y: Scale
    left: float
    top: float
    right: float
    bottom: float

    def across(self, values: Array) -> Array:
        """x in units of the SVG, within a little of the box."""
        return self.left + (self.right - self.left) * np.clip(self.x.share(values), -0.02, 1.02)

    def down(self, values: Array) -> Array:
        """y in units of the SVG, within a little of the box."""
        return self.bottom - (self.bottom - self.top) * np.clip(self.y.share(values), -0.02, 1.02)


class Mark:
    """Something that is drawn. `label` is its name in the legend, "" for none."""

    label: str = ""

    def svg(self, box: PlotArea) -> Markup:
        """As elements of an SVG."""
        raise NotImplementedError

    def swatch(self) -> Markup:
        """A sample for the legend, 30 by 10 units."""
        return NOTHING

    def draw(self, axes: "Axes") -> None:
        """Onto the axes of matplotlib."""
        raise NotImplementedError


def with_minus(text: str) -> str:
    """The text with a minus before every number that a hyphen makes negative."""
    return re.sub(r"(?<![\w\-`/.])-(?=\d)", "−", text)


def ink(colour: str) -> str:
    """The colour as a style: pages may have another for it on dark paper."""
    return f"color:var(--ink-{colour.removeprefix('#')},{colour})"


def path(x: Array, y: Array) -> str:
    """A line through points, broken where one is unknown; points on a straight stretch are left out."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = np.round(x, 1), np.round(y, 1)
    same = np.zeros(len(x), dtype=bool)
    same[1:-1] = (y[:-2] == y[1:-1]) & (y[1:-1] == y[2:])
    said, pen = [], "M"
    for u, v, ok, between in zip(x.tolist(), y.tolist(), known.tolist(), same.tolist(), strict=True):
        if not ok:
            pen = "M"
        elif not (between and pen == "L"):
            said.append(f"{pen}{u:g} {v:g}")
            pen = "L"
    return "".join(said)


def circles(x: Array, y: Array, css: str, size: float, colour: str) -> Markup:
    """One at each point."""
    return NOTHING.join(DOT.format(css, u, v, size, ink(colour)) for u, v in zip(x, y, strict=True))


LINE = Markup('<path class="line" d="{}" style="{}" stroke-width="{:g}" stroke-dasharray="{}"><title>{}</title></path>')
AREA = Markup('<path class="area" d="{}" style="{}" fill-opacity="{:g}"><title>{}</title></path>')
DOT = Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:g}" style="{}"/>')
TEXT = Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}" style="{}">{}</text>')
_MATPLOTLIB_DASHES = {name: (0, tuple(map(float, d.split()))) if d else "-" for name, d in DASHES.items()}
_MATPLOTLIB_MARKERS = {"": "", "circle": "o", "square": "s", "triangle-up": "^", "diamond": "D"}


@dataclass(frozen=True, eq=False)
class Polyline(Mark):
    """A line through points."""

    x: Array
    y: Array
    colour: str
    label: str = ""
    dash: str = "solid"
    width: float = 1.6
    marker: str = ""
    opacity: float = 1.0

    def svg(self, box: PlotArea) -> Markup:
        """A path, and markers along it."""
        x, y = box.across(self.x), box.down(self.y)
        style = ink(self.colour) + (f";stroke-opacity:{self.opacity:g}" if self.opacity < 1 else "")
        drawn = LINE.format(path(x, y), style, self.width, DASHES[self.dash], self.label)
        every = max(int(len(x) * _AT_MARKERS), 1)
        return drawn + circles(x[::every], y[::every], "dot", 3, self.colour) if self.marker else drawn

    def swatch(self) -> Markup:
        """A stroke."""
        dot = DOT.format("dot", 15, 5, 3, ink(self.colour)) if self.marker else NOTHING
        width = max(self.width, 1.6)  # a thin one is seen among others, and alone it is not
        return LINE.format("M0 5L30 5", ink(self.colour), width, DASHES[self.dash], self.label) + dot

    def draw(self, axes: "Axes") -> None:
        """A line."""
        axes.plot(
            self.x, self.y, label=self.label or None, color=self.colour, linestyle=_MATPLOTLIB_DASHES[self.dash],
            linewidth=self.width, marker=_MATPLOTLIB_MARKERS[self.marker], markevery=_AT_MARKERS, alpha=self.opacity,
            zorder=3,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Band(Mark):
    """What lies between two lines: an interval, or a share."""

    x: Array
    low: Array
    high: Array
    colour: str
    label: str = ""
    opacity: float = 0.15

    def svg(self, box: PlotArea) -> Markup:
        """One closed path where all is known."""
        known = np.isfinite(self.low) & np.isfinite(self.high)
        if not known.any():
            return NOTHING
        x, low, high = box.across(self.x[known]), box.down(self.low[known]), box.down(self.high[known])
        around = path(x, high) + path(x[::-1], low[::-1]).replace("M", "L", 1) + "Z"
        return AREA.format(around, ink(self.colour), self.opacity, self.label)

    def swatch(self) -> Markup:
        """A patch."""
        return AREA.format("M0 0H30V10H0Z", ink(self.colour), self.opacity, self.label)

    def draw(self, axes: "Axes") -> None:
        """An area."""
        axes.fill_between(
            self.x, self.low, self.high, color=self.colour, alpha=self.opacity, linewidth=0, label=self.label or None,
            zorder=2,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dots(Mark):
    """Points, one by one."""

    x: Array
    y: Array
    colour: str
    label: str = ""
    hollow: bool = False
    size: float = 2.2

    def svg(self, box: PlotArea) -> Markup:
        """Circles."""
        css = "hollow" if self.hollow else "dot"
        return circles(box.across(self.x), box.down(self.y), css, self.size, self.colour)

    def swatch(self) -> Markup:
        """One of them."""
        return DOT.format("hollow" if self.hollow else "dot", 15, 5, 3, ink(self.colour))

    def draw(self, axes: "Axes") -> None:
        """Markers without a line."""
        face = "none" if self.hollow else self.colour
        axes.scatter(
            self.x, self.y, s=4 * self.size**2, facecolors=face, edgecolors=self.colour, linewidths=0.8,
            label=self.label or None, zorder=4,
        )  # fmt: skip


@dataclass(frozen=True)
class Guide(Mark):
    """A dashed line to compare with, named at its right end."""

    y: float
    colour: str
    name: str

    def svg(self, box: PlotArea) -> Markup:
        """The line; the picture writes its name, where there is room."""
        across = f"M{box.left:g} {box.down(np.array(self.y)):.1f}H{box.right:g}"
        return LINE.format(across, ink(self.colour), 1.5, DASHES["dash"], self.name)

    def draw(self, axes: "Axes") -> None:
        """The line; the picture writes its name."""
        axes.axhline(self.y, color=self.colour, linewidth=1.5, linestyle="--", zorder=1)


@dataclass(frozen=True)
class Zone(Mark):
    """Where nothing should be: shaded from `low` to `high`, with its name in it."""

    low: float
    high: float
    colour: str
    name: str

    def svg(self, box: PlotArea) -> Markup:
        """A rectangle and its name."""
        top, bottom = box.down(np.array([self.high, self.low]))
        area = f"M{box.left:g} {top:.1f}H{box.right:g}V{min(bottom, box.bottom):.1f}H{box.left:g}Z"
        name = TEXT.format("halo", (box.left + box.right) / 2, bottom - 5, "middle", ink(self.colour), self.name)
        return AREA.format(area, ink(self.colour), 0.13, self.name) + name

    def draw(self, axes: "Axes") -> None:
        """A shaded stretch of the axis."""
        axes.axhspan(self.low, self.high, color=self.colour, alpha=0.13, linewidth=0, zorder=0)
        how = {"color": self.colour, "ha": "center", "va": "bottom", "fontsize": 9}
        axes.text(0.5, 0.02, self.name, transform=axes.transAxes, **how)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Ticks(Mark):
    """Moments: strokes at the upper edge."""

    x: Array
    colour: str
    label: str = ""

    def svg(self, box: PlotArea) -> Markup:
        """Short strokes."""
        strokes = "".join(f"M{x:.1f} {box.top:g}v12" for x in box.across(self.x).tolist())
        return LINE.format(strokes, ink(self.colour), 2, "", self.label)

    def swatch(self) -> Markup:
        """One of them."""
        return LINE.format("M15 0v10", ink(self.colour), 2, "", self.label)

    def draw(self, axes: "Axes") -> None:
        """Short strokes."""
        axes.vlines(
            self.x, 0.95, 1.0, transform=axes.get_xaxis_transform(), color=self.colour, linewidth=2,
            label=self.label or "_",
        )  # fmt: skip


@dataclass(frozen=True)
class Note(Mark):
    """A few words below a point, and below a line that would run through them.

    Attributes:
        line: where that is drawn.
    """

    x: float
    y: float
    words: str
    colour: str
    line: float = math.nan

    def svg(self, box: PlotArea) -> Markup:
        """Words beside the point, on the side where there is room."""
        x, y, line = (float(at) for at in (box.across(np.array(self.x)), *box.down(np.array([self.y, self.line]))))
        under = line if 0 < line - y < NEAR else y
        left = x + CHARACTER * len(self.words) + 8 > box.right
        words = TEXT.format("halo", x - 7 if left else x + 7, under + 16, "end" if left else "start", "", self.words)
        return DOT.format("hollow", x, y, 5, ink(self.colour)) + words

    def draw(self, axes: "Axes") -> None:
        """Words beside a ring."""
        low, high = axes.get_xlim()
        left = (self.x - low) / (high - low) > 0.6
        axes.plot([self.x], [self.y], "o", markerfacecolor="none", markeredgecolor=self.colour, markersize=8, zorder=5)
        axes.annotate(
            self.words, (self.x, self.y), xytext=(-7 if left else 7, -7), textcoords="offset points", fontsize=9,
            ha="right" if left else "left", va="top", zorder=5,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CellMap(Mark):
    """A map of numbers from −1 to 1: blue above zero, grey below, a frame alone at zero, empty where nothing is known.

    Attributes:
        values: (rows, columns); row i is drawn from i to i + 1, column j likewise.
        names: of the cells, for whoever points at one.
    """

    values: Array
    names: Sequence[Sequence[str]]

    def svg(self, box: PlotArea) -> Markup:
        """Rectangles."""
        cell = Markup('<path class="cell" d="M{:.1f} {:.1f}H{:.1f}V{:.1f}H{:.1f}Z" style="{}" fill-opacity="{:.2f}">'
                      "<title>{}</title></path>")  # fmt: skip
        drawn = []
        for i, j in zip(*np.nonzero(np.isfinite(self.values)), strict=True):
            value = float(self.values[i, j])
            left, right = box.across(np.array([j, j + 1.0]))
            top, bottom = sorted(box.down(np.array([i, i + 1.0])))
            colour = ink(BLUE if value >= 0 else GREY)
            drawn.append(cell.format(left, top, right, bottom, left, colour, abs(value), self.names[i][j]))
        return NOTHING.join(drawn)

    def draw(self, axes: "Axes") -> None:
        """An image."""
        from matplotlib.colors import LinearSegmentedColormap

        colours = LinearSegmentedColormap.from_list("change", [GREY, "white", BLUE])
        rows, columns = self.values.shape
        axes.pcolormesh(np.arange(columns + 1), np.arange(rows + 1), self.values, cmap=colours, vmin=-1, vmax=1,
                        edgecolors=FRAME, linewidth=0.4)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Picture:
    """Marks on two axes.

    Attributes:
        title: what is shown.
        x, y: the axes.
        marks: from back to front.
        remark: lines at the foot of the axes.
        caption: what is written below, as sentences.
        width, height: of the SVG.
        levels: lines to compare with.
    """

    title: str
    x: Scale
    y: Scale
    marks: Sequence[Mark]
    remark: Sequence[str] = ()
    caption: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    levels: Sequence[Guide] = ()

    @property
    def legend(self) -> list[Mark]:
        """The marks that have a name there."""
        return [mark for mark in self.marks if mark.label]

    @property
    def said(self) -> str:
        """The picture in words, for who does not see it."""
        axes = f"{self.y.title or 'From bottom to top'} from {self.y.low:.4g} to {self.y.high:.4g}, by {self.x.title}."
        levels = [f"{level.name}: {level.y:.4g}." for level in self.levels]
        ends = [
            f"{mark.label} ends at {mark.y[-1]:.4g}."
            for mark in self.marks
            if mark.label and hasattr(mark, "y") and len(mark.y)
        ]
        return " ".join([axes, *levels, *ends, *self.remark])

    def svg(self) -> Markup:
        """Everything inside the <svg>."""
        box = self._box()
        head = TEXT.format("name", 4, 16, "start", "", self.title)
        notes = [mark for mark in self.marks if isinstance(mark, Note)]  # on top: no line runs through their words
        others = [mark for mark in self.marks if not isinstance(mark, Note)]
        marks = NOTHING.join(mark.svg(box) for mark in [*others, *self.levels, *notes])
        places = zip(self.levels, self._label_shares(), strict=True)
        names = NOTHING.join(
            TEXT.format(
                "", box.right + 5, box.bottom - share * (box.bottom - box.top) + 4, "start", ink(one.colour), one.name
            )
            for one, share in places
        )
        lines = [
            TEXT.format("halo", box.left + 6, box.bottom - 6 - LINE_HEIGHT * i, "start", "", with_minus(line))
            for i, line in enumerate(reversed(self.remark))
        ]
        return head + self._axes(box) + marks + names + NOTHING.join(lines)

    def _box(self) -> PlotArea:
        ticks = max((len(text) for _, text in self.y.ticks), default=1)
        left = 26 + CHARACTER * ticks if self.y.title else 10 + CHARACTER * ticks
        last = len(self.x.ticks[-1][1]) / 2 if self.x.ticks else 0
        right = 6 + CHARACTER * max(last, *(1 + len(level.name) for level in self.levels), 1)
        return PlotArea(self.x, self.y, left, 28, self.width - right, self.height - 40)

    def _axes(self, box: PlotArea) -> Markup:
        parts = []
        for value, text in self.y.ticks:
            y = float(box.down(np.array(value)))
            css = "zero" if value == 0 else "grid"
            if self.y.ruled:
                parts.append(Markup('<path class="{}" d="M{:g} {:.1f}H{:g}"/>').format(css, box.left, y, box.right))
            parts.append(TEXT.format("tick", box.left - 6, y + 4, "end", "", with_minus(text)))
        parts.append(Markup('<path class="zero" d="M{:g} {:g}H{:g}"/>').format(box.left, box.bottom, box.right))
        for value, text in self.x.ticks:
            x = float(box.across(np.array(value)))
            parts.append(TEXT.format("tick", x, box.bottom + 16, "middle", "", with_minus(text)))
        parts.append(TEXT.format("axis", (box.left + box.right) / 2, box.bottom + 33, "middle", "", self.x.title))
        if self.y.title:
            middle = (box.top + box.bottom) / 2
            parts.append(
                Markup('<text class="axis" transform="translate(13 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>')
                .format(middle, self.y.title)
            )  # fmt: skip
        return NOTHING.join(parts)

    def draw(self, axes: "Axes") -> None:
        """The same onto the axes of matplotlib."""
        axes.set_xlim(self.x.low, self.x.high)
        axes.set_ylim(self.y.low, self.y.high)
        for mark in [*self.marks, *self.levels]:
            mark.draw(axes)
        for level, share in zip(self.levels, self._label_shares(), strict=True):
            axes.annotate(
                level.name, (1.0, share), xycoords="axes fraction", xytext=(5, 0), textcoords="offset points",
                color=level.colour, va="center", fontsize=9, annotation_clip=False,
            )  # fmt: skip
        axes.set_title(self.title, fontsize=10.5, loc="left")
        axes.set(xlabel=self.x.title, ylabel=self.y.title)
        axes.set_xticks([at for at, _ in self.x.ticks], [with_minus(text) for _, text in self.x.ticks])
        axes.set_yticks([at for at, _ in self.y.ticks], [with_minus(text) for _, text in self.y.ticks])
        if self.y.ruled:
            axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
            axes.axhline(0.0, color="#999999", linewidth=0.8, zorder=1)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if self.remark:
            text = axes.text(
                0.03, 0.02, "\n".join(self.remark), transform=axes.transAxes, fontsize=8.5, linespacing=1.1
            )
            text.set_in_layout(False)  # a long remark must not squeeze the panels

    def _label_shares(self) -> list[float]:
        """How far up the names of levels are written, none over another."""
        box = self._box()
        gap = LINE_HEIGHT / (box.bottom - box.top)
        wanted = [float(self.y.share(np.array(level.y))) for level in self.levels]
        found = dict[int, float]()
        below = -gap
        for i in sorted(range(len(wanted)), key=wanted.__getitem__):
            below = found[i] = max(wanted[i], below + gap)
        over = max(below - 1.0, 0.0)
        return [found[i] - over for i in range(len(wanted))]

"""What is drawn, before anything draws it: the panels of each problem, their lines and their axes."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from episafe.reports.labels import Style, in_rounds, label, name, place_title, styles
from episafe.reports.metrics import Curve, Curves, Summary
from episafe.reports.pictures import Band, Picture, Scale, Trace
from episafe.reports.tables import number
from episafe.runs.record import ROUNDING
from episafe.types import Array, IntArray

DWARFED = 8.0  # a line that ends this many times as far out as the next one would flatten all others
UNSEEN = 50.0  # a violation this many times smaller than the end of the axis looks like zero
NUM_TICKS = 5  # at most, on a linear axis: their step is then wider than the foot, so that none is below a zero line
DECADES = 2  # below the largest value that are told apart on a logarithmic axis
MARGIN = 0.06  # of the axis, left free at either end
FOOT, MORE_FOOT = 0.17, 0.08  # of the axis, left free below 0 for a remark, and for each further line of it
REMARK_WIDTH, REMARK_LINES = 46, 3  # characters a line, lines: what fits at the foot of a panel


@dataclass(frozen=True)
class Axis:
    """y ↦ y over episodes, where a constant rate must be a straight line; over rounds, whose axis is logarithmic too,
    y ↦ sign(y) log₁₀(1 + |y|/unit), which keeps 0 and signs.

    Attributes:
        unit: 0 for a linear axis.
        low, high: smallest and largest value drawn, after the map.
        foot: share of their distance to leave free below `low`.
    """

    unit: float
    low: float
    high: float
    foot: float

    @property
    def ends(self) -> tuple[float, float]:
        """Where the axis begins and ends, after the map."""
        span = self.high - self.low
        return self.low - self.foot * span, self.high + MARGIN * span

    def position(self, y: Array) -> Array:
        """Where `y` is drawn."""
        return warp(y, self.unit)

    def ticks(self) -> Array:
        """0 and ± unit·10^k among the values; for logarithmic axes."""
        powers = self.unit * 10.0 ** np.arange(math.ceil(max(-self.low, self.high)) + 1)
        candidates = np.concatenate([-powers[::-1], [0.0], powers])
        drawn = self.position(candidates)
        return candidates[(self.low <= drawn) & (drawn <= self.ends[1])]

    def scale(self, title: str) -> Scale:
        """The axis for a page."""
        if not self.unit:
            return Scale.linear(title, *self.ends, NUM_TICKS)
        ticks = self.ticks()
        return Scale(f"{title}, logarithmic", *self.ends, tuple((float(self.position(y)), f"{y:,g}") for y in ticks))


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of an agent under its legend name."""

    label: str
    agent: str
    style: Style
    curve: Curve


@dataclass(frozen=True, eq=False)
class Panel:
    """One quantity over the episodes.

    Attributes:
        unit: what it is counted in.
        rounds: whether episodes are rounds of a bandit, on a logarithmic axis.
        remark: lines to write at the foot of the panel, where a curve could be overlooked; their place is kept free.
    """

    title: str
    unit: str
    lines: tuple[Line, ...]
    axis: Axis
    rounds: bool
    remark: tuple[str, ...] = ()

    def picture(self) -> Picture:
        """The panel for a page: bands and single runs below all means."""
        x, y = self._x(self.lines[0].curve.episodes), self.axis.position
        bands = [
            Band(self._across(one.curve.episodes), y(one.curve.low), y(one.curve.high), one.style.colour)
            for one in self.lines
        ]
        traces = [
            Trace(self._across(one.curve.episodes), y(one.curve.mean), one.style.colour, one.label, one.style.dash,
                  one.style.width * 0.75, one.style.marker)
            for one in self.lines
        ]  # fmt: skip
        thin = [
            Trace(self._across(one.curve.episodes), y(run), one.style.colour, width=0.6)
            for one in self.lines
            for run in one.curve.runs
        ]
        return Picture(self.title, x, self.axis.scale(self.unit), [*bands, *thin, *traces], self.remark)

    def _across(self, episodes: IntArray) -> Array:
        return np.log10(episodes) if self.rounds else episodes.astype(np.float64)

    def _x(self, episodes: IntArray) -> Scale:
        low, high = self._across(episodes[[0, -1]]).tolist()
        if not self.rounds:
            return Scale.linear("episode", 0.0, high, 4)
        decades = range(math.ceil(low), math.floor(high) + 1)
        return Scale("round, logarithmic", low, max(high, low + 1e-9), tuple((float(k), f"{10**k:,}") for k in decades))


@dataclass(frozen=True, eq=False)
class Chart:
    """The panels of one environment and variant: regret, violation, incumbent episodes where any agent has one."""

    place: tuple[str, str]
    title: str
    panels: tuple[Panel, ...]

    @property
    def has_intervals(self) -> bool:
        """Whether some line has a band."""
        return any(bool(np.isfinite(line.curve.high).any()) for line in self.panels[0].lines)


def charts(summaries: Sequence[Summary], curves: Sequence[Curves]) -> list[Chart]:
    """One chart a place; `summaries` and `curves` are of the same records, and so in the same order."""
    rows = list(zip(summaries, styles(summaries), curves, strict=True))
    places = dict.fromkeys(summary.group.place for summary in summaries)
    return [_chart(place, [row for row in rows if row[0].group.place == place]) for place in places]


def _chart(place: tuple[str, str], rows: Sequence[tuple[Summary, Style, Curves]]) -> Chart:
    def lines(quantity: str, of: Sequence[tuple[Summary, Style, Curves]]) -> tuple[Line, ...]:
        return tuple(Line(label(s), name(s.group.agent), style, getattr(curves, quantity)) for s, style, curves in of)

    rounds = any(curves.rounds for _, _, curves in rows)
    panels = [_regret(lines("regret", rows), rounds), _violation(lines("violation", rows), rounds)]
    able = [row for row in rows if row[0].has_incumbent]
    if able:
        drawn = lines("incumbent_episodes", able)
        panels.append(
            Panel("Incumbent acted, total", "rounds" if rounds else "episodes", drawn, _axis(drawn, rounds), rounds)
        )
    title = f"{place_title(place)} – {size([summary for summary, _, _ in rows])}"
    return Chart(place, title, tuple(panels))


def size(summaries: Sequence[Summary]) -> str:
    """Runs and episodes in words: "10 runs of 10,000 episodes"; a range where agents differ."""
    runs = _span([summary.num_runs for summary in summaries])
    episodes = _span([summary.num_episodes for summary in summaries])
    words = f"{runs} {'run' if runs == '1' else 'runs'} of {episodes} {'episode' if episodes == '1' else 'episodes'}"
    return in_rounds(words, summaries)


def _regret(lines: tuple[Line, ...], rounds: bool) -> Panel:
    inside, remark = _beyond(lines, rounds)
    return Panel(
        "Regret, total (signed)", "reward", lines, _axis(inside, rounds, FOOT if remark else MARGIN), rounds, remark
    )


def _violation(lines: tuple[Line, ...], rounds: bool) -> Panel:
    inside, beyond = _beyond(lines, rounds)
    high = max(map(_magnitude, inside), default=0.0)
    small = [line for line in lines if not _is_zero(line) and UNSEEN * _magnitude(line) < high and not rounds]
    seen = [f"{line.label} ends at {number(float(line.curve.mean[-1]))}, not 0" for line in small]
    remark = (*_zeros(lines), *seen, *beyond)[:REMARK_LINES]
    axis = _axis(inside, rounds, FOOT + MORE_FOOT * max(len(remark) - 1, 0))
    return Panel("Violation, total (hard)", "utility", lines, axis, rounds, remark)


def _beyond(lines: tuple[Line, ...], rounds: bool) -> tuple[tuple[Line, ...], tuple[str, ...]]:
    """The lines that the axis is made for, and a remark on one that would flatten all others and leaves the panel."""
    far = sorted(lines, key=_magnitude, reverse=True)
    if rounds or len(far) < 2 or _magnitude(far[1]) <= 0 or _magnitude(far[0]) <= DWARFED * _magnitude(far[1]):
        return lines, ()
    return tuple(far[1:]), (f"beyond the axis: {far[0].label}, {number(float(far[0].curve.mean[-1]))}",)


def _zeros(lines: Sequence[Line]) -> tuple[str, ...]:
    """Whose violation is 0, by agent where that is true of all its lines; a count where the names do not fit."""
    zero = [line for line in lines if _is_zero(line)]
    if len(zero) == len(lines):
        return ("0 throughout: every agent",)
    others = {line.agent for line in lines if not _is_zero(line)}
    names = dict.fromkeys(line.label if line.agent in others else line.agent for line in zero)
    remark = textwrap.wrap(f"0 throughout: {', '.join(names)}", REMARK_WIDTH) if zero else []
    return tuple(remark) if len(remark) < REMARK_LINES else (f"0 throughout: {len(zero)} of {len(lines)} lines",)


def _axis(lines: Sequence[Line], rounds: bool, foot: float = MARGIN) -> Axis:
    largest = max(map(_magnitude, lines), default=0.0)
    unit = _decade(largest) / 10**DECADES if rounds and largest > 0 else 0.0
    curves = [
        warp(y, unit)
        for line in lines
        for y in (line.curve.mean, line.curve.low, line.curve.high, line.curve.runs.ravel())
    ]
    drawn = np.concatenate([[0.0], *curves])
    low, high = float(np.nanmin(drawn)), float(np.nanmax(drawn))
    if high - low <= ROUNDING:
        high = low + 1.0  # all lines are zero: an axis is still needed
    return Axis(unit, low, high, foot)


def _decade(size: float) -> float:
    """The power of ten just below."""
    return 10.0 ** math.floor(math.log10(size))


def warp(y: Array, unit: float) -> Array:
    """sign(y) log₁₀(1 + |y|/unit), or y itself where the unit is 0."""
    return np.sign(y) * np.log10(1 + np.abs(y) / unit) if unit else y


def _magnitude(line: Line) -> float:
    return float(np.abs(line.curve.mean).max())


def _is_zero(line: Line) -> bool:
    return _magnitude(line) <= ROUNDING * int(line.curve.episodes[-1])


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

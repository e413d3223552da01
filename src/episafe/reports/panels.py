"""What is drawn, before anything draws it: the panels of each problem, their lines and their axes."""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from episafe.reports.labels import Style, in_rounds, label, name, place_title, styles
from episafe.reports.metrics import Curve, Curves, Summary
from episafe.reports.pictures import Band, Mark, Picture, Polyline, Scale
from episafe.reports.record_groups import is_bandit
from episafe.reports.tables import number
from episafe.runs.record import ROUNDING
from episafe.types import Array, IntArray

DWARFED = 8.0  # a line that ends this many times as far out as the next one would flatten all others
UNSEEN = 50.0  # a violation this many times smaller than the end of the axis looks like zero
NUM_TICKS = 5  # at most, on a linear axis: their step is then wider than the foot, so that none is below a zero line
DECADES = 2  # below the largest value that are told apart on a logarithmic axis
MARGIN = 0.06  # of the axis, left free at either end
CROWD = 0.075  # of the axis: numbers nearer to each other would touch
FOOT, MORE_FOOT = 0.17, 0.08  # of the axis, left free below 0 for a remark, and for each further line of it
MOST_LINES = 12  # that are told apart in one panel; of more, an agent's share a name and a look
REMARK_WIDTH, REMARK_LINES = 46, 3  # characters a line, lines: what fits at the foot of a panel


@dataclass(frozen=True, eq=False)
class Line:
    """One curve of an agent under its legend name."""

    label: str
    agent: str
    style: Style
    curve: Curve


@dataclass(frozen=True, eq=False)
class Chart:
    """The panels of one environment and variant: regret, violation, incumbent episodes where any agent has one.

    Attributes:
        curves: those of the regret; others are of as many runs.
        is_crowded: whether lines of an agent share a name: there are more than can be told apart.
    """

    place: tuple[str, str]
    title: str
    panels: tuple[Picture, ...]
    curves: tuple[Curve, ...]
    is_crowded: bool = False


def charts(summaries: Sequence[Summary], curves: Sequence[Curves]) -> list[Chart]:
    """One chart a place; `summaries` and `curves` are of the same records, and so in the same order."""
    rows = list(zip(summaries, styles(summaries), curves, strict=True))
    places = dict.fromkeys(summary.group.place for summary in summaries)
    return [_chart(place, [row for row in rows if row[0].group.place == place]) for place in places]


def _chart(place: tuple[str, str], rows: Sequence[tuple[Summary, Style, Curves]]) -> Chart:
    def lines(quantity: str, of: Sequence[tuple[Summary, Style, Curves]]) -> tuple[Line, ...]:
        return tuple(Line(label(s), name(s.group.agent), style, curves[quantity]) for s, style, curves in of)

    rounds, is_crowded = any(is_bandit(summary.settings) for summary, _, _ in rows), len(rows) > MOST_LINES
    regret = lines("regret", rows)
    panels = [_regret(regret, rounds), _violation(lines("violation", rows), rounds)]
    able = [row for row in rows if row[0].has_incumbent]
    if able:
        drawn, unit = lines("incumbent_episodes", able), "rounds" if rounds else "episodes"
        panels.append(_panel("Incumbent acted, total", drawn, rounds, _axis(unit, drawn, rounds)))
    title = f"{place_title(place)} – {size([summary for summary, _, _ in rows])}"
    if is_crowded:
        panels = [replace(panel, marks=_by_agent(panel, regret)) for panel in panels]
    return Chart(place, title, tuple(panels), tuple(line.curve for line in regret), is_crowded)


def _by_agent(panel: Picture, lines: Sequence[Line]) -> list[Mark]:
    """The means of a panel alone, in one look an agent, and its name once with how many lines are its own."""
    agents = {line.label: line.agent for line in lines}
    traces = [mark for mark in panel.marks if isinstance(mark, Polyline) and mark.label]
    count = Counter(agents[trace.label] for trace in traces)
    found, named = list[Mark](), set[str]()
    for trace in traces:
        agent = agents[trace.label]
        name = "" if agent in named else f"{agent}, {count[agent]} settings" if count[agent] > 1 else agent
        found.append(replace(trace, label=name, marker="", width=1.3))
        named.add(agent)
    return found


def _panel(
    title: str, lines: Sequence[Line], rounds: bool, axis: tuple[Scale, float], remark: tuple[str, ...] = ()
) -> Picture:
    """One quantity over the episodes, on an axis of its unit: bands and single runs below all means."""
    (scale, unit), bands, thin, traces = axis, list[Mark](), list[Mark](), list[Mark]()
    for line in lines:
        curve, style = line.curve, line.style
        x = _across(curve.episodes, rounds)
        mean, low, high = (warp(values, unit) for values in (curve.mean, curve.low, curve.high))
        bands.append(Band(x, low, high, style.colour))
        thin += [Polyline(x, warp(run, unit), style.colour, width=0.8, opacity=0.35) for run in curve.runs]
        traces.append(Polyline(x, mean, style.colour, line.label, style.dash, style.width * 0.75, style.marker))
    return Picture(title, _episodes(lines[0].curve.episodes, rounds), scale, [*bands, *thin, *traces], remark)


def _across(episodes: IntArray, rounds: bool) -> Array:
    """Where episodes are drawn; rounds of a bandit on a logarithmic axis."""
    return np.log10(episodes) if rounds else episodes.astype(np.float64)


def _episodes(episodes: IntArray, rounds: bool) -> Scale:
    low, high = _across(episodes[[0, -1]], rounds).tolist()
    if not rounds:
        return Scale.linear("episode", 0.0, high, 4)
    decades = range(math.ceil(low), math.floor(high) + 1)
    return Scale("round, logarithmic", low, max(high, low + 1e-9), tuple((float(k), f"{10**k:,}") for k in decades))


def size(summaries: Sequence[Summary]) -> str:
    """Runs and episodes in words: "10 runs of 10,000 episodes"; a range where agents differ."""
    runs = _span([summary.num_runs for summary in summaries])
    episodes = _span([summary.num_episodes for summary in summaries])
    words = f"{runs} {'run' if runs == '1' else 'runs'} of {episodes} {'episode' if episodes == '1' else 'episodes'}"
    return in_rounds(words, summaries)


def _regret(lines: tuple[Line, ...], rounds: bool) -> Picture:
    inside, remark = _beyond(lines, rounds)
    axis = _axis("reward", inside, rounds, FOOT + MORE_FOOT * (len(remark) - 1) if remark else MARGIN)
    return _panel("Regret, total (signed)", lines, rounds, axis, remark)


def _violation(lines: tuple[Line, ...], rounds: bool) -> Picture:
    inside, beyond = _beyond(lines, rounds)
    high = max(map(_magnitude, inside), default=0.0)
    small = [line for line in lines if not _is_zero(line) and UNSEEN * _magnitude(line) < high and not rounds]
    seen = [_fitting(f"{line.label} ends at {number(float(line.curve.mean[-1]))}, not 0") for line in small]
    zeros = _zeros(lines)
    if len(zeros) + sum(map(len, seen)) > REMARK_LINES:
        seen = [(f"not 0 but near it: {len(small)} of {len(lines)} lines",)]
    remark = (*zeros, *(line for said in seen for line in said))
    remark += beyond if len(remark) + len(beyond) <= REMARK_LINES else ()
    axis = _axis("utility", inside, rounds, FOOT + MORE_FOOT * max(len(remark) - 1, 0))
    return _panel("Violation, total (hard)", lines, rounds, axis, remark)


def _beyond(lines: tuple[Line, ...], rounds: bool) -> tuple[tuple[Line, ...], tuple[str, ...]]:
    """The lines that the axis is made for, and a remark on one that would flatten all others and leaves the panel."""
    far = sorted(lines, key=_magnitude, reverse=True)
    if rounds or len(far) < 2 or _magnitude(far[1]) <= 0 or _magnitude(far[0]) <= DWARFED * _magnitude(far[1]):
        return lines, ()
    said = f"beyond the axis: {far[0].label}, {number(float(far[0].curve.mean[-1]))}"
    return tuple(far[1:]), _fitting(said)


def _zeros(lines: Sequence[Line]) -> tuple[str, ...]:
    """Whose violation is 0, by agent where that is true of all its lines; a count where the names do not fit."""
    zero = [line for line in lines if _is_zero(line)]
    if len(zero) == len(lines):
        return ("0 throughout: every agent",)
    others = {line.agent for line in lines if not _is_zero(line)}
    names = dict.fromkeys(line.label if line.agent in others else line.agent for line in zero)
    remark = _fitting(f"0 throughout: {'; '.join(names)}") if zero else ()
    return remark if len(remark) < REMARK_LINES else (f"0 throughout: {len(zero)} of {len(lines)} lines",)


def _fitting(remark: str) -> tuple[str, ...]:
    """A remark in lines that fit at the foot of a panel."""
    return tuple(textwrap.wrap(remark, REMARK_WIDTH, break_on_hyphens=False))


def _axis(title: str, lines: Sequence[Line], rounds: bool, foot: float = MARGIN) -> tuple[Scale, float]:
    """The axis that these lines need, with a share `foot` of it left free below, and the unit of its `warp`.

    It is y ↦ y over episodes, where a constant rate must be a straight line, and logarithmic over rounds, whose axis is
    so too.
    """
    largest = max(map(_magnitude, lines), default=0.0)
    unit = 10.0 ** math.floor(math.log10(largest)) / 10**DECADES if rounds and largest > 0 else 0.0
    curves = [y for line in lines for y in (line.curve.mean, line.curve.low, line.curve.high, line.curve.runs.ravel())]
    drawn = np.concatenate([[0.0], *(warp(y, unit) for y in curves)])
    low, high = float(np.nanmin(drawn)), float(np.nanmax(drawn))
    if high - low <= ROUNDING:
        high = low + 1.0  # all lines are zero: an axis is still needed
    ends = low - foot * (high - low), high + MARGIN * (high - low)
    if not unit:
        return Scale.linear(title, *ends, NUM_TICKS), unit
    powers = unit * 10.0 ** np.arange(math.ceil(max(-low, high)) + 1)
    ticks = ((float(warp(y, unit)), f"{y:,g}") for y in np.concatenate([-powers[::-1], [0.0], powers]))
    crowd = CROWD * (ends[1] - ends[0])  # the first decade on either side of 0 may lie too near to it
    inside = tuple((at, said) for at, said in ticks if low <= at <= ends[1] and (at == 0 or abs(at) >= crowd))
    return Scale(f"{title}, logarithmic", *ends, inside), unit


def warp(y: Array, unit: float) -> Array:
    """sign(y) log₁₀(1 + |y|/unit), which keeps 0 and signs, or y itself where the unit is 0."""
    return np.sign(y) * np.log10(1 + np.abs(y) / unit) if unit else y


def _magnitude(line: Line) -> float:
    return float(np.abs(line.curve.mean).max())


def _is_zero(line: Line) -> bool:
    return _magnitude(line) <= ROUNDING * int(line.curve.episodes[-1])


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

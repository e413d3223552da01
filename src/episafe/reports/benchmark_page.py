"""The benchmark as a page: who wins where, every agent on every set, the frontier, growth, time, the reference."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from episafe.registry import REGISTRY
from episafe.reports.findings import plural
from episafe.reports.labels import name
from episafe.reports.metrics import Interval
from episafe.reports.page_frame import render
from episafe.reports.pictures import Dots, Mark, Picture, Polyline, Scale
from episafe.reports.tables import SAFE_MEANS, latex_table, number, plus_minus

Row = Mapping[str, Any]
Sets = Mapping[str, tuple[str, str]]  # kind and environment of each set
LeftOut = Mapping[tuple[str, str], str]
ALIKE = 6  # digits to which two means are the same
LEAST, MOST = -0.5, 1.5  # regret over the incumbent's that a picture shows
ABREAST = 5  # sets side by side: what fits a screen and a sheet of paper
TITLE = "The episafe benchmark"
COLOURS = ("#56B4E9", "#E69F00", "#8B4513", "#000000", "#CC79A7", "#0072B2")  # of agents that have none
DASHES = ("dash", "dot", "dashdot", "solid", "longdash", "longdashdot")
KINDS = {
    "known signals": "Reward and utility are told, transitions are learned, one constraint.",
    "exogenous": "Real problems whose chance does not depend on what is done.",
    "small slack": "The incumbent is hardly safe: ξ is a twentieth of its utility, or less.",
    "two constraints": "Both must be kept; agents for one constraint only cannot take part.",
    "learned signals": "Neither reward nor utility is told: both are seen in episodes only.",
}
PROVED = {
    "zero": "its theorem: zero violation", "hard": "its theorem: hard", "soft": "its theorem: soft", "": "no theorem",
}  # fmt: skip
MATRIX_KEY = (
    "Each cell: regret over that of the incumbent for ever, mean ± half of the 95 % interval over problems (1 is never "
    "to leave the incumbent, 0 is the optimum from the first episode, below 0 is reward that was taken unsafely); how "
    "far behind the best agent without violation, paired by problem; the episode at which half of the way from the "
    "incumbent’s reward to the optimum is made, median. ✗ names the problems in which some episode violates. A "
    "frame is the best of its column, as above; – was not run."
)
READING = (
    ("Violation", "by the exact expected utility of every deployed policy; 1e-9 is allowed for rounding."),
    ("Multipliers", "of each agent’s bonuses were chosen on tuning seeds; no seed of this page was used for that. With "
     "another multiplier than 1 nothing is proved of an agent, whatever its theorem says; certified agents (by "
     "observation, fresh data, a box) have none and are proved at 95 %."),
    ("Its theorem", "what is proved of its violations with its theorem’s constants. Zero violation: no episode "
     "violates; hard: the sum of violations grows more slowly than the number of episodes; soft: the same, where safe "
     "episodes may make up for unsafe ones."),
    ("Half of the way", "the first episode whose policies, over the next hundred or a tenth of the run, earn on "
     "average half of what separates incumbent and optimum."),
    ("Exponents", "slopes of ln regret in the logarithm of what is varied, least squares, problem by problem; with few "
     "values and few problems they say which way and roughly how much."),
)  # fmt: skip


def to_html(
    rows: Sequence[Row],
    reference: Sequence[Row],
    frontier: Sequence[Row],
    exponents: Sequence[Row],
    sets: Sets,
    left_out: LeftOut,
    size: str,
) -> str:
    """The whole page."""
    return render(
        "benchmark.html",
        title=TITLE,
        safe_means=SAFE_MEANS,
        size=size,
        warnings=_warnings(rows),
        best=_best(rows, sets),
        matrix_key=MATRIX_KEY,
        matrices=_matrices(rows, sets, left_out),
        frontier=_frontier(frontier),
        frontier_said="Each agent at its multiplier (full dot) and at others around it, on the problems of this page, "
        "which chose none of them. Further left is less violation, further down less regret. Beyond "
        f"{LEAST} and {MOST} it is drawn at the edge.",
        scaling=_growth(exponents),
        scaling_legend=_growth_legend(exponents),
        scaling_said=_scaling_said(exponents),
        exponents=_exponents(exponents),
        cost=_cost(rows),
        cost_said="Seconds of the processor for 10,000 episodes, in proportion to the fastest run here, and what a "
        "checkpoint of the agent holds; over sets.",
        **_beside(rows, reference),
        reading=READING,
        left_out=[f"{name(agent)} on {one}: {why}" for (agent, one), why in left_out.items()],
    )


def to_latex(rows: Sequence[Row]) -> str:
    """The table for a paper, with the rules of the booktabs package."""
    head = ("Set", "Agent", "Problems", "Episodes", "Violating", "Regret", "Half of the way")
    lines = [
        (row["set"], name(row["agent"]), str(row["problems"]), f"{row['episodes']:,}",
         str(row["violating"]), _regret(row), _episode(row["half_way"]))
        for row in rows
    ]  # fmt: skip
    return latex_table(["Regret is over that of the incumbent for ever.", SAFE_MEANS], head, lines, 2)


def _warnings(rows: Sequence[Row]) -> list[str]:
    few = min((row["problems"] for row in rows), default=0)
    broken = [row for row in rows if row["violating"] and REGISTRY[row["agent"]].proved == "zero"]
    where = ", ".join(f"{name(row['agent'])} on {row['set']}" for row in broken)
    wide = f"As few as {plural(few, 'problem')} a set: intervals are wide, and no violation on them proves little."
    violate = f"Agents with a theorem of zero violation that violate: {where}."
    return [said for said, holds in ((wide, few < 10), (violate, broken)) if holds]


def _regret(row: Row) -> str:
    return plus_minus(Interval(row["regret"], row["regret_half_width"]))


def _episode(at: float) -> str:
    return "never" if math.isinf(at) else f"{at:,.0f}"


def best_of(rows: Sequence[Row], one: str) -> Row | None:
    """The row of least regret among agents that promise never to violate, and did not; the incumbent's if alike."""
    kept = [
        row for row in rows if row["set"] == one and not row["violating"] and REGISTRY[row["agent"]].proved == "zero"
    ]
    return min(kept, key=lambda row: (round(row["regret"], ALIKE), row["agent"] != "incumbent"), default=None)


def _best(rows: Sequence[Row], sets: Sets) -> dict[str, Any]:
    lines = []
    for one, (kind, _) in sets.items():
        at = [row for row in rows if row["set"] == one]
        if not at:
            continue
        winner = best_of(rows, one)
        violated = sum(bool(row["violating"]) for row in at)
        said = [name(winner["agent"]), _regret(winner), _episode(winner["half_way"])] if winner else ["none", "–", "–"]
        lines.append([one, kind, *said, f"{violated} of {len(at)}"])
    regret, half = "Regret (incumbent: 1)", "Half of the way at episode"
    head = ("Set", "Kind", "Best without violation", regret, half, "Agents that violate")
    return {"headings": head, "rows": lines}


def _matrices(rows: Sequence[Row], sets: Sets, left_out: LeftOut) -> list[dict[str, Any]]:
    found = []
    for kind, said in KINDS.items():
        names = [one for one, (of, _) in sets.items() if of == kind and any(row["set"] == one for row in rows)]
        agents = [agent for agent in REGISTRY if any(row["agent"] == agent and row["set"] in names for row in rows)]
        parts = [_matrix(rows, agents, names[at : at + ABREAST], left_out) for at in range(0, len(names), ABREAST)]
        if names:
            found.append({"title": kind[:1].upper() + kind[1:], "said": said, "parts": parts})
    return found


def _matrix(rows: Sequence[Row], agents: Sequence[str], sets: Sequence[str], left_out: LeftOut) -> dict[str, Any]:
    """Agents by sets, as many as stand side by side; without agents that took no part in these."""
    cells = {agent: [_cell(rows, agent, one, left_out) for one in sets] for agent in agents}
    lines = [
        {"agent": name(agent), "proved": PROVED[REGISTRY[agent].proved], "cells": theirs}
        for agent, theirs in cells.items()
        if any(cell["lines"] for cell in theirs)
    ]
    return {"sets": sets, "rows": lines}


def _cell(rows: Sequence[Row], agent: str, one: str, left_out: LeftOut) -> dict[str, Any]:
    row = next((row for row in rows if row["agent"] == agent and row["set"] == one), None)
    if row is None:
        return {"lines": [], "why": "slow" if (agent, one) in left_out else "–"}
    best = best_of(rows, one)
    lines = [f"{'✗' if row['violating'] else '✓'} {_regret(row)}"]
    if row["violating"]:
        lines.append(f"violates in {row['violating']} of {row['problems']}")
    elif best is not row and not math.isnan(row["behind"]):
        lines.append(f"behind {plus_minus(Interval(row['behind'], row['behind_half_width']))}")
    lines.append(f"half: {_episode(row['half_way'])}")
    return {"lines": lines, "unsafe": bool(row["violating"]), "best": best is row}


def _looks(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a dash for each agent or label, no two alike: those of the registry, as in all pictures, first."""
    own = {said: (entry.colour, entry.dash) for agent, entry in REGISTRY.items() for said in (agent, entry.label)}
    known = {label: own[label] for label in labels if label in own and own[label][0]}
    rest = ((colour, dash) for dash in DASHES for colour in COLOURS if (colour, dash) not in known.values())
    return {label: known[label] if label in known else next(rest) for label in labels}


def _frontier(points: Sequence[Row]) -> list[Picture]:
    """Regret against the share of episodes that violate, an agent a line over its multipliers."""
    looks = _looks(list(dict.fromkeys(point["agent"] for point in points)))
    return [
        _frontier_of([point for point in points if point["set"] == one], one, looks)
        for one in dict.fromkeys(point["set"] for point in points)
    ]


def _frontier_of(points: Sequence[Row], one: str, looks: Mapping[str, tuple[str, str]]) -> Picture:
    marks = list[Mark]()
    for agent, (colour, dash) in looks.items():
        of = sorted(
            (point for point in points if point["agent"] == agent), key=lambda point: float(point["multiplier"])
        )
        x = np.sqrt([point["violating_share"] for point in of])
        y = np.clip([point["regret"] for point in of], LEAST, MOST)
        marks.append(Polyline(x, y, colour, name(agent), dash, width=1.2))
        marks.append(Dots(x, y, colour, hollow=True))
        chosen = [i for i, point in enumerate(of) if point["chosen"]]
        marks.append(Dots(x[chosen], y[chosen], colour, size=3.4))
    ticks = tuple((math.sqrt(share), f"{share:.0%}") for share in (0, 0.01, 0.1, 0.25, 0.5, 1))
    across = Scale("share of episodes that violate (root scale)", -0.02, 1.02, ticks)
    return Picture(
        one, across, Scale.linear("regret over the incumbent’s", LEAST - 0.05, MOST + 0.05), marks, height=320
    )


def _growth(exponents: Sequence[Row]) -> list[Picture]:
    looks = _looks(_labels(exponents))
    return [
        _growth_of([one for one in exponents if one["axis"] == axis], axis, looks)
        for axis in dict.fromkeys(one["axis"] for one in exponents)
    ]


def _labels(exponents: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(one["label"] for one in exponents))


def _growth_legend(exponents: Sequence[Row]) -> list[Mark]:
    nothing = np.empty(0)
    return [
        Polyline(nothing, nothing, colour, label, dash) for label, (colour, dash) in _looks(_labels(exponents)).items()
    ]


def _growth_of(lines: Sequence[Row], axis: str, looks: Mapping[str, tuple[str, str]]) -> Picture:
    marks = list[Mark]()
    values = np.array([value for line in lines for value in line["regret"] if value > 0])
    at = sorted({x for line in lines for x in line["x"]})
    for line in lines:
        colour, dash = looks[line["label"]]
        y = np.log10(np.maximum(line["regret"], 1e-3))
        marks.append(Polyline(np.log10(line["x"]), y, colour, line["label"], dash, marker="circle"))
    low, high = (float(np.log10(values.min())), float(np.log10(values.max()))) if len(values) else (0.0, 1.0)
    inside = [v for k in range(-3, 8) for v in (10.0**k, 3 * 10.0**k) if low - 0.1 <= math.log10(v) <= high + 0.1]
    down = Scale("regret, log scale", low - 0.1, high + 0.1, tuple((math.log10(v), number(v)) for v in inside))
    ends = math.log10(at[0]) - 0.04, math.log10(at[-1]) + 0.04
    across = Scale(f"{axis}, log scale", *ends, tuple((math.log10(x), f"{x:,g}") for x in at))
    return Picture(f"Regret by {axis}", across, down, marks)


def _scaling_said(exponents: Sequence[Row]) -> str:
    problems = max((one["problems"] for one in exponents), default=0)
    return (
        f"Total regret, mean of {problems} problems at most. For 1/ξ the incumbent earns the least that a policy "
        "of that slack can, so that what there is to gain stays; ξ is in units of the largest slack. The constants "
        "that are shipped have no ξ in the compensation B_†, which in the theorem grows as 1/ξ; one line lets it. "
        "✗: some run violates."
    )


def _exponents(exponents: Sequence[Row]) -> dict[str, Any]:
    axes = list(dict.fromkeys(one["axis"] for one in exponents))
    found = {(one["label"], one["axis"]): one for one in exponents}
    lines = [[label, *(_exponent(found.get((label, axis))) for axis in axes)] for label in _labels(exponents)]
    return {"headings": ("Agent", *(f"exponent of {axis}" for axis in axes)), "rows": lines}


def _exponent(one: Row | None) -> str:
    if one is None or math.isnan(one["exponent"]):
        return "–"
    half = one["half_width"]
    said = f"{one['exponent']:.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")
    return said + (" ✗" if one["violating"] else "")


def _cost(rows: Sequence[Row]) -> dict[str, Any]:
    lines = []
    for agent in REGISTRY:
        of = [row for row in rows if row["agent"] == agent]
        if of:
            seconds, size = [row["seconds"] for row in of], [row["state_bytes"] / 1024 for row in of]
            worst = max(of, key=lambda row: float(row["seconds"]))
            lines.append([
                name(agent), f"{len(of)}", number(float(np.median(seconds))),
                f"{number(worst['seconds'])} ({worst['set']})", number(float(np.median(size))), number(max(size)),
            ])  # fmt: skip
    head = ("Agent", "Sets", "Seconds, median", "Seconds, most", "KiB, median", "KiB, most")
    return {"headings": head, "rows": lines}


def _beside(rows: Sequence[Row], reference: Sequence[Row]) -> dict[str, Any]:
    """Which rows differ from those of the reference that were run as long, by more than both intervals together."""
    theirs = {(row["set"], row["agent"], row["episodes"]): row for row in reference}
    pairs = [(row, theirs[at]) for row in rows if (at := (row["set"], row["agent"], row["episodes"])) in theirs]
    differing = [
        [one["set"], name(one["agent"]), _regret(one), _regret(other),
         f"{one['violating']} of {one['problems']}", f"{other['violating']} of {other['problems']}"]
        for one, other in pairs
        if not _agree(one, other)
    ]  # fmt: skip
    said = (
        f"{len(pairs)} of {len(rows)} rows are in the reference results at as many episodes; {len(differing)} of them "
        "differ: where the problems are the same ones in the fourth digit, elsewhere by more than both intervals."
    )
    return {"reference_said": said, "differing": differing}


def _agree(one: Row, other: Row) -> bool:
    if one["problems"] == other["problems"]:  # the same runs: the same figures, on the same kind of processor
        return math.isclose(one["regret"], other["regret"], rel_tol=1e-4, abs_tol=1e-4)
    width = np.nan_to_num(one["regret_half_width"], nan=np.inf) + np.nan_to_num(other["regret_half_width"], nan=np.inf)
    return bool(abs(one["regret"] - other["regret"]) <= width)

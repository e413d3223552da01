"""The report as one HTML file that opens offline: outcome first, then charts, numbers, and how to read them."""

from collections.abc import Mapping, Sequence
from typing import Any

from episafe.registry import REGISTRY
from episafe.reports import findings
from episafe.reports.labels import are_rounds, in_rounds, label, name, place_title, replanning
from episafe.reports.metrics import Summary
from episafe.reports.page_frame import render
from episafe.reports.panels import Chart, size
from episafe.reports.tables import NUM_WORDS, SAFE_MEANS, beforehand, cells, headings, plus_minus

TITLE, BANDIT_TITLE = "Safe exploration: regret and violation", "Safe linear bandits: regret and violation"
MATRIX_KEY = (
    "Each cell: the share of episodes that violate the constraint; regret at the last episode, mean ± 95 % interval; "
    "the share of episodes in which the incumbent acted, alone or drawn from a mixture, where the agent has one."
)
NUM_PLACE = 2  # columns of the table that name the place
Places = Mapping[tuple[str, str], Sequence[Summary]]


def to_html(
    summaries: Sequence[Summary],
    charts: Sequence[Chart],
    software: Mapping[str, Sequence[str]],
    left_out: Mapping[str, int],
    bandits: Mapping[str, Any] | None = None,
    runs: Mapping[str, Any] | None = None,
) -> str:
    """The whole report; `left_out` says how many runs are not in it, by reason; `bandits` is a section of its own, and
    `runs` are those without exact values."""
    by_place = {chart.place: [one for one in summaries if one.group.place == chart.place] for chart in charts}
    versions = ", ".join(f"{package} {' and '.join(found)}" for package, found in software.items())
    return render(
        "report.html",
        title=BANDIT_TITLE if are_rounds(summaries) else TITLE,
        **_headline(summaries, by_place, left_out),
        places=[place_title(place) for place in by_place],
        matrix=_matrix(summaries, by_place),
        charts=[_problem(chart, by_place[chart.place]) for chart in charts],
        drawn_as=_drawn_as(charts),
        bandits=bandits,
        **(runs or {"runs": [], "more": ""}),
        numbers=_numbers(by_place),
        **_notes(summaries),
        versions=versions or "The records do not name versions.",
        settings=[_provenance(summary) for summary in summaries],
    )


def _headline(summaries: Sequence[Summary], by_place: Places, left_out: Mapping[str, int]) -> dict[str, Any]:
    safe, unsafe = findings.safe_and_unsafe(summaries)
    problems = findings.plural(len(by_place), "problem family").replace("familys", "families")
    caveats = findings.caveat(summaries), " ".join(beforehand(summaries)), findings.few_runs(summaries)
    variants = dict.fromkeys(variant for _, variant in by_place if variant in findings.VARIANTS)
    left = [f"{findings.plural(count, 'run')} left out: {why}." for why, count in left_out.items() if count]
    return {
        "safe_means": in_rounds(SAFE_MEANS, summaries),
        "size": f"{problems}, {size(summaries)} for each agent",
        "safe": safe,
        "unsafe": unsafe,
        "caveats": [caveat for caveat in caveats if caveat],
        "left_out": left,
        "keys": [
            in_rounds(MATRIX_KEY, summaries),
            *(f"The {variant} variant {findings.VARIANTS[variant]}" for variant in variants),
        ],
    }


def _matrix(summaries: Sequence[Summary], by_place: Places) -> list[dict[str, Any]]:
    """Agents down, problems across; a cell says safe or not, at what regret, and how much was the incumbent's."""
    rows = []
    for row in dict.fromkeys(map(_matrix_row, summaries)):
        shown = [[s for s in at if _matrix_row(s) == row] for at in by_place.values()]
        agent, level, changes = row
        rows.append({"agent": name(agent), "level": level, "changes": changes, "cells": list(map(_cell, shown))})
    return rows


def _matrix_row(summary: Summary) -> tuple[str, str, str]:
    return summary.group.agent, summary.group.level if summary.has_incumbent else "", summary.group.changes


def _cell(summaries: Sequence[Summary]) -> dict[str, Any]:
    """What one agent did on one problem; empty where it was not run."""
    if not summaries:
        return {}
    unsafe = any(summary.total_violating_episodes for summary in summaries)
    return {"unsafe": unsafe, "outcomes": list(map(_cell_lines, summaries))}


def _cell_lines(summary: Summary) -> list[str]:
    violating = findings.share(summary.violating_episodes.mean, summary.num_episodes)
    lines = [f"✗ violates in {violating}" if summary.total_violating_episodes else "✓ no violation"]
    lines.append(f"regret {plus_minus(summary.regret)}")
    if summary.has_incumbent:
        lines.append(findings.reliance(summary))
    if not summary.group.replans_every_episode:
        lines.append(f"replans by {replanning(summary)}")
    return lines


def _drawn_as(charts: Sequence[Chart]) -> str:
    alone = [bool(len(curve.runs)) for chart in charts if not chart.is_crowded for curve in chart.curves]
    few = "Thin lines are single runs, thick ones their means; too few for an interval." if any(alone) else ""
    enough = "" if all(alone) else "Lines are means over runs, bands 95 % t-intervals."
    crowded = "Where lines are too many to tell apart, they are means alone: all settings of an agent look alike."
    said = enough, few, crowded if any(chart.is_crowded for chart in charts) else ""
    return " ".join(filter(None, said))


def _problem(chart: Chart, at: Sequence[Summary]) -> dict[str, Any]:
    return {
        "title": chart.title,
        "verdict": [] if chart.is_crowded else findings.verdict(at),  # the table above has a row a setting
        "best": findings.lowest_regret(at),
        "warnings": findings.warnings(at),
        "pictures": chart.panels,
        "legend": chart.panels[0].legend,
    }


def _numbers(by_place: Places) -> dict[str, Any]:
    summaries = [summary for at in by_place.values() for summary in at]
    last = in_rounds("At the last episode", summaries)
    return {
        "sub": f"{last}: mean ± half-width of the 95 % t-interval over runs.",
        "headings": headings(summaries)[NUM_PLACE:],
        "num_words": NUM_WORDS - NUM_PLACE,
        "places": [(place_title(place), [cells(s)[NUM_PLACE:] for s in at]) for place, at in by_place.items()],
    }


def _notes(summaries: Sequence[Summary]) -> dict[str, Any]:
    agents = dict.fromkeys(summary.group.agent for summary in summaries)
    levels = dict.fromkeys(summary.group.level for summary in summaries if summary.has_incumbent)
    variants = dict.fromkeys(summary.group.variant for summary in summaries)
    meant = {level: in_rounds(words, summaries) for level, words in findings.LEVELS.items()}
    stories = {agent: entry.story for agent, entry in REGISTRY.items()}
    lists = [
        ("What is compared", [f"{name(x)}: {stories[x]}" for x in agents if stories.get(x)]),
        ("Levels of the check", [f"{x}: {meant[x]}" for x in levels if x in meant]),
        ("Variants", [f"{x}: {findings.VARIANTS[x]}" for x in variants if x in findings.VARIANTS]),
    ]
    return {"lists": [entry for entry in lists if entry[1]], "reading": findings.reading(summaries)}


def _provenance(summary: Summary) -> str:
    """Seeds and settings, numbers in six digits: run.toml of each run has them to the last bit."""
    seeds = ", ".join(map(str, summary.seeds)) or "not recorded"
    said = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in summary.settings.items()}
    settings = "".join(f"; {key} = {value}" for key, value in said.items() if value)
    return f"{place_title(summary.group.place)}, {label(summary)}: seeds of the problems {seeds}{settings}"

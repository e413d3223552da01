"""The summary as a table: CSV with every digit, Markdown and HTML cells with as many as the interval supports."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict

from episafe.reports.caveats import beforehand
from episafe.reports.labels import check, in_rounds, name, replanning
from episafe.reports.metrics import Interval, Summary
from episafe.runs.record import ROUNDING

METRICS = (
    "regret",
    "violation",
    "cancelling_violation",
    "violating_episodes",
    "worst_violation",
    "incumbent_deployments",
    "plans",
    "episodes_per_second",
)
COUNTS = ("num_runs", "num_episodes", "total_violating_episodes", "violating_runs", "largest_violation")
MAX_DECIMALS = 4
HEADINGS = (
    "Environment",
    "Variant",
    "Agent",
    "Check",
    "Replans",
    "Runs",
    "Episodes",
    "Regret",
    "Violation (hard)",
    "Violation (cancelling)",
    "Violating episodes",
    "Worst episode (mean over runs)",
    "Worst episode (of all runs)",
    "Incumbent deployments",
    "Plans",
    "Episodes/s",
)
NUM_WORDS = 5  # columns of HEADINGS that hold words


def to_csv(summaries: Sequence[Summary]) -> str:
    """A line a summary; floats as `repr` writes them, so that reading them back gives the same bits."""
    text = io.StringIO()
    rows = [_csv_row(summary) for summary in summaries]
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(summaries: Sequence[Summary]) -> str:
    """A table for people, `1813 ± 52`: mean and 95 % t-interval over runs; notes below it."""
    ruler = ["---"] * NUM_WORDS + ["---:"] * (len(HEADINGS) - NUM_WORDS)
    above = [line for sentence in beforehand(summaries) for line in (sentence, "")]
    lines = above + [_markdown_line(row) for row in (headings(summaries), ruler, *map(cells, summaries))]
    notes = [f"- {' '.join(cells(summary)[:NUM_WORDS])}: {note}" for summary in summaries for note in summary.notes]
    return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def headings(summaries: Sequence[Summary]) -> list[str]:
    """HEADINGS, in rounds for bandits."""
    return [in_rounds(heading, summaries) for heading in HEADINGS]


def cells(summary: Summary) -> list[str]:
    """One row under HEADINGS."""
    group = summary.group
    return [
        group.where,
        group.variant or "–",
        name(group.agent),
        check(summary),
        replanning(summary),
        f"{summary.num_runs:,}",
        f"{summary.num_episodes:,}",
        plus_minus(summary.regret),
        plus_minus(summary.violation),
        plus_minus(summary.cancelling_violation),
        plus_minus(summary.violating_episodes),
        plus_minus(summary.worst_violation),
        number(summary.largest_violation),
        plus_minus(summary.incumbent_deployments) if summary.has_incumbent else "–",
        plus_minus(summary.plans),
        plus_minus(summary.episodes_per_second),
    ]


def plus_minus(interval: Interval) -> str:
    """Mean ± half-width, both to the half-width's second digit; the mean alone where there is no half-width."""
    mean, half_width = interval.mean, interval.half_width
    if math.isnan(mean):
        return "–"
    if math.isnan(half_width):
        return number(mean)
    if half_width < 10.0**-MAX_DECIMALS:
        return f"{number(mean)} ± {number(half_width)}"
    decimals = min(max(1 - math.floor(math.log10(half_width)), 0), MAX_DECIMALS)
    return f"{_fixed(mean, decimals)} ± {_fixed(half_width, decimals)}"


def number(value: float) -> str:
    """Four significant digits; 0 only where the value is 0 up to rounding, so that no small violation is hidden."""
    size = abs(value)
    if size < ROUNDING:
        return "0"
    if size < 10.0**-MAX_DECIMALS:
        return f"{value:.1e}"
    decimals = min(max(3 - math.floor(math.log10(size)), 0), MAX_DECIMALS)
    text = _fixed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # + 0.0 turns −0 into 0


def _csv_row(summary: Summary) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = asdict(summary.group)
    row |= {count: getattr(summary, count) for count in COUNTS}
    for metric in METRICS:
        interval: Interval = getattr(summary, metric)
        row |= {f"{metric}_mean": interval.mean, f"{metric}_half_width": interval.half_width}
    return row | {"notes": "; ".join(summary.notes)}


def _markdown_line(row: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"

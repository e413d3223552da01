"""The summary as a table: CSV with every digit, Markdown and HTML cells with as many as the interval supports."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields

from episafe.plain_text import csv_cell, latex_cell, markdown_cell
from episafe.reports.labels import check, in_rounds, label, name, replanning, title
from episafe.reports.metrics import Interval, Summary
from episafe.runs.record import ROUNDING
from episafe.stats import rate_interval

SAFE_MEANS = (
    "What must be kept is the expected utility: an episode violates if the expected total utility of the policy "
    "deployed in it is below the threshold, whatever the episode itself brought."
)
CAPTION = (
    "Regret: mean over runs ± half of its 95 % t-interval{after}. Violating runs: those with any violating episode; in "
    "brackets how many of such runs violate, with 95 % confidence (Clopper–Pearson). Incumbent acted: in that share of "
    "all episodes."
)
METRICS = [field.name for field in fields(Summary) if field.type is Interval]
COUNTS = ("num_runs", "num_episodes", "total_violating_episodes", "violating_runs", "largest_violation")
MAX_DECIMALS = 4
FROM_MEMORY = ("oplb", "safe-lucb", "roful")  # agents whose papers' texts were not at hand
NUM_WORDS = 5  # columns that hold words


def to_csv(summaries: Sequence[Summary]) -> str:
    """A line a summary."""
    return csv_text([_csv_row(summary) for summary in summaries])


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """A line a row; numbers are plain decimals that read back to the same bits, and words are no formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    writer.writerows([csv_cell(value) for value in row.values()] for row in rows)
    return text.getvalue()


def to_markdown(summaries: Sequence[Summary]) -> str:
    """A table for people, `1813 ± 52`: mean and 95 % t-interval over runs; notes below it."""
    ruler = ["---"] * NUM_WORDS + ["---:"] * (len(COLUMNS) - NUM_WORDS)
    sentences = [in_rounds(SAFE_MEANS, summaries), *beforehand(summaries)]
    above = [line for sentence in sentences for line in (markdown_cell(sentence), "")]
    rows = (headings(summaries), ruler, *map(cells, summaries))
    lines = [*above, *(f"| {' | '.join(map(markdown_cell, row))} |" for row in rows)]
    notes = [f"{' '.join(cells(summary)[:NUM_WORDS])}: {note}" for summary in summaries for note in summary.notes]
    said = [f"- {markdown_cell(note)}" for note in notes]
    return "\n".join([*lines, "", *said, ""] if said else [*lines, ""])


def to_latex(summaries: Sequence[Summary]) -> str:
    """The columns that a paper shows, with a caption and the rules of the booktabs package; what else must be known as
    comments. All other numbers are in the CSV."""
    lengths, varied = {s.num_episodes for s in summaries}, any(s.group.variant for s in summaries)
    says_nothing = {"Variant": not varied, "Episodes": len(lengths) == 1}
    shown = {heading: cell for heading, cell in IN_PAPERS.items() if not says_nothing.get(heading)}
    after = f" after {min(lengths):,} episodes" if len(lengths) == 1 else ""
    said = [*beforehand(summaries), *(f"{s.group.where}, {label(s)}: {note}" for s in summaries for note in s.notes)]
    caption = in_rounds(f"{CAPTION.format(after=after)} {SAFE_MEANS}", summaries)
    body = [[cell(summary) for cell in shown.values()] for summary in summaries]
    table = latex_table(said, [in_rounds(heading, summaries) for heading in shown], body, 2 + varied)
    return "\n".join([
        r"\begin{table}", r"\centering", rf"\caption{{{latex_cell(caption)}}}", table.rstrip(), r"\end{table}", "",
    ])  # fmt: skip


def latex_table(said: Sequence[str], head: Sequence[str], body: Sequence[Sequence[str]], num_words: int) -> str:
    """A table with the rules of booktabs; what must be known of it as comments, `num_words` columns of words first."""
    first, *rest = [" & ".join(map(latex_cell, line)) + r" \\" for line in (head, *body)]
    return "\n".join([
        *(f"% {latex_cell(sentence)}" for sentence in said),
        rf"\begin{{tabular}}{{{'l' * num_words}{'r' * (len(head) - num_words)}}}",
        r"\toprule", first, r"\midrule", *rest, r"\bottomrule", r"\end{tabular}", "",
    ])  # fmt: skip


def headings(summaries: Sequence[Summary]) -> list[str]:
    """The headings of COLUMNS, in rounds for bandits."""
    return [in_rounds(heading, summaries) for heading in COLUMNS]


def cells(summary: Summary) -> list[str]:
    """One row under these headings."""
    return [cell(summary) for cell in COLUMNS.values()]


def beforehand(summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know before the first number: what an agent is told besides, is written from, or assumes."""
    told, assumed = (
        {name(s.group.agent): s.settings[key] for s in summaries if s.settings.get(key)}
        for key in ("told_besides", "level_assumes")
    )
    found = [f"{agent} is told {said}, which the others are not." for agent, said in told.items()]
    memory = dict.fromkeys(name(s.group.agent) for s in summaries if s.group.agent in FROM_MEMORY)
    if memory:
        found.append(f"From memory or summaries of a paper, not checked against its text: {', '.join(memory)}.")
    return found + [f"The level of {agent} also needs that {said}." for agent, said in assumed.items()]


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


def _violating(summary: Summary) -> str:
    """The runs that violate, and what share of all such runs may, with 95 % confidence."""
    low, high = rate_interval(summary.violating_runs, summary.num_runs)
    share = f"≤ {100 * high:.1f} %" if summary.violating_runs == 0 else f"{100 * low:.1f}–{100 * high:.1f} %"
    return f"{summary.violating_runs:,} ({share})"


def _incumbents(summary: Summary) -> str:
    """The share of its episodes in which the incumbent acted."""
    used = summary.incumbent_episodes.mean
    return "–" if math.isnan(used) else f"{number(100 * used / summary.num_episodes)} %"


def _speed(value: float) -> str:
    """Two digits of the mean: how busy the machine was changes more than that."""
    return "–" if math.isnan(value) else f"{float(f'{value:.2g}'):,.0f}"


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # + 0.0 turns −0 into 0


def _csv_row(summary: Summary) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = asdict(summary.group)
    row |= {count: getattr(summary, count) for count in COUNTS}
    for metric in METRICS:
        interval: Interval = getattr(summary, metric)
        row |= {f"{metric}_mean": interval.mean, f"{metric}_half_width": interval.half_width}
    return row | {"notes": "; ".join(summary.notes)}


COLUMNS: dict[str, Callable[[Summary], str]] = {
    "Environment": lambda s: s.group.where,
    "Variant": lambda s: s.group.variant or "–",
    "Agent": title,
    "Check": check,
    "Replans": replanning,
    "Runs": lambda s: f"{s.num_runs:,}",
    "Episodes": lambda s: f"{s.num_episodes:,}",
    "Regret": lambda s: plus_minus(s.regret),
    "Violation (hard)": lambda s: plus_minus(s.violation),
    "Violation (cancelling)": lambda s: plus_minus(s.cancelling_violation),
    "Violating episodes": lambda s: plus_minus(s.violating_episodes),
    "Worst episode (mean over runs)": lambda s: plus_minus(s.worst_violation),
    "Worst episode (of all runs)": lambda s: number(s.largest_violation),
    "Incumbent acted": lambda s: plus_minus(s.incumbent_episodes),
    "Plans": lambda s: plus_minus(s.plans),
    "Episodes/s": lambda s: _speed(s.episodes_per_second.mean),
}
IN_PAPERS: dict[str, Callable[[Summary], str]] = {
    **{heading: COLUMNS[heading] for heading in ("Environment", "Variant")},
    "Agent": label,
    **{heading: COLUMNS[heading] for heading in ("Runs", "Episodes", "Regret")},
    "Violating runs": _violating,
    "Incumbent acted": _incumbents,
}

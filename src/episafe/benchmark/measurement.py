"""The benchmark end to end: what is missing is run, then rows, scaling and one page are written."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from episafe.benchmark import results, scaling
from episafe.benchmark.comparison import BenchmarkJob, Comparison
from episafe.benchmark.problem_sets import PROBLEM_SETS, VERSION
from episafe.experiments import progress
from episafe.experiments.comparisons import RECORDS, Place, claim, run_batches
from episafe.experiments.job import AnyJob
from episafe.reports import benchmark_page
from episafe.reports.metrics import Interval
from episafe.reports.tables import csv_text, plus_minus
from episafe.storage.atomic_files import write_text
from episafe.storage.json_values import plain

FRONTIER, SCALING = "frontier", "scaling"  # folders of runs at other multipliers, and for exponents
QUICK_SCALING, FULL_SCALING = (2, 1000), (20, 10_000)  # problems, episodes
ROWS, EXPONENTS, PAGE = "results.csv", "scaling.csv", "benchmark.html"
LATEX = "results.tex"


def benchmark(quick: bool, place: Place, latex: bool = False) -> tuple[dict[str, Any], dict[str, str]]:
    """Run what is missing, write results.csv, scaling.csv and benchmark.html.

    Returns what was found, and the failed jobs with their reasons.
    """
    compared, folder = results.planned(quick), place.folder
    size = QUICK_SCALING if quick else FULL_SCALING
    claim(folder, {"version": VERSION, "problems": size[0], "episodes": compared.num_episodes})
    batches: dict[str, Sequence[AnyJob]] = {
        RECORDS: compared.jobs(),
        FRONTIER: compared.frontier_jobs(),
        SCALING: scaling.jobs(*size),
    }
    failures = run_batches("episafe benchmark", compared.size(), batches, place)
    exponents = scaling.exponents(*size, folder / SCALING)
    found = _written(compared, exponents, folder, place.console)
    if latex:
        rows = results.from_csv((folder / ROWS).read_text())
        write_text(folder / LATEX, benchmark_page.to_latex([asdict(row) for row in rows]))
    return found, failures


def _written(compared: Comparison, exponents: list[scaling.Exponent], folder: Path, console: Console) -> dict[str, Any]:
    found = results.rows(_counted("reading the records", compared.jobs(), console), folder / RECORDS)
    points = results.points(_counted("reading the frontier", compared.frontier_jobs(), console), folder / FRONTIER)
    write_text(folder / ROWS, results.to_csv(found))
    write_text(folder / EXPONENTS, csv_text([asdict(one) for one in exponents]))
    page = benchmark_page.to_html(
        [asdict(row) for row in found],
        [asdict(row) for row in results.reference()],
        points,
        [asdict(one) for one in exponents],
        {name: (one.kind, one.env) for name, one in PROBLEM_SETS.items()},
        compared.left_out,
        compared.size(),
    )
    write_text(folder / PAGE, page)
    return {
        "version": VERSION,
        "page": str(folder / PAGE),
        "rows": [plain(asdict(row)) for row in found],  # null for never, and for what is not known
        "frontier": points,
        "scaling": [plain(asdict(one)) for one in exponents],
        "left_out": [{"agent": agent, "set": one, "reason": why} for (agent, one), why in compared.left_out.items()],
    }


def _counted(title: str, jobs: Sequence[BenchmarkJob], console: Console) -> Iterator[BenchmarkJob]:
    """The jobs, one after another, and how many of them were taken."""
    with progress.late_bar(title, console) as advance:
        for done, job in enumerate(jobs, 1):
            yield job
            advance(done / len(jobs))


def table(found: dict[str, Any]) -> Table:
    """The best agent without a violation on every set, for people."""
    title = "Of the incumbent's regret; best: of those without violation"
    shown = Table("set", "best", "regret", "half way", "violate", title=title)
    for name in dict.fromkeys(row["set"] for row in found["rows"]):
        of = [row for row in found["rows"] if row["set"] == name]
        unsafe = escape(f"{sum(bool(row['violating']) for row in of)} of {len(of)}")
        best = benchmark_page.best_of(of, name)
        if best is None:
            shown.add_row(name, "none", "–", "–", unsafe)
            continue
        width = math.nan if best["regret_half_width"] is None else best["regret_half_width"]
        regret = plus_minus(Interval(best["regret"], width))
        half = "never" if best["half_way"] is None else f"{best['half_way']:g}"
        shown.add_row(name, best["agent"], regret, half, unsafe)
    return shown

"""Experiments end to end, the paper's, that of bandits and sweeps of one's own: jobs, records, report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from episafe.errors import DamagedFile
from episafe.experiments import progress
from episafe.experiments.executors import DASK, TRUST, executor_on
from episafe.experiments.job import AnyJob
from episafe.experiments.specification import bandit_experiment, paper_experiment
from episafe.experiments.sweep import read_sweep
from episafe.experiments.worker_pool import run_jobs
from episafe.reports.report import write_report
from episafe.storage.atomic_files import write_text
from episafe.storage.regular_files import read_regular
from episafe.storage.toml_settings import to_toml

PLAN = "experiment.toml"
LARGEST_PLAN = 1 << 20  # bytes
Batches = Mapping[str, Sequence[AnyJob]]
RECORDS, SLACK = "records", "slack"  # folders of the comparison, and of the runs with other slacks


class Place(NamedTuple):
    """Where an experiment is run: the folder of its records and report, how many processes at most, on this machine
    ("local") or a cluster, and who is told how it goes."""

    folder: Path
    workers: int | None
    on: str
    console: Console


def reproduce(quick: bool, place: Place) -> dict[str, str]:
    """Run what is missing of the paper's experiments, write the report; returns the failed jobs with their reasons."""
    experiment = paper_experiment(quick)
    claim(place.folder, asdict(experiment))
    size = (
        f"{', '.join(experiment.agents)} on {', '.join(experiment.environments)} "
        f"({' and '.join(experiment.variants)}), {experiment.num_seeds} seeds of {experiment.num_episodes} episodes"
    )
    return perform("episafe paper", size, {RECORDS: experiment.jobs()}, place)


def compare(quick: bool, place: Place) -> dict[str, str]:
    """Run what is missing of the bandit experiments, write the report; returns the failed jobs with their reasons."""
    experiment = bandit_experiment(quick)
    claim(place.folder, asdict(experiment))
    size = (
        f"{', '.join(experiment.agents)} on {', '.join(experiment.environments)}, "
        f"{experiment.num_seeds} seeds of {experiment.num_rounds:,} rounds; slacks "
        f"{', '.join(f'{slack:g}' for slack in experiment.slacks)}"
    )
    batches = {RECORDS: experiment.jobs(), SLACK: experiment.slack_jobs()}
    return perform("episafe bandit", size, batches, place)


def sweep(file: Path, place: Place) -> dict[str, str]:
    """Run what is missing of a sweep, write the report; returns the failed jobs with their reasons.

    A sweep may be changed and run again into the same folder: what is there stays, and only what is new is run.
    """
    asked = read_sweep(file)
    batches = {RECORDS: asked.jobs()}
    return perform(f"episafe sweep: {asked.title}", asked.size(), batches, place)


def claim(folder: Path, experiment: Mapping[str, object]) -> None:
    """Write the plan into the folder, or refuse a folder that holds another experiment."""
    plan = to_toml({key: str(value) for key, value in experiment.items()})
    written = folder / PLAN
    if written.exists() and read_regular(written, LARGEST_PLAN) != plan.encode():
        raise ValueError(f"{folder} holds another experiment (see {written.name}); choose another --out or remove it")
    write_text(written, plan)


def perform(title: str, size: str, batches: Batches, place: Place) -> dict[str, str]:
    """`run_batches`, and write the report into their folder."""
    failures = run_batches(title, size, batches, place)
    if len(failures) < sum(map(len, batches.values())):
        with progress.late_bar("drawing and writing the report", place.console) as advance:
            said = _reported(place.folder, advance)
        place.console.print(escape(said), highlight=False, soft_wrap=True)
    return failures


def run_batches(title: str, size: str, batches: Batches, place: Place) -> dict[str, str]:
    """Run what is missing of some jobs, by the folder of their records; returns the failed jobs with their reasons."""
    folder, workers, on, console = place
    jobs = [job for batch in batches.values() for job in batch]
    console.print(f"{len(jobs)} runs: {size}", highlight=False)
    console.print("the first run on a machine compiles for about half a minute before anything moves", highlight=False)
    made, found = 0, 0
    failures: dict[str, str] = {}
    if on.startswith(DASK):
        console.print(TRUST, highlight=False)
    with executor_on(on) as executor, progress.counting(title, jobs, console) as on_done:
        for records, batch in batches.items():
            there, failed = run_jobs(batch, folder / records, workers, on_done, executor)
            made, found, failures = made + len(batch) - there - len(failed), found + there, failures | failed
    console.print(f"{made} runs made, {found} were there already", highlight=False)
    return failures


def _reported(folder: Path, on_progress: Callable[[float], object]) -> str:
    """Where the report is, or why there is none: records without exact values are no failure."""
    try:
        return f"report: {write_report(folder, on_progress=on_progress)}"
    except DamagedFile:
        raise
    except ValueError as error:
        return f"no report: {error}"

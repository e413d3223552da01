"""The paper's experiments, end to end: jobs, records, report."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from episafe.experiments import progress
from episafe.experiments.specification import Job, paper_experiment
from episafe.experiments.worker_pool import run_jobs
from episafe.reports.report import write_report
from episafe.storage.atomic_files import write_text
from episafe.storage.toml_settings import to_toml

PLAN = "experiment.toml"


def reproduce(quick: bool, folder: Path, workers: int | None, console: Console) -> dict[str, str]:
    """Run what is missing of the paper's experiments, write the report; returns the failed jobs with their reasons."""
    experiment = paper_experiment(quick)
    claim(folder, asdict(experiment))
    jobs = experiment.jobs()
    console.print(
        f"{len(jobs)} runs: {', '.join(experiment.agents)} on {', '.join(experiment.environments)} "
        f"({' and '.join(experiment.variants)}), {experiment.num_seeds} seeds of {experiment.num_episodes} episodes",
        highlight=False,
    )
    console.print("the first run on a machine compiles for about half a minute before anything moves", highlight=False)
    done = 0.0
    with progress.bar("episafe paper", sum(job.cost for job in jobs), console) as advance:

        def on_done(job: Job) -> None:
            nonlocal done
            done += job.cost
            advance(done)

        outcome = run_jobs(jobs, folder / "records", workers, on_done)
    console.print(f"{outcome.made} runs made, {outcome.found} were there already", highlight=False)
    if outcome.made or outcome.found:
        console.print(f"report: {write_report(folder)}", highlight=False, soft_wrap=True)
    return outcome.failures


def claim(folder: Path, experiment: Mapping[str, object]) -> None:
    """Write the plan into the folder, or refuse a folder that holds another experiment."""
    plan = to_toml({key: str(value) for key, value in experiment.items()})
    written = folder / PLAN
    if written.exists() and written.read_text() != plan:
        raise ValueError(f"{folder} holds another experiment (see {written.name}); choose another --out or remove it")
    write_text(written, plan)

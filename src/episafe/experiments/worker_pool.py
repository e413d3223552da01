"""Jobs on all cores: finished ones are never repeated, stopping loses only what was under way."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Job(Protocol):
    """A run that leaves a record in a folder of its own."""

    @property
    def name(self) -> str:
        """Folder name of the record."""
        ...

    def is_done(self, records: Path) -> bool:
        """Whether the record of just this job is there, whole."""
        ...

    def record(self) -> Any:
        """Run the job."""
        ...

    def run(self, records: Path) -> None:
        """Run the job and save its record."""
        ...

    def short(self) -> "Job":
        """The same with so few episodes that little but compiling is left."""
        ...

    def compiled_as(self) -> str:
        """Jobs of one answer compile the same code."""
        ...


J = TypeVar("J", bound=Job)


@dataclass
class Outcome:
    """What became of the jobs: how many were there before, how many were made now, and which failed and why."""

    found: int = 0
    made: int = 0
    failures: dict[str, str] = field(default_factory=dict)


def run_jobs(jobs: Sequence[J], folder: Path, workers: int | None, on_done: Callable[[J], None]) -> Outcome:
    """Make the records of all jobs below `folder`; those that are there already are kept as they are.

    Args:
        jobs: what to run; names must differ.
        folder: the records go to `folder/NAME`.
        workers: processes, None for one a core.
        on_done: called in this process after each job, found, made or failed.
    """
    outcome = Outcome()
    missing = [job for job in jobs if not job.is_done(folder)]
    for job in jobs:
        if job not in missing:
            outcome.found += 1
            on_done(job)
    if not missing:
        return outcome
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context, initializer=_ignore_interrupt) as pool:
        try:
            wait([pool.submit(_compile, kinds) for kinds in _kinds(missing)])
            waiting = {pool.submit(job.run, folder): job for job in missing}
            for future in as_completed(waiting):
                _collect(outcome, waiting[future], future, on_done)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    return outcome


def _collect(outcome: Outcome, job: J, future: "Future[None]", on_done: Callable[[J], None]) -> None:
    error = future.exception()
    if error is None:
        outcome.made += 1
    else:
        outcome.failures[job.name] = f"{type(error).__name__}: {error}"
    on_done(job)


def _kinds(jobs: Sequence[Job]) -> list[list[Job]]:
    """Short jobs apart by what is compiled alike, so that nothing is compiled twice."""
    groups: dict[str, dict[Job, None]] = {}
    for job in jobs:
        groups.setdefault(job.compiled_as(), {})[job.short()] = None
    return [list(group) for group in groups.values()]


def _compile(jobs: Sequence[Job]) -> None:
    """Run short jobs for the code that they leave in the compile cache, where all processes find it."""
    for job in jobs:
        job.record()


def _ignore_interrupt() -> None:
    """Ctrl-C reaches every process of the terminal; only the parent acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""Jobs on all cores or on a cluster: finished ones are never repeated, and a kill loses only what was under way.

A worker returns the files of its record as sealed bytes, and this process alone writes them: no disk is shared.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, as_completed, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from episafe.experiments.executors import processes
from episafe.experiments.job import AnyJob
from episafe.runs.record import SETTINGS, Record, is_complete, load_settings, save_files
from episafe.storage.toml_settings import said_versions, versions

MOST_DEATHS = 3  # pools of ours that may die in a row without having finished a job


def run_jobs(
    jobs: Sequence[AnyJob],
    folder: Path,
    workers: int | None = None,
    on_done: Callable[[AnyJob], None] = lambda job: None,
    executor: Executor | None = None,
) -> tuple[int, dict[str, str]]:
    """Make the records of all jobs below `folder`; those that are there already are kept as they are.

    Returns how many were there, and the jobs that failed with their reasons; all others were made.

    Args:
        jobs: what to run; names must differ.
        folder: the records go to `folder/NAME`.
        workers: processes, None for one a core.
        on_done: called in this process after each job, found, made or failed.
        executor: where to run them in place of processes of our own; it stays open. Jobs travel by pickle.
    """
    _require_unique_names(jobs)
    found = [job for job in jobs if is_done(job, folder)]
    for job in found:
        on_done(job)
    there = {job.name for job in found}
    missing, failures = [job for job in jobs if job.name not in there], dict[str, str]()
    deaths = 0
    while missing:
        with nullcontext(executor) if executor is not None else processes(workers) as pool:
            if executor is None:
                wait([pool.submit(_compile, group) for group in _kinds(missing)])
            left = _round(pool, missing, folder, on_done, failures)
        deaths = deaths + 1 if len(left) == len(missing) else 0
        if left and (executor is not None or deaths == MOST_DEATHS):
            failures |= {job.name: "its worker was killed, or the cluster is gone: run it again" for job in left}
            break
        missing = left
    return len(found), failures


def make_records(jobs: Sequence[AnyJob], folder: Path, **how: Any) -> None:
    """The same, given as much, where every record is needed: a job that fails is an error."""
    _, failures = run_jobs(jobs, folder, **how)
    for name, reason in failures.items():
        raise ValueError(f"{len(failures)} of {len(jobs)} runs failed, the first, {name}: {reason}")


def is_done(job: AnyJob, folder: Path) -> bool:
    """Whether the record of just this job is there; the record of another under its name is an error."""
    place = folder / job.name
    if not is_complete(place):
        return False
    if load_settings(place).get("job") != job.identity:
        raise ValueError(f"{place} holds a run of other settings: choose another --out, or remove it")
    return True


def _round(
    pool: Executor,
    jobs: Sequence[AnyJob],
    folder: Path,
    on_done: Callable[[AnyJob], None],
    failures: dict[str, str],
) -> list[AnyJob]:
    """Run jobs and write what comes back; returns those that a dead pool has left."""
    try:
        waiting = {pool.submit(_files, job): job for job in jobs}
    except BrokenExecutor:
        return list(jobs)
    left = []
    for future in as_completed(list(waiting)):
        job = waiting.pop(future)  # its bytes are let go with it
        try:
            _keep(future.result(), folder / job.name)
        except (BrokenExecutor, CancelledError):
            left.append(job)
            continue
        except Exception as error:
            failures[job.name] = f"{type(error).__name__}: {error}"
        on_done(job)
    return left


def _files(job: AnyJob) -> dict[str, bytes]:
    """What a worker returns."""
    return job.record().files()


def _keep(files: dict[str, bytes], folder: Path) -> None:
    """Write the files of a record, if they are whole and made by this very version."""
    save_files(files, folder)
    try:
        theirs, ours = said_versions(Record.load(folder).settings), versions()
        if theirs != ours:
            differ = ", ".join(f"{n} {theirs.get(n)} for {ours[n]}" for n in ours if theirs.get(n) != ours[n])
            raise ValueError(f"its worker is of another version ({differ}): install the same everywhere")
    except ValueError:
        (folder / SETTINGS).unlink()
        raise


def _require_unique_names(jobs: Sequence[AnyJob]) -> None:
    names = set[str]()
    for job in jobs:
        if job.name in names:
            raise ValueError(f"two runs are called {job.name}: settings are given twice")
        names.add(job.name)


def _kinds(jobs: Sequence[AnyJob]) -> list[list[AnyJob]]:
    """Short jobs apart by what is compiled alike, so that nothing is compiled twice."""
    groups: dict[str, dict[str, AnyJob]] = {}
    for job in jobs:
        group, kind = job.compiled_as()
        groups.setdefault(group, {}).setdefault(kind, job.short())
    return [list(group.values()) for group in groups.values()]


def _compile(jobs: Sequence[AnyJob]) -> None:
    """Run short jobs for the code that they leave in the compile cache, where all processes find it."""
    for job in jobs:
        job.record()

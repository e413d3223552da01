"""Jobs on all cores: finished ones are never repeated, stopping loses only what was under way, and nobody works on."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed, wait
from pathlib import Path

from episafe.experiments.specification import AnyJob
from episafe.runs.record import Record, is_complete


def run_jobs(
    jobs: Sequence[AnyJob], folder: Path, workers: int | None, on_done: Callable[[AnyJob], None]
) -> tuple[int, dict[str, str]]:
    """Make the records of all jobs below `folder`; those that are there already are kept as they are.

    Returns how many were there, and the jobs that failed with their reasons; all others were made.

    Args:
        jobs: what to run; names must differ.
        folder: the records go to `folder/NAME`.
        workers: processes, None for one a core.
        on_done: called in this process after each job, found, made or failed.
    """
    found = [job for job in jobs if _is_done(job, folder / job.name)]
    missing, failures = [job for job in jobs if job not in found], {}
    for job in found:
        on_done(job)
    if not missing:
        return len(found), {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context, initializer=_begin_worker) as pool:
        try:
            wait([pool.submit(_compile, kinds) for kinds in _kinds(missing)])
            waiting = {pool.submit(job.run, folder): job for job in missing}
            for future in as_completed(waiting):
                error = future.exception()
                if error is not None:
                    failures[waiting[future].name] = f"{type(error).__name__}: {error}"
                on_done(waiting[future])
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
    return len(found), failures


def _is_done(job: AnyJob, folder: Path) -> bool:
    """Whether the record of just this job is there, whole."""
    return is_complete(folder) and Record.load(folder).settings.get("job") == job.identity


def _kinds(jobs: Sequence[AnyJob]) -> list[list[AnyJob]]:
    """Short jobs apart by what is compiled alike, so that nothing is compiled twice."""
    groups: dict[str, dict[AnyJob, None]] = {}
    for job in jobs:
        groups.setdefault(job.compiled_as(), {})[job.short()] = None
    return [list(group) for group in groups.values()]


def _compile(jobs: Sequence[AnyJob]) -> None:
    """Run short jobs for the code that they leave in the compile cache, where all processes find it."""
    for job in jobs:
        job.record()


def _begin_worker() -> None:
    """Ctrl-C reaches every process of the terminal, and only the parent acts on it; a worker ends when its parent does.

    A parent that is killed cannot tell its workers. The system closes its end of a pipe, which they wait for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

"""`es.export_episodes`: the episodes of a journal as a log, so that what they teach survives a new folder."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from episafe.deployment.agent_recipe import agent_of
from episafe.deployment.batch_frames import recorded_episodes
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal_folder import LOG, read_head, stored_problem
from episafe.errors import DamagedFile
from episafe.logs.log_writer import Named, write_log
from episafe.storage.frames import UNREADABLE, Frame, Reader
from episafe.storage.json_values import from_text


def export_episodes(folder: str | Path, path: str | Path, task: Any = None) -> int:
    """Write the episodes of a journal to a CSV or Parquet file that `es.learn_log` reads; how many there are.

    Every report of a deployment is in it, in the order of deployments, after logs of before the first one. Later
    reports of no deployment, and those made twice, are not: here they prove nothing, and as a log they would. Episodes
    teach a planner of a new folder; what was certified of a policy stays here, and begins anew there, with its own δ.
    Where traces are replayed (`certify.Hindsight`) a log also proves, so it must not be chosen by how episodes went:
    where a deployment has no report of its steps, or one by its plan alone while others of that plan waited, traces are
    left out of all, with a warning. So they are where some value of chance would not be read back as it is, type and
    value: a boolean from a CSV, a text of digits.

    Args:
        folder: of the journal, live or of a run; it may be open. Nothing in it is changed.
        path: of the file; `.parquet` for Parquet.
        task: what the agent was told, where the folder does not hold it: tasks by functions.

    Example:
        >>> import episafe as es
        >>> es.export_episodes("shop", "shop.csv")  # doctest: +SKIP
        200
    """
    folder = Path(folder)
    head = read_head(folder)
    told = _task(folder, head) if task is None else task
    if told.kind == "bandit":
        raise ValueError("rounds of a bandit have no log: keep the folder itself")
    missing, episodes = _reported_in(folder, head, told)
    missing += sum(episode.states is None for _, episode in episodes)  # totals alone are no rows of a log
    if missing and any(episode.trace is not None for _, episode in episodes):
        warnings.warn(
            f"{folder}: {missing} episodes have no report of steps that is surely theirs, so the file has no traces: a "
            "log without the days that nobody reported would prove what is false. Report them first, by the number of "
            "the deployment, or go on in the folder, which counts them at their worst",
            stacklevel=2,
        )
        episodes = [(name, replace(episode, trace=None)) for name, episode in episodes]
    return write_log(Path(path), episodes, told)


def _task(folder: Path, head: dict[str, Any]) -> Any:
    """The task that the folder holds."""
    problem = stored_problem(folder, head)
    if problem is not None:
        return problem.task
    if "recipe" not in head:
        raise ValueError(
            f"{folder} does not hold its task, which is given by functions: hand it over as task=agent.task"
        )
    return agent_of(folder, head).task


def _reported_in(folder: Path, head: dict[str, Any], task: Any) -> tuple[int, list[Named]]:
    """How many deployments have no report, those that a repair dropped too; and the logs of before the first one, then
    what was reported of each, in the order of deployments: when a report came may depend on what it says. So one by its
    plan, of which several waited, is of nobody knows which."""
    missing, logged, reported = 0, list[Named](), dict[int, list[Named]]()
    deployed = False
    for frame in Reader(folder / LOG, head["genesis"]):
        try:
            number = frame.notes["deployment"] if frame.kind == Kind.REPORT else None
            lost = frame.kind in (Kind.DEPLOY, Kind.LOST)
            is_known = number is not None and frame.notes.get("named", False)
            missing, deployed = missing + lost - is_known, deployed or lost
            if number is not None:
                reported[number] = list(_reported(frame, task))
            elif frame.kind == Kind.BATCH or not deployed:
                logged.extend(_reported(frame, task))
        except UNREADABLE as error:
            raise DamagedFile(f"{LOG}: frame {frame.number} holds no episodes ({error!r}): audit the folder") from error
    return missing, logged + [one for number in sorted(reported) for one in reported[number]]


def _reported(frame: Frame, task: Any) -> Iterator[Named]:
    if frame.kind == Kind.REPORT:
        (episode,) = task.report_from(from_text(frame.notes["values"]))
        yield str(frame.notes["id"] or ""), episode
    elif frame.kind == Kind.BATCH:
        for _, report_of in recorded_episodes(frame.arrays, task):
            (episode,) = report_of(None)
            yield "", episode

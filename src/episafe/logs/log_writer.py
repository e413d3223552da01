"""Episodes written as the rows of a CSV or Parquet file that `es.learn_log` reads; logs/tables.py has the columns.

What is written is read back before the file takes its name: the episodes must come out as they went in. What chance
brought must too, type and value, since `move` is asked with it: else it is left out of all.
"""

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidProblem
from episafe.logs.logged_episode import steps_of
from episafe.logs.tables import read_rows, same_state
from episafe.plain_text import csv_cell
from episafe.problems.episodic_task import SIGNALS, Signal
from episafe.problems.states import ENDED, START, Outside
from episafe.storage.atomic_files import as_output, atomic
from episafe.types import Episode, amounts

Named = tuple[str, Episode]  # its id, "" where nobody gave one
Cells = dict[str, Any]
REMEDY = "columns cannot hold these states: keep the folder itself"


def write_log(path: Path, episodes: Sequence[Named], task: Any) -> int:
    """Write those episodes that have steps, and return how many; of a task without steps all of them, by their totals.

    A rollout's totals teach no planner: that file is for other programs. Where some trace would not come back as it
    was, all are left out, with a warning: a log without traces proves nothing.
    """
    has_steps = task.kind != "rollout"
    kept = [named for named in episodes if not has_steps or named[1].states is not None]
    if not kept:
        raise ValueError("there is no episode to export: report some first; those with totals alone teach no planner")
    data = _steps(path, kept, task) if has_steps else _table(path, list(_totals(kept, task)))
    with atomic(as_output(path)) as file:
        file.write(data)
    return len(kept)


def _steps(path: Path, episodes: Sequence[Named], task: Any) -> bytes:
    """The rows of the steps as a file; without what chance brought, and with a warning, where that would not come back
    as it was."""
    try:
        return _read_back(path, episodes, task)
    except (ValueError, TypeError, OverflowError) as error:  # also of pyarrow, as where a column has several types
        if all(one.trace is None for _, one in episodes):
            raise
        fault = error
    data = _read_back(path, [(name, replace(one, trace=None)) for name, one in episodes], task)
    warnings.warn(
        f"{path} has no traces, because they would not be read back as they are ({fault}), and a log of other values "
        "would prove what is false. Whole numbers and tuples of them come back from every file, booleans from "
        "Parquet; or go on in the folder",
        stacklevel=4,
    )
    return data


def _table(path: Path, rows: list[Cells]) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return (_parquet if path.suffix == ".parquet" else _csv)(names, rows)


def _rows(episodes: Sequence[Named], task: Any) -> Iterator[Cells]:
    """One row a step of the environment: no dummy first step, and none after an early end."""
    columns: dict[Signal, list[str]] = {"reward": ["reward"], "utility": _names("utility", task)}
    signals = [name for name in columns if all(getattr(one, SIGNALS[name]) is not None for _, one in episodes)]
    for number, (label, episode) in enumerate(episodes):
        before = int(episode.states[0] is START)
        for h in range(before, len(episode.actions)):
            state, after = episode.states[h], episode.states[h + 1]
            if state is ENDED:
                break
            row = {"episode": number, "episode_id": label, "step": h - before, **_cells("state", state)}
            row |= {"action": int(episode.actions[h]), "terminated": int(after is ENDED)}
            row |= {f"next_{name}": None for name in _cells("state", state)} | _cells("next_state", after)
            for name in signals:
                row |= dict(zip(columns[name], amounts(getattr(episode, SIGNALS[name])[h]).tolist(), strict=True))
            yield row | ({} if episode.trace is None else _chance_cells(episode.trace[1][h - before]))


def _names(name: str, task: Any) -> list[str]:
    """The columns of a utility: one for each constraint, by its name where there are several."""
    return [f"{name}_{one}" for one in task.constraint_names] if task.num_constraints > 1 else [name]


def _chance_cells(w: Any) -> Cells:
    if isinstance(w, tuple):
        return {f"chance_{i}": _item(value) for i, value in enumerate(w)}
    return {} if w is None else {"chance": _item(w)}


def _item(value: Any) -> Any:
    """A number of numpy as Python's, with all its digits."""
    return value.item() if isinstance(value, np.generic) else value


def _cells(name: str, state: Any) -> Cells:
    """A state as columns: one, or one a coordinate; none of the end."""
    if state is ENDED:
        return {}
    parts = [np.asarray(part) for part in _parts(state)]
    if any(part.dtype.kind not in "biuf" for part in parts):
        raise InvalidProblem(f"the state {state!r} has no columns of numbers: keep the folder itself")
    if not isinstance(state, tuple) and parts[0].ndim == 0:
        return {name: parts[0].item()}
    return {f"{name}_{i}": value for i, value in enumerate(x for part in parts for x in part.ravel().tolist())}


def _parts(state: Any) -> list[Any]:
    """Numbers and arrays of a state, one after another: those of a tuple, and of tuples within it."""
    return [found for part in state for found in _parts(part)] if isinstance(state, tuple) else [state]


def _totals(episodes: Sequence[Named], task: Any) -> Iterator[Cells]:
    """One row an episode."""
    names = _names("total_utility", task)
    for number, (label, episode) in enumerate(episodes):
        row = {"episode": number, "episode_id": label, "component": episode.component}
        row |= dict(zip(names, amounts(episode.total_utility).tolist(), strict=True))
        yield row | {"total_reward": float(episode.total_reward)}


def _csv(names: list[str], rows: list[Cells]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else csv_cell(row[name]) for name in names])
    return text.getvalue().encode()


def _parquet(names: list[str], rows: list[Cells]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise ValueError("Parquet files need pyarrow: pip install episafe[parquet], or write CSV") from error
    data = io.BytesIO()
    parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in names}), data)
    return data.getvalue()


def _read_back(path: Path, episodes: Sequence[Named], task: Any) -> bytes:
    """The rows of the steps as a file, of which `learn_log` reads what was reported."""
    data = _table(path, list(_rows(episodes, task)))
    try:
        read = list(read_rows(path, io.BytesIO(data), task))
    except DamagedFile as error:
        raise InvalidProblem(f"an episode would not be read back ({error}): {REMEDY}") from error
    for (_, ours), theirs in zip(episodes, read, strict=True):
        _require_alike(ours, theirs)
        _require_same_chance(ours, theirs, task)
    return data


def _require_alike(ours: Episode, theirs: Episode) -> None:
    """States and actions are what they were."""
    inside = [h for h, state in enumerate(ours.states[:-1]) if not isinstance(state, Outside)]
    acted = all(ours.actions[h] == theirs.actions[h] for h in inside)  # outside all actions are alike
    if not (acted and all(map(_alike, ours.states, theirs.states))):
        raise InvalidProblem(f"the episode with states {ours.states!r} would be read as {theirs.states!r}: {REMEDY}")


def _require_same_chance(ours: Episode, theirs: Episode, task: Any) -> None:
    """What chance brought is what it was, or was not seen."""
    if ours.trace is not None and not task.is_exogenous:
        raise InvalidProblem("the task has no move, so its logs have none: export by one that has, task=…")
    (start, *brought), (start_read, *read) = (_brought(one, task) for one in (ours, theirs))
    if not (start is None or _alike(start, start_read)):
        raise InvalidProblem(f"the trace starts at {start!r}, and the episode at {start_read!r}")
    for h, (one, other) in enumerate(zip(brought, read, strict=True)):
        if not _same(one, other):
            raise InvalidProblem(f"what chance brought at step {h}, {one!r}, would be read as {other!r}")


def _brought(episode: Episode, task: Any) -> list[Any]:
    """Where a trace starts, None where all do alike; and what chance brought in each step of the environment, None
    where nobody saw all of it, and after an early end."""
    if episode.trace is None:
        return [None] * (1 + steps_of(task))
    seen = task.read_trace(episode.trace)
    start, chances = (seen[0], seen[1:]) if task.random_start else (None, seen)
    states = episode.states[int(task.random_start) : -1]
    return [start, *(None if state is ENDED or _lacks(w) else w for state, w in zip(states, chances, strict=True))]


def _lacks(w: Any) -> bool:
    return w is None or (isinstance(w, tuple) and any(part is None for part in w))


def _same(one: Any, other: Any) -> bool:
    """Whether two values of chance have the same type and value; numbers of numpy are those of Python."""
    one = _item(one)
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or (isinstance(one, bool | int | float | str) and one == other)


def _alike(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and same_state(one, other)) or _same_number(one, other)


def _same_number(one: Any, other: Any) -> bool:
    """A whole number is the same in every type."""
    kinds = {np.asarray(value).dtype.kind for value in (one, other)}
    return np.ndim(one) == np.ndim(other) == 0 and kinds <= set("iu") and one == other

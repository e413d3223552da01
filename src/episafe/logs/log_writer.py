"""Episodes written as the rows of a CSV or Parquet file that `es.learn_log` reads; logs/tables.py has the columns.

What is written is read back before the file takes its name: the episodes must come out as they went in.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidProblem
from episafe.logs.tables import read_rows
from episafe.plain_text import csv_cell
from episafe.problems.episodic_task import ENDED, START, Outside
from episafe.storage.atomic_files import as_output, atomic
from episafe.types import Episode, amounts

Named = tuple[str, Episode]  # its id, "" where nobody gave one
Cells = dict[str, Any]


def write_log(path: Path, episodes: Sequence[Named], task: Any) -> int:
    """Write those episodes that have steps, and return how many; of a task without steps all of them, by their totals.

    A rollout's totals teach no planner: that file is for other programs.
    """
    has_steps = task.kind != "rollout"
    kept = [named for named in episodes if not has_steps or named[1].states is not None]
    if not kept:
        raise ValueError("there is no episode to export: report some first; those with totals alone teach no planner")
    rows = list((_rows if has_steps else _totals)(kept, task))
    names = list(dict.fromkeys(name for row in rows for name in row))
    data = (_parquet if path.suffix == ".parquet" else _csv)(names, rows)
    if has_steps:
        _require_alike(path, data, kept, task)
    with atomic(as_output(path)) as file:
        file.write(data)
    return len(kept)


def _rows(episodes: Sequence[Named], task: Any) -> Iterator[Cells]:
    """One row a step of the environment: no dummy first step, and none after an early end."""
    columns = {"reward": ["reward"], "utility": _names("utility", task)}
    signals = [name for name in columns if all(_signal(one, name) is not None for _, one in episodes)]
    traced = all(one.trace is None or _is_plain(one.trace) for _, one in episodes)
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
                row |= dict(zip(columns[name], amounts(_signal(episode, name)[h]).tolist(), strict=True))
            yield row | (_chance_cells(episode.trace[1][h - before]) if traced and episode.trace is not None else {})


def _names(name: str, task: Any) -> list[str]:
    """The columns of a utility: one for each constraint, by its name where there are several."""
    return [f"{name}_{one}" for one in task.constraint_names] if task.num_constraints > 1 else [name]


def _is_plain(trace: Any) -> bool:
    """Whether columns can hold what chance brought: numbers and words, or several of these."""
    values = [value for w in trace[1] for value in (w if isinstance(w, tuple | list) else [w])]
    return all(value is None or isinstance(value, int | float | str | np.number) for value in values)


def _chance_cells(w: Any) -> Cells:
    if isinstance(w, tuple | list):
        return {f"chance_{i}": value for i, value in enumerate(w)}
    return {} if w is None else {"chance": w}


def _signal(episode: Episode, name: str) -> Any:
    return episode.rewards if name == "reward" else episode.utilities


def _cells(name: str, state: Any) -> Cells:
    """A state as columns: one, or one a coordinate; none of the end."""
    if state is ENDED:
        return {}
    values = np.asarray(state)
    if values.dtype.kind not in "biuf":
        raise InvalidProblem(f"the state {state!r} has no columns of numbers: keep the folder itself")
    if values.ndim == 0:
        return {name: values.item()}
    return {f"{name}_{i}": value for i, value in enumerate(values.ravel().tolist())}


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


def _require_alike(path: Path, data: bytes, episodes: Sequence[Named], task: Any) -> None:
    """What `learn_log` would read is what was reported."""
    remedy = "columns cannot hold these states: keep the folder itself"
    try:
        read = list(read_rows(path, io.BytesIO(data), task))
    except DamagedFile as error:
        raise InvalidProblem(f"an episode would not be read back ({error}): {remedy}") from error
    for (_, ours), theirs in zip(episodes, read, strict=True):
        inside = [h for h, state in enumerate(ours.states[:-1]) if not isinstance(state, Outside)]
        acted = all(ours.actions[h] == theirs.actions[h] for h in inside)  # outside all actions are alike
        if not (acted and all(map(_alike, ours.states, theirs.states))):
            raise InvalidProblem(
                f"the episode with states {ours.states!r} would be read as {theirs.states!r}: {remedy}"
            )


def _alike(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and np.array_equal(one, other)) or _same_number(one, other)


def _same_number(one: Any, other: Any) -> bool:
    """A whole number is the same in every type."""
    kinds = {np.asarray(value).dtype.kind for value in (one, other)}
    return np.ndim(one) == np.ndim(other) == 0 and kinds <= set("iu") and one == other

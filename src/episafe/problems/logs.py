"""Logged episodes as rows of a CSV or Parquet file, to warm-start a learner.

Columns, one row a step, in any order; rows of an episode may be apart:

    episode        any label; rows with the same one belong together
    step           0..H−1, each exactly once in an episode; the dummy first step of a random start has no row
    state          the state at this step; or state_0, state_1, … for the coordinates of an array
    action         0..A−1
    next_state     the state after the step, or next_state_0, …; read at the last step and compared at the others
    reward, utility   in [0, 1], where the task does not tell them; may be left out
    terminated     1 at the step with which an episode ended early, so that it has no further rows; may be left out

Learning from a log keeps the guarantee at its level only if the log was not selected by its outcomes (say, successful
episodes only), comes from the same system, and counts steps as the task does (algorithms.md, 5.6). The file alone
cannot show that.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from episafe.errors import DamagedFile, InvalidProblem
from episafe.problems.logged import LoggedEpisode, steps_of, whole
from episafe.problems.sampled import AnyTask, SampledTask

NEEDED = ("episode", "step", "action")
ENDS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False, "": False, "none": False}
Row = dict[str, Any]


def read_log(path: str | Path, task: AnyTask) -> Iterator[LoggedEpisode]:
    """The episodes of a log in order of first appearance; each is whole, or the file is refused."""
    path = Path(path)
    rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if not rows:
        raise DamagedFile(f"{path} has no rows: write one for each step")
    columns = rows[0].keys()
    for name in NEEDED:
        if name not in columns:
            raise DamagedFile(f"{path} has no column {name!r}: add it; there are {', '.join(columns)}")
    state, following = _axes(path, columns, "state"), _axes(path, columns, "next_state")
    signals = [name if name in columns else None for name in ("reward", "utility")]
    episodes: dict[Any, list[Row]] = {}
    for row in rows:
        episodes.setdefault(row["episode"], []).append(row)
    for label, steps in episodes.items():
        place = f"{path}, episode {label}"
        steps = _in_order(steps, steps_of(task), place)
        ended = [_ends(row, place) for row in steps]
        states = [_state(row, state, task, place) for row in steps]
        after: list[Any] = [
            None if over else _state(row, following, task, place) for row, over in zip(steps, ended, strict=True)
        ]
        for h in range(len(steps) - 1):
            if ended[h]:
                raise DamagedFile(f"{place}: terminated at step {h}, and there are rows after it: leave them out")
            if not np.array_equal(after[h], states[h + 1]):
                raise DamagedFile(
                    f"{place}, step {h}: next_state {after[h]!r} is not the state {states[h + 1]!r} of step {h + 1}"
                )
        values = [None if name is None else [_number(row, name, place) for row in steps] for name in signals]
        actions = [_whole(row, "action", place) for row in steps]
        yield whole(task, [*states, after[-1]], actions, values[0], values[1], ended[-1], place)


def _csv(path: Path) -> list[Row]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DamagedFile(f"{path} is no CSV file: {error}") from error


def _parquet(path: Path) -> list[Row]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise ValueError("Parquet logs need pyarrow: pip install episafe[parquet], or write the log as CSV") from error
    try:
        rows: list[Row] = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DamagedFile(f"{path} is no Parquet file: {error}") from error
    return rows


def _axes(path: Path, columns: Any, name: str) -> list[str]:
    """The columns of a state: one, or one a coordinate, without gaps."""
    if name in columns:
        return [name]
    axes = [f"{name}_{i}" for i in range(len(columns)) if f"{name}_{i}" in columns]
    if not axes or axes != [f"{name}_{i}" for i in range(len(axes))]:
        raise DamagedFile(f"{path} has no column {name!r}, nor {name}_0, {name}_1, … without a gap")
    return axes


def _in_order(steps: list[Row], horizon: int, place: str) -> list[Row]:
    ordered = sorted(steps, key=lambda row: _whole(row, "step", place))
    found = [_whole(row, "step", place) for row in ordered]
    if found != list(range(len(found))):
        raise DamagedFile(
            f"{place} has steps {found}, not 0 to {horizon - 1}, each once: a dropped step would bias what is learned"
        )
    return ordered


def _ends(row: Row, place: str) -> bool:
    given = str(row.get("terminated") if row.get("terminated") is not None else "").lower()
    if given not in ENDS:
        raise DamagedFile(f"{place}, step {row['step']}: terminated is {given!r}: write 1 or 0")
    return ENDS[given]


def _state(row: Row, axes: list[str], task: AnyTask, place: str) -> Any:
    """The observation that a live task reads; else a whole number, or an array where a state has coordinates."""
    reading = task.reading if isinstance(task, SampledTask) else None
    if reading is None:
        if len(axes) > 1:
            return np.array([_number(row, name, place) for name in axes])
        if not isinstance(task, SampledTask) or task.one_hot:
            return _whole(row, axes[0], place)
        return np.array([_number(row, axes[0], place)])
    kind, shape = reading.space.dtype, reading.space.shape
    if kind is None or shape is None:
        raise DamagedFile(f"{place}: columns cannot hold observations of {reading.space}: log with Minari")
    read = _number if kind.kind == "f" else _whole
    values = [read(row, name, place) for name in axes]
    if len(values) != int(np.prod(shape)):
        raise DamagedFile(f"{place}: {len(values)} columns of {axes[0]}, and {reading.space} has {int(np.prod(shape))}")
    try:
        return reading.state(np.array(values, dtype=kind).reshape(shape)[()], f"at step {row['step']}")
    except InvalidProblem as error:
        raise DamagedFile(f"{place}: {error}") from error


def _number(row: Row, name: str, place: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        raise DamagedFile(f"{place}, step {row['step']}: {name} is {row[name]!r}, not a number") from None
    if not np.isfinite(value):
        raise DamagedFile(f"{place}, step {row['step']}: {name} is {value}")
    return value


def _whole(row: Row, name: str, place: str) -> int:
    value = _number(row, name, place)
    if value != int(value):
        raise DamagedFile(f"{place}, step {row['step']}: {name} is {value:g}, not a whole number")
    return int(value)

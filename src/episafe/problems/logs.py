"""Logged episodes as rows of a CSV or Parquet file, to warm-start a learner.

Columns, one row a step, in any order; rows of an episode may be apart:

    episode        any label; rows with the same one belong together
    step           0..H−1, each exactly once in an episode
    state          the state at this step; or state_0, state_1, … for the coordinates of an array
    action         0..A−1
    next_state     the state after the step, or next_state_0, …; read at the last step and compared at the others
    reward, utility   in [0, 1], where the task does not tell them; may be left out

Learning from a log keeps the guarantee at its level only if the log was not selected by its outcomes (say, successful
episodes only), comes from the same system, and counts steps as the task does (algorithms.md, 5.6). The file alone
cannot show that.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from episafe.errors import DamagedFile
from episafe.problems.sampled import AnyTask, SampledTask

NEEDED = ("episode", "step", "action")
Row = dict[str, Any]


class LoggedEpisode(NamedTuple):
    """States (H+1,), actions, rewards, utilities (H,); the last two None where the file has no such column."""

    states: list[Any]
    actions: list[int]
    rewards: list[float] | None
    utilities: list[float] | None


def read_log(path: str | Path, task: AnyTask) -> Iterator[LoggedEpisode]:
    """The episodes of a log in order of first appearance; each is whole, or the file is refused."""
    path = Path(path)
    rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if not rows:
        raise DamagedFile(f"{path} has no rows")
    columns = rows[0].keys()
    for name in NEEDED:
        if name not in columns:
            raise DamagedFile(f"{path} has no column {name!r}; it has {', '.join(columns)}")
    state, following = _axes(path, columns, "state"), _axes(path, columns, "next_state")
    signals = [name if name in columns else None for name in ("reward", "utility")]
    episodes: dict[Any, list[Row]] = {}
    for row in rows:
        episodes.setdefault(row["episode"], []).append(row)
    for label, steps in episodes.items():
        place = f"{path}, episode {label}"
        steps = _in_order(steps, task.horizon, place)
        states = [_state(row, state, task, place) for row in steps]
        after = [_state(row, following, task, place) for row in steps]
        for h in range(len(steps) - 1):
            if not np.array_equal(after[h], states[h + 1]):
                raise DamagedFile(
                    f"{place}, step {h}: next_state {after[h]!r} is not the state {states[h + 1]!r} of step {h + 1}"
                )
        values = [None if name is None else [_number(row, name, place) for row in steps] for name in signals]
        yield LoggedEpisode([*states, after[-1]], [_whole(row, "action", place) for row in steps], *values)


def _csv(path: Path) -> list[Row]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DamagedFile(f"{path} is no CSV file: {error}") from error


def _parquet(path: Path) -> list[Row]:
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise ValueError("Parquet logs need pyarrow: pip install pyarrow, or write the log as CSV") from error
    rows: list[Row] = parquet.read_table(path).to_pylist()
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
    if found != list(range(horizon)):
        raise DamagedFile(
            f"{place} has steps {found}, not 0 to {horizon - 1}, each once: a dropped step would bias what is learned"
        )
    return ordered


def _state(row: Row, axes: list[str], task: AnyTask, place: str) -> Any:
    """A whole number where states are listed or told apart one by one, else a number or an array."""
    if len(axes) > 1:
        return np.array([_number(row, name, place) for name in axes])
    if not isinstance(task, SampledTask) or task.one_hot:
        return _whole(row, axes[0], place)
    return np.array([_number(row, axes[0], place)])


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

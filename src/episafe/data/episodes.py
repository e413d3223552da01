"""Episodes as rows of a CSV or Parquet file or of a data frame.

One row per step, in any order:

    episode             any label; rows with the same label belong together
    step                0..H−1, each once; the dummy first step of a random start has no row
    state               the state; or state_0, state_1, … for the coordinates of an array
    action              0..A−1
    next_state          the state after the step, or next_state_0, …; needed at the last step
    reward, utility     may be left out where the task knows them; utility_NAME for each of several limits
    terminated          1 at the step that ended the episode early; may be left out
    chance              the random input, or chance_0, chance_1, …; empty if it was not seen

Or one row per episode, if only totals are known: episode, total_reward, total_utility (or total_utility_NAME).

A log supports a certificate only if it was not selected by its outcomes and comes from the same system.
"""

import csv
import io
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from episafe.core.checks import require
from episafe.core.errors import DamagedLog, InvalidEpisode
from episafe.core.files import write_atomically
from episafe.core.task import ProblemLike, Task, task_of
from episafe.core.types import ENDED, START, Document, Episode, is_outside

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

Row = Document  # column -> value
FRAMES = "pandas", "polars", "pyarrow"  # libraries of data frames, in the order in which they are looked for
TRUE, FALSE = ("1", "1.0", "true"), ("0", "0.0", "false", "", "none", "nan")


def read_episodes(source: "str | Path | IntoDataFrame", problem: ProblemLike | None = None) -> list[Episode]:
    """Return the episodes of a CSV or Parquet file or of a data frame, in order of first appearance.

    Args:
        source: a path, or a data frame (pandas, polars, PyArrow and others that Narwhals reads).
        problem: a problem or its task: episodes are checked, and completed if they ended early. Without it, every
            episode must have all its steps.
    """
    task = None if problem is None else task_of(problem)
    place, rows = _rows_of(source)
    require(rows, f"{place} has no rows: write one per step", DamagedLog)
    columns = list(rows[0])
    totals = [name for name in columns if name.startswith("total_utility")]
    needed = ["episode"] if totals else ["episode", "step", "action"]
    for name in needed:
        text = f"{place} has no column {name!r}: add it; it has {', '.join(columns)}"
        require(name in columns, text, DamagedLog)
    if totals:
        return [_of_totals(row, totals, f"{place}, episode {row['episode']}") for row in rows]
    grouped: dict[Hashable, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["episode"], []).append(row)
    return [_episode(steps, columns, task, f"{place}, episode {label}") for label, steps in grouped.items()]


def _rows_of(source: "str | Path | IntoDataFrame") -> tuple[str, list[Row]]:
    """Return what errors call the source, and its rows."""
    if not isinstance(source, str | Path):
        import narwhals as nw

        return "the data frame", nw.from_native(source, eager_only=True).rows(named=True)
    path = Path(source)
    if path.suffix == ".parquet":
        from pyarrow import ArrowException, parquet

        try:
            return str(path), parquet.read_table(path).to_pylist()
        except ArrowException as error:
            raise DamagedLog(f"{path} is not a Parquet file ({error}): write it again") from error
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows: list[Row] = list(csv.DictReader(file, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DamagedLog(f"{path} is not a CSV file ({error}): write it again") from error
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():  # how csv reports fields that are left over or missing
            raise DamagedLog(f"{path}, line {number} does not have one field per column: write it again")
    return str(path), rows


def _of_totals(row: Row, names: Sequence[str], place: str) -> Episode:
    utility = [_number(row, name, place) for name in names]
    reward = _number(row, "total_reward", place) if "total_reward" in row else 0.0
    return Episode.of_totals(np.array(utility), reward)


def _episode(steps: list[Row], columns: Sequence[str], task: Task | None, place: str) -> Episode:
    """Return one episode from its rows."""
    steps = sorted(steps, key=lambda row: _number(row, "step", place))
    numbers = [_number(row, "step", place) for row in steps]
    if numbers != list(range(len(steps))):
        raise DamagedLog(f"{place} has steps {numbers}: give 0, 1, …, each once, since a dropped step causes bias")
    state, following = _axes(columns, "state", place), _axes(columns, "next_state", place)
    chance = _axes(columns, "chance", place) if {"chance", "chance_0"} & set(columns) else []
    ended = [_is_true(row, place) for row in steps]
    require(not any(ended[:-1]), f"{place} has rows after the step that terminated it: leave them out", DamagedLog)
    states = [_value(row, state) for row in steps]
    states.append(ENDED if ended[-1] else _value(steps[-1], following))
    actions = [int(_number(row, "action", place)) for row in steps]
    rewards = [_number(row, "reward", place) for row in steps] if "reward" in columns else None
    limits = _utility_names(task, columns)
    utilities = [[_number(row, name, place) for name in limits] for row in steps] if limits else None
    brought = (
        [None if _plain(row[chance[0]]) is None else _value(row, chance, tuple) for row in steps] if chance else []
    )
    trace = (states[0], tuple(brought)) if chance else None
    if task is None:
        return Episode(tuple(states), actions, rewards, utilities, trace=trace)
    return _completed(task, Episode(states, actions, rewards, utilities, trace=trace), place)


def _completed(task: Task, episode: Episode, place: str) -> Episode:
    """Return the episode with the dummy first step and the steps after an early end, checked by the task."""
    first = [START] if task.random_start else []
    steps = len(first) + len(episode.actions)
    rest = [ENDED] * max(int(task.horizon or 0) - steps, 0) if is_outside(episode.states[-1]) else []

    def framed(values: Any, outside: Callable[[tuple[str]], Any]) -> Any:
        return None if values is None else [*map(outside, first), *values, *map(outside, rest)]

    states, actions = framed(episode.states, lambda state: state), framed(episode.actions, lambda state: 0)
    rewards = framed(episode.rewards, lambda state: task.outside[state][0])
    utilities = framed(episode.utilities, lambda state: task.outside[state][1])
    trace = None if episode.trace is None else (episode.trace[0], (*episode.trace[1], *[None] * len(rest)))
    try:
        return task.read(Episode(states, actions, rewards, utilities, trace=trace))
    except InvalidEpisode as error:
        raise DamagedLog(f"{place}: {error}") from error


def _utility_names(task: Task | None, columns: Sequence[str]) -> list[str]:
    """Return the columns of the utilities; in the order of the task's limits, if it is given."""
    if task is not None and task.num_constraints > 1:
        wanted = [f"utility_{one.name}" for one in task.constraints]
        return wanted if set(wanted) <= set(columns) else []
    return [name for name in columns if name == "utility" or name.startswith("utility_")]


def _axes(columns: Sequence[str], name: str, place: str) -> list[str]:
    """Return the columns of a state: one, or one per coordinate."""
    if name in columns:
        return [name]
    count = sum(one.startswith(f"{name}_") and one[len(name) + 1 :].isdigit() for one in columns)
    axes = [f"{name}_{i}" for i in range(count)]
    text = f"{place} has no column {name!r}, nor {name}_0, {name}_1, … without a gap: add it"
    require(axes and set(axes) <= set(columns), text, DamagedLog)
    return axes


def _value(row: Row, axes: Sequence[str], several: Callable[[list[Any]], Any] = np.array) -> Any:
    """Return the value of one column, or those of several together."""
    values = [_plain(row[name]) for name in axes]
    return several(values) if axes[0].endswith("_0") else values[0]


def _plain(given: object) -> object:
    """Return a number where it is one, else the text; None where there is nothing."""
    if given is None or given == "" or (isinstance(given, float) and math.isnan(given)):
        return None
    if isinstance(given, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(given)
    return given


def _number(row: Row, name: str, place: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise DamagedLog(f"{place}: {name} is {row[name]!r}, not a finite number: correct it")
    return int(value) if value == int(value) and name in ("step", "action") else value


def _is_true(row: Row, place: str) -> bool:
    given = str(row.get("terminated", "")).lower()
    require(given in TRUE + FALSE, f"{place}: terminated is {given!r}: write 1 or 0", DamagedLog)
    return given in TRUE


def write_episodes(
    path: str | Path, episodes: Iterable[Episode], problem: ProblemLike, facts: Sequence[Row] = ()
) -> int:
    """Write episodes to a CSV or Parquet file that `read_episodes` reads, and return how many.

    Args:
        path: ends with .parquet, or else is a CSV file.
        episodes: all with steps, or all with totals only.
        problem: the problem or its task.
        facts: further columns of each episode, such as "episode", its label, which is its number by default.
    """
    task, path, found = task_of(problem), Path(path), list(episodes)
    require(found, "there is no episode to write: report some first", ValueError)
    is_mixed = len({episode.states is None for episode in found}) > 1
    require(not is_mixed, "some episodes have totals only and others have steps: write them to two files", ValueError)
    given = facts or [{"episode": str(number)} for number in range(len(found))]
    rows = [told | row for told, one in zip(given, found, strict=True) for row in _step_rows(task.read(one), task)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.BytesIO()
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({name: [row.get(name) for row in rows] for name in columns}), buffer)
    else:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
        buffer.write(text.getvalue().encode())
    write_atomically(path, buffer.getvalue())
    return len(found)


def _step_rows(episode: Episode, task: Task) -> Iterator[Row]:
    """Yield the rows of one episode: no dummy first step, and none after an early end."""
    suffixes = [f"_{one.name}" for one in task.constraints] if task.num_constraints > 1 else [""]
    if episode.states is None:
        totals = zip(suffixes, episode.total_utility.tolist(), strict=True)
        yield {"total_reward": episode.total_reward} | {f"total_utility{s}": u for s, u in totals}
        return
    first = int(task.random_start)
    for h in range(first, len(episode.actions)):
        state, following = episode.states[h], episode.states[h + 1]
        if is_outside(state):
            return
        over = is_outside(following)
        row = {"step": h - first, **_cells("state", state), "action": int(episode.actions[h])}
        row |= dict.fromkeys(_cells("next_state", state)) if over else _cells("next_state", following)
        row |= {"terminated": int(over), "reward": float(episode.rewards[h])}
        row |= {f"utility{s}": u for s, u in zip(suffixes, episode.utilities[h].tolist(), strict=True)}
        if episode.trace is not None and episode.trace[1][h - first] is not None:
            row |= _cells("chance", episode.trace[1][h - first])
        yield row


def _cells(name: str, value: object) -> Row:
    """Return a state or chance value as columns: one, or one per coordinate."""
    if isinstance(value, np.ndarray | tuple | list):
        flat = np.ravel(value).tolist() if isinstance(value, np.ndarray) else list(value)
        return {f"{name}_{i}": one for i, one in enumerate(flat)}
    return {name: value.item() if isinstance(value, np.generic) else value}


def as_frame(table: Document, library: str = "") -> Any:
    """Return columns as a data frame of a library; by default of the first installed of `FRAMES`, else the dict."""
    names = [library] if library else [name for name in FRAMES if find_spec(name)]
    if not names:
        return table
    import narwhals as nw

    return nw.from_dict(table, backend=nw.Implementation.from_backend(names[0])).to_native()  # type: ignore[arg-type]

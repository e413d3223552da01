"""Logged episodes as rows of a CSV or Parquet file, to warm-start a learner.

Columns, one row a step, in any order; rows of an episode may be apart:

    episode        any label; rows with the same one belong together
    step           0..H−1, each exactly once in an episode; the dummy first step of a random start has no row
    state          the state at this step; or state_0, state_1, … for the coordinates of an array, or of a tuple's parts
    action         0..A−1
    next_state     the state after the step, or next_state_0, …; read at the last step and compared at the others
    reward, utility   in [0, 1], where the task does not tell them; may be left out
    utility_NAME   in place of utility where there are several constraints, one column for each by its name
    terminated     1 at the step with which an episode ended early, so that it has no further rows; may be left out
    chance         what chance brought in this step, of an exogenous problem: a number or a word, empty where it was not
                   seen; or chance_0, chance_1, … where it is several, as of `Rules`; may be left out. What reads as a
                   number is one, also as text: 00 is 0. Words stay words: True is one in a CSV, a boolean in Parquet

Learning from a log keeps the guarantee at its level only if the log was not selected by its outcomes (say, successful
episodes only), comes from the same system, and counts steps as the task does. The file alone
cannot show that.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from episafe.errors import DamagedFile, InvalidProblem
from episafe.logs.logged_episode import steps_of, whole_episode
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.regular_files import open_regular
from episafe.types import Episode

NEEDED = ("episode", "step", "action")
READ = re.compile(
    r"episode|step|action|reward|utility(_.+)?|terminated|(next_)?state(_\d+)?|chance(_\d+)?"
)  # other columns are skipped
MOST_VALUES = 100_000_000  # of a log, which is in memory as a whole before anything is learned
VALUES_FREELY, VALUES_A_BYTE = 1_000_000, 64  # of a Parquet file: more for its size are not believed
LARGEST_GROUP, LONGEST_TEXT, LONGEST_LINE = 1 << 28, 1000, 1 << 20  # bytes, and letters of a value and of a CSV line
SPLIT = "split it into several files"
ENDS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False, "": False, "none": False}
Row = dict[str, Any]


def read_log(path: str | Path, task: AnyTask) -> Iterator[Episode]:
    """The episodes of a log in order of first appearance; each is whole, or the file is refused."""
    path = Path(path)
    with open_regular(path, remedy="give a CSV or Parquet file") as file:
        yield from read_rows(path, file, task)


def read_rows(path: Path, file: IO[bytes], task: AnyTask) -> Iterator[Episode]:
    """The same of an open file; its path says whether it is Parquet, and is named in errors."""
    names, rows = (_parquet if path.suffix == ".parquet" else _csv)(path, file)
    yield from _episodes(path, names, rows, task)


def _episodes(path: Path, columns: list[str], rows: Iterator[Row], task: AnyTask) -> Iterator[Episode]:
    for name in NEEDED:
        if name not in columns:
            raise DamagedFile(f"{path} has no column {name!r}: add it; there are {', '.join(map(str, columns))}")
    state, following = _axes(path, columns, "state"), _axes(path, columns, "next_state")
    signals = [["reward"] if "reward" in columns else None, _utilities(path, columns, task)]
    chance = _chance_axes(path, columns) if task.is_exogenous else []
    for label, steps in _by_episode(path, rows, task.horizon).items():
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
            if not same_state(after[h], states[h + 1]):
                raise DamagedFile(
                    f"{place}, step {h}: next_state {after[h]!r} is not the state {states[h + 1]!r} of step {h + 1}"
                )
        values = [None if names is None else [_numbers(row, names, place) for row in steps] for names in signals]
        actions = [_whole(row, "action", place) for row in steps]
        made = whole_episode(task, [*states, after[-1]], actions, values, ended[-1], place)
        yield replace(made, trace=_trace(steps, chance, states[0], steps_of(task))) if chance else made


def _utilities(path: Path, columns: list[str], task: AnyTask) -> list[str] | None:
    """The columns of the utilities: one, one for each constraint by its name, or none."""
    if task.num_constraints == 1:
        return ["utility"] if "utility" in columns else None
    wanted = [f"utility_{name}" for name in task.constraint_names]
    missing = [name for name in wanted if name not in columns]
    if len(missing) not in (0, len(wanted)):
        raise DamagedFile(f"{path} has no column {missing[0]!r}, and has others of them: write one for each constraint")
    return None if missing else wanted


def _numbers(row: Row, names: list[str], place: str) -> Any:
    """The number of one column, or a list of those of several."""
    found = [_number(row, name, place) for name in names]
    return found[0] if len(found) == 1 else found


def _by_episode(path: Path, rows: Iterator[Row], horizon: int) -> dict[Any, list[Row]]:
    """Rows by their label; the first one that cannot be right ends the reading."""
    episodes: dict[Any, list[Row]] = {}
    for number, row in enumerate(rows, 1):
        if number * len(row) > MOST_VALUES:
            raise DamagedFile(f"{path} has more than {MOST_VALUES} values, and logs are read as a whole: {SPLIT}")
        steps = episodes.setdefault(row["episode"], [])
        steps.append(row)
        if len(steps) > horizon:
            raise DamagedFile(f"{path}, episode {row['episode']} has more than {horizon} steps: 0 to H−1, each once")
    if not episodes:
        raise DamagedFile(f"{path} has no rows: write one for each step")
    return episodes


def _csv(path: Path, file: IO[bytes]) -> tuple[list[str], Iterator[Row]]:
    """The names of its columns, and its rows, each with what is read of it."""
    reader = csv.DictReader(_lines(path, file), strict=True)
    try:
        names = list(reader.fieldnames or [])
    except (csv.Error, UnicodeDecodeError) as error:
        raise _foreign(path, "CSV", error) from error
    return names, _csv_rows(path, reader, list(filter(READ.fullmatch, names)))


def _csv_rows(path: Path, reader: "csv.DictReader[str]", wanted: list[str]) -> Iterator[Row]:
    try:
        for number, row in enumerate(reader):
            if None in row or None in row.values():  # how csv says that fields are left over or missing
                raise DamagedFile(f"{path}, row {number}: not one field for each column")
            yield {name: row[name] for name in wanted}
    except (csv.Error, UnicodeDecodeError) as error:
        raise _foreign(path, "CSV", error) from error


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise DamagedFile(f"{path} is no CSV file: a line has no end")
        yield line.decode()


def _foreign(path: Path, kind: str, error: Exception) -> DamagedFile:
    return DamagedFile(f"{path} is no {kind} file ({error}): write it anew")


def _parquet(path: Path, file: IO[bytes]) -> tuple[list[str], Iterator[Row]]:
    """The names of its columns, and its rows, each with what is read of it.

    A few bytes can say millions of equal rows, or repeat one long text: what it says of itself is held against its size
    before a value is read. Then texts are read as numbers of a list of texts, and one group of rows at a time.
    """
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise ValueError("Parquet logs need pyarrow: pip install episafe[parquet], or write the log as CSV") from error
    limits = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 16}
    try:
        said = parquet.ParquetFile(file, **limits)
        names = list(said.schema_arrow.names)
        wanted = [field for field in said.schema_arrow if READ.fullmatch(field.name)]
        texts = [field.name for field in wanted if _is_text(path, field, pyarrow.types)]
        _check_size(path, said.metadata, len(wanted), file.seek(0, io.SEEK_END))
        read = parquet.ParquetFile(file, read_dictionary=texts, **limits)
    except (pyarrow.ArrowException, OSError) as error:
        raise _foreign(path, "Parquet", error) from error
    return names, _parquet_rows(path, read, [field.name for field in wanted], texts)


def _is_text(path: Path, field: Any, types: Any) -> bool:
    """Whether a column holds text, and not numbers; anything else is refused."""
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind):
        return False
    raise DamagedFile(f"{path}: column {field.name} holds {field.type}: write numbers, or texts")


def _check_size(path: Path, said: Any, num_columns: int, size: int) -> None:
    """What a Parquet file says of itself, held against its size."""
    most = min(VALUES_FREELY + VALUES_A_BYTE * size, MOST_VALUES)
    if said.num_rows * num_columns > most:
        values = f"{said.num_rows} rows of {num_columns} columns"
        raise DamagedFile(
            f"{path} says that it has {values}, more than {most} values for its size: {SPLIT}, or use CSV"
        )
    largest = max((said.row_group(i).total_byte_size for i in range(said.num_row_groups)), default=0)
    if largest > LARGEST_GROUP:
        raise DamagedFile(f"{path} has a row group of {largest} bytes, and at most {LARGEST_GROUP} are read: {SPLIT}")


def _parquet_rows(path: Path, file: Any, wanted: list[str], texts: list[str]) -> Iterator[Row]:
    import pyarrow
    from pyarrow import compute

    try:
        for group in range(file.metadata.num_row_groups):
            for batch in file.iter_batches(1 << 14, [group], wanted, use_threads=False):
                for name in texts:
                    longest = compute.max(compute.binary_length(batch[name].dictionary)).as_py() or 0
                    if longest > LONGEST_TEXT:
                        raise DamagedFile(
                            f"{path}: column {name} has a text of {longest} bytes: {LONGEST_TEXT} are read"
                        )
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise _foreign(path, "Parquet", error) from error


def _axes(path: Path, columns: Any, name: str) -> list[str]:
    """The columns of a state: one, or one a coordinate, without gaps."""
    if name in columns:
        return [name]
    axes = [f"{name}_{i}" for i in range(len(columns)) if f"{name}_{i}" in columns]
    if not axes or axes != [f"{name}_{i}" for i in range(len(axes))]:
        raise DamagedFile(f"{path} has no column {name!r}, nor {name}_0, {name}_1, … without a gap")
    return axes


def _chance_axes(path: Path, columns: Any) -> list[str]:
    """The columns of what chance brought; none where there are none."""
    return _axes(path, columns, "chance") if {"chance", "chance_0"} & set(columns) else []


def _trace(steps: list[Row], axes: list[str], start: Any, num_steps: int) -> tuple[Any, tuple[Any, ...]]:
    """What chance brought in an episode; None where it was not seen, and after an early end."""
    brought = [tuple(_plain(row[name]) for name in axes) for row in steps]
    seen = [None if None in values else values if axes != ["chance"] else values[0] for values in brought]
    return start, (*seen, *[None] * (num_steps - len(seen)))


def _plain(given: Any) -> Any:
    """A number where it is one, else the text; None where there is nothing."""
    if given is None or given == "" or (isinstance(given, float) and np.isnan(given)):
        return None
    if not isinstance(given, str):
        return given
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given


def _in_order(steps: list[Row], horizon: int, place: str) -> list[Row]:
    ordered = sorted(steps, key=lambda row: _whole(row, "step", place))
    numbers = [_whole(row, "step", place) for row in ordered]
    if numbers != list(range(len(numbers))):
        raise DamagedFile(
            f"{place} has steps {numbers}, not 0 to {horizon - 1}, each once: a dropped step would bias what is learned"
        )
    return ordered


def _ends(row: Row, place: str) -> bool:
    given = str(row.get("terminated") if row.get("terminated") is not None else "").lower()
    if given not in ENDS:
        raise DamagedFile(f"{place}, step {row['step']}: terminated is {given!r}: write 1 or 0")
    return ENDS[given]


def _state(row: Row, axes: list[str], task: AnyTask, place: str) -> Any:
    """The observation that a live task reads; else a number like the first state, or an array of coordinates."""
    reading, first = task.reading, task.initial_state
    if reading is None and (len(axes) > 1 or isinstance(first, np.ndarray)):
        return np.array([_number(row, name, place) for name in axes])
    if reading is None:
        is_whole = task.is_listed or task.one_hot or isinstance(first, int | np.integer)
        return (_whole if is_whole else _number)(row, axes[0], place)
    kinds = reading.observations.kinds
    if len(axes) != len(kinds):
        raise DamagedFile(f"{place}: {len(axes)} columns of {axes[0]}, and {reading.space} has {len(kinds)}")
    values = [(_number if kind == "f" else _whole)(row, name, place) for name, kind in zip(axes, kinds, strict=True)]
    try:
        return reading.state(reading.observations.of(iter(values)), f"at step {row['step']}")
    except InvalidProblem as error:
        raise DamagedFile(f"{place}: {error}") from error


def same_state(one: Any, other: Any) -> bool:
    """Whether two states are the same: arrays by their numbers, tuples part by part."""
    return one == other if isinstance(one, tuple) and isinstance(other, tuple) else np.array_equal(one, other)


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

"""Records as tables for other software: a row an episode, or a row a run. pandas is an extra, imported when used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from episafe.runs.record import SETTINGS, Record, is_complete


def load_records(folder: str | Path) -> list[Record]:
    """All finished records below `folder`, sorted by path; a damaged one is a DamagedFile.

    Example:
        >>> import episafe as es
        >>> records = es.load_records("paper-results/quick")  # doctest: +SKIP
    """
    return [Record.load(path) for path in record_folders(folder)]


def results(folder: str | Path) -> Any:
    """One row a run, of all finished records below `folder`: where it lies, its settings, and what it came to.

    Beside the settings there are `path`, `episodes`, `optimum`, `threshold`, `regret`, `violation`,
    `violating_episodes`, `smallest_utility`, `incumbent_deployments`, `plans`; NaN where exact values are not known.
    Every column has one type, so that `to_parquet` takes it and polars reads it. Returns a pandas DataFrame.

    Example:
        >>> import episafe as es
        >>> es.results("paper-results/quick").groupby(["env", "agent"]).regret.mean()  # doctest: +SKIP
    """
    folder = Path(folder)
    rows = [{"path": path.relative_to(folder).as_posix(), **_row(Record.load(path))} for path in record_folders(folder)]
    names = dict.fromkeys(name for row in rows for name in row)
    return _pandas().DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def to_frame(record: Record) -> Any:
    """One row an episode, counted from 1, as a pandas DataFrame; see `Record.to_frame`."""
    columns: dict[str, Any] = {
        "episode": np.arange(1, len(record.sources) + 1),
        "plan_id": record.plan_ids,
        "source": record.sources,
        "acting": record.acting,
        "lam": record.lams,
        "reward_value": record.reward_values,
        **_by_constraint("utility_value", record, record.utility_values),
        **_by_constraint("utility_bound", record, record.utility_bounds),
    }
    if record.reward_totals is not None and record.utility_totals is not None:
        columns |= {
            "reward_total": record.reward_totals,
            **_by_constraint("utility_total", record, record.utility_totals),
        }
    return _pandas().DataFrame(columns)


def record_folders(folder: str | Path) -> list[Path]:
    """The folders of finished records below `folder`, itself included, sorted; an error where there is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = sorted(path.parent for path in folder.rglob(SETTINGS) if is_complete(path.parent))
    if not found:
        raise ValueError(f"{folder} holds no finished record: give a folder that record.save or a command wrote into")
    return found


def _row(record: Record) -> dict[str, Any]:
    """The settings of a run, and what it came to."""
    known = record.is_exact and len(record.sources) > 0
    return {
        **record.settings,
        "episodes": len(record.sources),
        "optimum": record.optimum,
        **{name: float(b) for name, b in _by_constraint("threshold", record, record.threshold).items()},
        "regret": float(record.regret()[-1]) if known else np.nan,
        "violation": float(np.sum(record.violation()[-1])) if known else np.nan,
        "violating_episodes": float(record.violating().sum()) if known else np.nan,
        "smallest_utility": float(np.min(record.utility_values)) if known else np.nan,
        "incumbent_deployments": int((record.sources == "safe").sum()),
        "plans": len(np.unique(record.plan_ids)),
    }


def _column(values: Sequence[Any]) -> list[Any]:
    """Values of one type: numbers where all are, else text; None where a run does not say."""
    said = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in said):
        return [np.nan if value is None else value for value in values]
    if all(isinstance(value, bool) for value in said):
        return list(values)
    return [None if value is None else str(value) for value in values]


def _by_constraint(column: str, record: Record, values: Any) -> dict[str, Any]:
    """One column, or one a constraint where there are several: COLUMN_NAME."""
    if not record.constraint_names:
        return {column: values}
    return {f"{column}_{name}": np.asarray(values)[..., c] for c, name in enumerate(record.constraint_names)}


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ValueError("data frames need pandas: pip install episafe[frames]") from error
    return pandas

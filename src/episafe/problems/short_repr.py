"""What an interpreter prints of problems and records: one line, whatever their size."""

from collections.abc import Iterable, Mapping
from typing import Any

LONGEST = 200  # characters


def short_repr(shown: object, facts: Mapping[str, Any]) -> str:
    """`Name(fact=value, …)` on one line of at most 200 characters; None is left out, floats have six digits."""
    told = {name: f"{value:.6g}" if isinstance(value, float) else repr(value) for name, value in facts.items()}
    said = ", ".join(f"{name}={told[name]}" for name, value in facts.items() if value is not None)
    text = " ".join(f"{type(shown).__name__}({said})".split())
    return text if len(text) <= LONGEST else text[: LONGEST - 2] + "…)"


def _rounded(numbers: Iterable[float | None]) -> Any:
    """One number, or a list of several, with six digits each."""
    known = list(numbers)
    return known[0] if len(known) == 1 else [None if number is None else float(f"{number:.6g}") for number in known]


def task_facts(task: Any) -> dict[str, Any]:
    """The sizes of an es.Task or es.SampledTask, its features, threshold and slack."""
    has_least = any(one.least_total for one in task.constraints)
    return {
        "H": task.horizon,
        "S": task.num_states,
        "A": task.num_actions,
        "d": task.dim,
        "one_hot": task.one_hot or None,
        "constraints": ", ".join(task.constraint_names) if task.num_constraints > 1 else None,
        "threshold": _rounded(one.threshold for one in task.constraints),
        "slack": _rounded(one.slack for one in task.constraints),
        "least_total": _rounded(one.least_total for one in task.constraints) if has_least else None,
        "time_homogeneous": task.time_homogeneous or None,
    }

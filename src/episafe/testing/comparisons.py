"""What it means for two states, plans or records to be the same: bit for bit, with a sentence where they are not."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from episafe.testing.grounds import Ground


def require(holds: Any, sentence: str) -> None:
    """Nothing if it holds; else an AssertionError that says what to do. It works under `python -O` too."""
    if not holds:
        raise AssertionError(sentence)


def require_same_arrays(ours: Mapping[str, Any], theirs: Mapping[str, Any], sentence: str) -> None:
    """The same names, and arrays of the same type, shape and bytes."""
    require(ours.keys() == theirs.keys(), f"{sentence}; the names differ: {sorted(ours.keys() ^ theirs.keys())}")
    for name, array in ours.items():
        one, other = np.asarray(array), np.asarray(theirs[name])
        same = one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        require(same, f"{sentence}; {name} differs")


def require_same_records(ours: Any, theirs: Any, sentence: str) -> None:
    """The same columns."""
    one, other = ({name: getattr(record, name) for name in record.columns()} for record in (ours, theirs))
    require_same_arrays(one, other, sentence)


def require_same_plans(ground: Ground, ours: Any, theirs: Any, sentence: str) -> None:
    """The same facts, and the same policy."""
    require_same_arrays(facts_of(ground, ours), facts_of(ground, theirs), sentence)


def facts_of(ground: Ground, plan: Any) -> dict[str, Any]:
    """A plan as named arrays."""
    names = ("id", "source", "level", "reason", "lam", "utility_bound")
    arrays = {f"its policy, array {i}": array for i, array in enumerate(ground.policy_arrays(plan))}
    return {name: np.array(getattr(plan, name)) for name in names} | arrays


def state_of(agent: Any) -> dict[str, Any]:
    """The state of an agent; nothing where it has none."""
    try:
        return dict(agent.state())
    except NotImplementedError:
        return {}

"""What checks require: that two things are the same, bit for bit; that nothing leads to what must not be known."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from episafe.testing.check_fixtures import Ground


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
    names = ("id", "source", "level", "reason", "lam", "utility_bound")
    one, other = (
        {name: getattr(plan, name) for name in names}
        | {f"its policy, array {i}": array for i, array in enumerate(ground.policy_arrays(plan))}
        for plan in (ours, theirs)
    )
    require_same_arrays(one, other, sentence)


def require_no_path(start: Any, secrets: Sequence[Any]) -> None:
    """Nothing that `start` refers to, however indirectly, is a secret, shares its memory, or is an equal array."""
    arrays = [secret for secret in secrets if isinstance(secret, np.ndarray)]
    for thing in _reachable(start):
        known = any(thing is secret for secret in secrets)
        if isinstance(thing, np.ndarray):
            known = known or any(np.shares_memory(thing, array) or _equal(thing, array) for array in arrays)
        require(not known, f"a path leads to what must not be known, a {type(thing).__name__}: learn it from episodes")


def _equal(array: Any, secret: Any) -> bool:
    return array.shape == secret.shape and array.dtype == secret.dtype and bool(np.array_equal(array, secret))


def _reachable(start: Any) -> Iterator[Any]:
    """All that a thing refers to, through containers, objects and closures; not through modules, classes, globals."""
    seen: dict[int, Any] = {}
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType):
            continue
        seen[id(thing)] = thing  # kept, so that no id is used twice
        yield thing
        if isinstance(thing, FunctionType):
            waiting.extend((thing.__closure__, thing.__defaults__, thing.__kwdefaults__))
        else:
            waiting.extend(gc.get_referents(thing))

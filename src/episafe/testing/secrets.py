"""Whether a thing leads to what it must not know."""

import gc
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from episafe.testing.comparisons import require


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

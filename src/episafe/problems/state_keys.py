"""What states are looked up by, as bytes and back: JSON, so that reading it runs nothing."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile, InvalidProblem
from episafe.problems.boundary_states import Outside

OUTSIDE, BYTES = "outside", "bytes"  # the names by which JSON says what it has no word for


def encoded(keys: Sequence[Any]) -> NDArray[np.uint8]:
    """Keys as the bytes of a JSON list; an error for those that would not come back equal, with an equal hash."""
    try:
        text = json.dumps(list(keys), default=_plain, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidProblem(f"a state cannot be stored ({error}): {REMEDY}") from error
    for key, back in zip(keys, decoded(text.encode()), strict=True):
        if back != key or hash(back) != hash(key):
            raise InvalidProblem(f"the state {key!r} cannot be stored: {REMEDY}")
    return np.frombuffer(text.encode(), dtype=np.uint8)


REMEDY = "use whole numbers, floats other than NaN, strings, bytes, numpy arrays, or tuples of these"


def decoded(text: bytes) -> list[Any]:
    """The keys that `encoded` wrote; anything else is a DamagedFile."""
    try:
        found = json.loads(text.decode(), object_hook=_special)
        if not isinstance(found, list):
            raise ValueError("not a list")
        return [_frozen(key) for key in found]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedFile(f"the stored states cannot be read ({error}): take another file") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Outside):
        return {OUTSIDE: value.value}
    if isinstance(value, bytes):
        return {BYTES: value.hex()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r} has no plain form")


def _special(found: dict[str, Any]) -> Any:
    if found.keys() == {OUTSIDE}:
        return Outside(found[OUTSIDE])
    if found.keys() == {BYTES}:
        return bytes.fromhex(found[BYTES])
    raise ValueError("an unknown kind of state")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value

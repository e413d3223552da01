"""States and other values of an episode as JSON, exactly: what is read back is what was written, type and bits.

Reading runs nothing. Rooms above add kinds of values of their own with `register`.
"""

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile, InvalidEpisode, InvalidProblem

PLAIN = (bool, int, float, str, type(None))
REMEDY = "use whole numbers, floats other than NaN, strings, bytes, numpy arrays, or tuples of these"
_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {bytes: ("bytes", bytes.hex)}
_READERS: dict[str, Callable[[Any], Any]] = {"bytes": bytes.fromhex}


def register(kind: str, known: type, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Hold values of the type `known` too, as {kind: write(value)}."""
    _WRITERS[known], _READERS[kind] = (kind, write), read


def as_text(value: Any) -> str:
    """A value as one line of JSON; the same value gives the same text."""
    return json.dumps(_written(value), separators=(",", ":"))


def from_text(text: str) -> Any:
    """The value that `as_text` wrote."""
    found = json.loads(text)
    return _read(found) if "{" in text else found  # plain values and lists of them are what they say


def plain(value: Any) -> Any:
    """A value for a program that reads JSON and nothing else: dicts, lists, texts and numbers; what is no finite number
    is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def keys_as_bytes(keys: Sequence[Hashable]) -> NDArray[np.uint8]:
    """What states are looked up by, as the bytes of a JSON list; an error for those that would not come back equal."""
    try:
        text = as_text(list(keys)).encode()
    except (InvalidEpisode, ValueError, RecursionError) as error:
        raise InvalidProblem(f"a state cannot be stored ({error}): {REMEDY}") from error
    for key, back in zip(keys, keys_from_bytes(text), strict=True):
        if back != key or hash(back) != hash(key):
            raise InvalidProblem(f"the state {key!r} cannot be stored: {REMEDY}")
    return np.frombuffer(text, dtype=np.uint8)


def keys_from_bytes(text: bytes) -> list[Hashable]:
    """The keys that `keys_as_bytes` wrote; anything else is a DamagedFile."""
    try:
        keys = from_text(text.decode())
        if not isinstance(keys, list):
            raise ValueError("not a list")
        hash(tuple(keys))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedFile(f"the stored states cannot be read ({error}): take another file") from error
    return keys


def _written(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, list):
        return [_written(entry) for entry in value]
    if isinstance(value, tuple):
        return {"tuple": [_written(entry) for entry in value]}
    if type(value) is dict:
        return {"dict": [[_written(name), _written(entry)] for name, entry in value.items()]}
    if type(value) in _WRITERS:
        kind, write = _WRITERS[type(value)]
        return {kind: write(value)}
    if isinstance(value, np.ma.MaskedArray | np.matrix):  # what comes back is a plain array, its masked numbers too
        raise InvalidEpisode(
            f"a journal cannot hold a {type(value).__name__}: give np.asarray of it, and None for what was not seen"
        )
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufSU" and value.dtype.itemsize:
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {kind: [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    raise InvalidEpisode(
        f"a journal cannot hold {value!r} of type {type(value).__name__}: use numbers, strings, tuples, dicts or numpy "
        "arrays"
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tuple":
        return tuple(_read(entry) for entry in held)
    if kind == "dict":
        return {_read(name): _read(entry) for name, entry in held}
    if kind in _READERS:
        return _READERS[kind](held)
    if kind not in ("array", "number"):
        raise ValueError(f"no value of kind {kind!r}")
    dtype, shape, text = held
    if np.dtype(dtype).kind not in "biufSU":
        raise ValueError(f"no value of type {dtype}")
    array = np.frombuffer(bytes.fromhex(text), np.dtype(dtype)).reshape(shape).copy()
    return array if kind == "array" else array[()]

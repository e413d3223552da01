"""States and other values of an episode as JSON, exactly: what is read back is what was written, type and bits."""

import json
from typing import Any

import numpy as np

from episafe.errors import InvalidEpisode
from episafe.problems.boundary_states import Outside

PLAIN = (bool, int, float, str, type(None))


def as_text(value: Any) -> str:
    """A value as one line of JSON; the same value gives the same text."""
    return json.dumps(_written(value), separators=(",", ":"))


def from_text(text: str) -> Any:
    """The value that `as_text` wrote."""
    return _read(json.loads(text))


def _written(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, list):
        return [_written(entry) for entry in value]
    if isinstance(value, tuple):
        return {"tuple": [_written(entry) for entry in value]}
    if isinstance(value, Outside):
        return {"outside": value.value}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufSU" and value.dtype.itemsize:
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {kind: [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    raise InvalidEpisode(
        f"a journal cannot hold {value!r} of type {type(value).__name__}: use numbers, strings, tuples or numpy arrays"
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tuple":
        return tuple(_read(entry) for entry in held)
    if kind == "outside":
        return Outside(held)
    if kind == "bytes":
        return bytes.fromhex(held)
    if kind not in ("array", "number"):
        raise ValueError(f"no value of kind {kind!r}")
    dtype, shape, text = held
    if np.dtype(dtype).kind not in "biufSU":
        raise ValueError(f"no value of type {dtype}")
    array = np.frombuffer(bytes.fromhex(text), np.dtype(dtype)).reshape(shape).copy()
    return array if kind == "array" else array[()]

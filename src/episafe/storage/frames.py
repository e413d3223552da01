"""A frame of the journal: its payload as bytes, and its place in the chain. Nothing in a payload is executed.

    payload: length of the text (4), text: JSON of [notes, [[name, type, shape], …]], then the arrays' bytes in order
    hash:    SHA-256 of: hash of the frame before (32), number (8), kind (1), payload

All numbers are little-endian. What "the frame before" of frame 0 is: the genesis, handed in by whoever opens the log.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 28  # bytes of a payload, so that a reader knows beforehand what it may have to hold
LENGTH = struct.Struct("<I")
PLACE = struct.Struct("<QB")
TYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"])
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError, OverflowError, struct.error)

Arrays = Mapping[str, NDArray[Any]]
Position = tuple[int, int, str]


class Frame(NamedTuple):
    """A frame as it was read: its number and kind, plain values, arrays (read-only), where it begins, its hash."""

    number: int
    kind: int
    notes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    offset: int
    hash: str


def encode(notes: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """A payload."""
    listed = []
    for name, array in (arrays or {}).items():
        array = np.asarray(array)
        plain = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        if plain.dtype.str not in TYPES:
            raise TypeError(f"array {name} has type {array.dtype}: a journal keeps plain numbers only")
        listed.append((name, plain))
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in listed]
    text = json.dumps([notes, shapes], separators=(",", ":")).encode()
    payload = b"".join([LENGTH.pack(len(text)), text, *(array.tobytes() for _, array in listed)])
    if len(payload) > LARGEST:
        raise ValueError(f"a frame of {len(payload)} bytes is more than the {LARGEST} that a journal takes at once")
    return payload


def decode(payload: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Notes and arrays; one of UNREADABLE if it is no payload."""
    (length,) = LENGTH.unpack_from(payload)
    notes, shapes = json.loads(payload[LENGTH.size : LENGTH.size + length])
    if not isinstance(notes, dict):
        raise ValueError("its notes are not a mapping")
    arrays: dict[str, NDArray[Any]] = {}
    position = LENGTH.size + length
    for name, kind, shape in shapes:
        if kind not in TYPES or name in arrays or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"array {name} has type {kind} and shape {shape}")
        dtype, count = np.dtype(kind), math.prod(shape)
        if position + count * dtype.itemsize > len(payload):
            raise ValueError(f"array {name} is longer than the frame")
        arrays[name] = np.frombuffer(payload, dtype, count, position).reshape(shape)
        position += count * dtype.itemsize
    if position != len(payload):
        raise ValueError("bytes are left over")
    return notes, arrays


def link(previous: bytes, number: int, kind: int, payload: bytes) -> bytes:
    """The hash of a frame."""
    made = hashlib.sha256(previous + PLACE.pack(number, kind))
    made.update(payload)
    return made.digest()


def as_hash(text: str) -> bytes:
    """A SHA-256 as bytes."""
    found = bytes.fromhex(text)
    if len(found) != 32:
        raise ValueError(f"{text!r} is no SHA-256")
    return found

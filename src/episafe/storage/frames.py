"""One record of the journal as bytes: a checked header, then a checked payload of plain values and arrays.

    header: marker (2), kind (1), 0 (1), length of the payload (4), its CRC32 (4), CRC32 of the 12 bytes before (4)

The header has a CRC of its own: a flipped bit in a length would otherwise make the rest of the file look like an
unfinished write, which is cut off. Nothing in a payload is executed.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile

MAGIC = b"episafe journal 1\n"
MARKER = b"eF"
HEADER = struct.Struct("<2sBBII")
CHECK = struct.Struct("<I")
SIZE = HEADER.size + CHECK.size
KINDS_OF_NUMBERS = "biuf"

Arrays = Mapping[str, NDArray[Any]]


class Kind(IntEnum):
    """What a frame says."""

    BEGIN = 1  # which folder this is the journal of
    PLAN = 2  # a plan, before anybody acts on it
    START = 3  # one deployment of a plan
    REPORT = 4  # one episode, as reported
    BATCH = 5  # episodes of a simulation with their plans
    FAULT = 6  # what went wrong, and what was done
    AIM = 7  # how many episodes a simulation is to have, from here on
    CLOSE = 8  # closed in good order
    HALT = 9  # only the incumbent is deployed from here on
    RESUME = 10  # a person lets the agent explore again


class Frame(NamedTuple):
    """A frame as it was read: its kind, plain values, arrays, and where it begins in the file."""

    kind: Kind
    notes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    offset: int


def encode(kind: Kind, notes: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """A frame as bytes."""
    listed = [(name, np.ascontiguousarray(array)) for name, array in (arrays or {}).items()]
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in listed]
    text = json.dumps([notes, shapes], separators=(",", ":")).encode()
    payload = b"".join([CHECK.pack(len(text)), text, *(array.tobytes() for _, array in listed)])
    header = HEADER.pack(MARKER, kind, 0, len(payload), zlib.crc32(payload))
    return header + CHECK.pack(zlib.crc32(header)) + payload


class Reader:
    """The frames of a file in order. When they are used up, `end` is where the last whole one ends, and `torn` says
    how many bytes of an unfinished one follow it."""

    def __init__(self, path: Path) -> None:
        self.path, self.end, self.torn = path, 0, 0

    def __iter__(self) -> Iterator[Frame]:
        """Frames; `DamagedFile` at the first one that is not what was written."""
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            begun = file.read(len(MAGIC))
            if begun != MAGIC:
                if not MAGIC.startswith(begun):
                    raise DamagedFile(f"{self.path} is no journal of this version of episafe: it begins with {begun!r}")
                self.torn = len(begun)
                return
            self.end = len(MAGIC)
            while self.end < size:
                frame, length = self._next(file, size)
                if frame is None:
                    self.torn = size - self.end
                    return
                yield frame
                self.end += length

    def _next(self, file: IO[bytes], size: int) -> tuple[Frame | None, int]:
        head = file.read(SIZE)
        if len(head) < SIZE or not any(head):
            rest = head + file.read()
            if len(head) == SIZE and any(rest):
                raise self._damaged("is overwritten with zeros")
            if not any(rest) or MARKER.startswith(rest[:2]) or rest.startswith(MARKER):
                return None, 0  # an unfinished header, or room that a file system gave and never filled
            raise self._damaged("has no frame")
        marker, kind, _, length, checksum = HEADER.unpack(head[: HEADER.size])
        if marker != MARKER or CHECK.unpack(head[HEADER.size :])[0] != zlib.crc32(head[: HEADER.size]):
            raise self._damaged("has a damaged header")
        if self.end + SIZE + length > size:
            return None, 0
        payload = file.read(length)
        if zlib.crc32(payload) != checksum:
            raise self._damaged("does not match its checksum")
        try:
            return Frame(Kind(kind), *_decode(payload), self.end), SIZE + length
        except (ValueError, TypeError, KeyError, RecursionError, struct.error) as error:
            raise self._damaged(f"cannot be read ({error})") from error

    def _damaged(self, what: str) -> DamagedFile:
        return DamagedFile(
            f"{self.path}: the frame at byte {self.end} {what}; everything before it is whole. Restore the file from a "
            "copy; nothing was changed"
        )


def _decode(payload: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    (length,) = CHECK.unpack_from(payload)
    notes, shapes = json.loads(payload[CHECK.size : CHECK.size + length])
    if not isinstance(notes, dict):
        raise ValueError("its notes are not a mapping")
    arrays, position = {}, CHECK.size + length
    for name, kind, shape in shapes:
        dtype = np.dtype(kind)
        if dtype.kind not in KINDS_OF_NUMBERS or any(n < 0 for n in shape):
            raise ValueError(f"array {name} has type {kind} and shape {shape}")
        count = math.prod(shape)
        if position + count * dtype.itemsize > len(payload):
            raise ValueError(f"array {name} is longer than the frame")
        arrays[name] = np.frombuffer(payload, dtype, count, position).reshape(shape)
        position += count * dtype.itemsize
    if position != len(payload):
        raise ValueError("bytes are left over")
    return notes, arrays

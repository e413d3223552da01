"""Frames of the journal, read back; `journal_files.py` has their format. Nothing in them is run.

A tail that can be a write that never ended is no damage: fewer bytes than the last frame says, or a last frame whose
CRC is wrong with nothing but zeros, or nothing at all, behind it, since a file system may grow a file before it fills
it. It may also be an acknowledged frame that the disk spoiled; from the file alone nobody can tell. Therefore a log
that is closed ends with a frame that says nothing else, and whoever knows of a later `position` hands it in.
Everything else is damage, and refused with its place.
"""

import json
import math
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.storage.journal_files import (
    CHECK,
    HASH,
    HEAD,
    HEADER,
    LARGEST,
    LENGTH,
    MAGIC,
    MARKER,
    TYPES,
    CutShort,
    Position,
    as_hash,
    link,
)
from episafe.storage.regular_files import open_regular

CHECKED_HEADER = struct.Struct("<3sBIQII")
CHUNK = 1 << 20
SMALLEST = HEAD + LENGTH.size + len(b"[{},[]]") + HASH  # bytes of a frame
read_json = json.JSONDecoder().raw_decode  # what json.loads does, without looking for other encodings
# what arises where a frame, or what stands in one, is not what was written
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, struct.error)


class Frame(NamedTuple):
    """A frame as it was read: its number and kind, plain values, arrays (read-only), and where it begins."""

    number: int
    kind: int
    notes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    offset: int


def decode(payload: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Notes and arrays; one of UNREADABLE if it is no payload."""
    place = LENGTH.size + LENGTH.unpack_from(payload)[0]
    text = payload[LENGTH.size : place].decode()
    (notes, shapes), end = read_json(text)
    if end != len(text):
        raise ValueError("its text goes on behind its notes")
    if type(notes) is not dict:
        raise ValueError("its notes are not a mapping")
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, shape in shapes:
        if kind not in TYPES or name in arrays or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"array {name} has type {kind} and shape {shape}")
        dtype, count = np.dtype(kind), math.prod(shape)
        if place + count * dtype.itemsize > len(payload):
            raise ValueError(f"array {name} is longer than the frame")
        arrays[name] = np.frombuffer(payload, dtype, count, place).reshape(shape)
        place += count * dtype.itemsize
    if place != len(payload):
        raise ValueError("bytes are left over")
    return notes, arrays


class Reader:
    """The frames of a file in order, from `since` on. When they are used up, `position` is where the next one would
    begin, and `torn` says how many bytes of an unfinished one are there."""

    def __init__(self, path: Path, genesis: str, since: Position | None = None) -> None:
        self.path, self.torn, self.size = path, 0, 0
        self.number, self.end, previous = since or (0, len(MAGIC), genesis)
        self._begins, self._previous = since is None or since[0] == 0, as_hash(previous)

    @property
    def position(self) -> Position:
        """Number and offset of the next frame, hash of the last one."""
        return self.number, self.end, self._previous.hex()

    @property
    def share(self) -> float:
        """How much of the file was read."""
        return self.end / self.size if self.size else 0.0

    def __iter__(self) -> Iterator[Frame]:
        """Frames; `DamagedFile` at the first one that is not what was written."""
        for kind, payload in self.payloads():
            yield self.frame(kind, payload)

    def frame(self, kind: int, payload: bytes) -> Frame:
        """The one that `payloads` gave last."""
        number, offset = self.number - 1, self.end - (HEAD + len(payload) + HASH)
        try:
            return Frame(number, kind, *decode(payload), offset)
        except UNREADABLE as error:
            self.number, self.end = number, offset
            raise self._damaged(f"cannot be read ({error})") from error

    def payloads(self) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of each frame that is whole and follows from the one before it; they are not read."""
        with open_regular(self.path) as file:
            self.size = size = os.fstat(file.fileno()).st_size
            if not self._starts(file, size):
                return
            head = payload = own = b""
            while self.end < size:
                head = file.read(HEAD)
                if len(head) < HEAD:
                    break
                marker, kind, length, number, _, check = CHECKED_HEADER.unpack(head)
                end = self.end + HEAD + length + HASH
                if (
                    marker != MARKER or check != crc32(head[: HEADER.size]) or number != self.number
                    or length > LARGEST or end > size
                ):  # fmt: skip
                    break
                payload, own = file.read(length), file.read(HASH)
                if link(self._previous, number, kind, payload) != own:  # which finds all that the other CRC would
                    break
                self.number, self.end, self._previous = number + 1, end, own
                yield kind, payload
            if self.end < size:
                self._require_unfinished(head, payload + own, file)
                self.torn = size - self.end

    def _starts(self, file: IO[bytes], size: int) -> bool:
        begun = file.read(len(MAGIC))
        if begun != MAGIC:
            if not MAGIC.startswith(begun) or not self._begins:
                raise DamagedFile(f"{self.path} is no journal of this format: it begins with {begun!r}")
            self.torn, self.end = len(begun), 0
            return False
        if self._begins:
            return True
        if self.end > size:
            raise CutShort(self.path, self.number, self.end)
        file.seek(self.end - HASH)
        if file.read(HASH) != self._previous:
            raise self._damaged("does not follow the one that was before it when a checkpoint was written")
        return True

    def _require_unfinished(self, head: bytes, body: bytes, file: IO[bytes]) -> None:
        """`DamagedFile` that says what is wrong with a frame of which so much was read, unless it may be unfinished."""
        if len(head) < HEAD:
            if MARKER.startswith(head[: len(MARKER)].rstrip(b"\0")):
                return
            raise self._damaged("has no frame")
        marker, _, length, number, checksum, check = CHECKED_HEADER.unpack(head)
        if marker != MARKER or check != crc32(head[: HEADER.size]):
            if MARKER.startswith(marker.rstrip(b"\0")) and _only_zeros(file):
                return  # no whole frame: those do not end in zeros
            raise self._damaged("has a damaged header")
        if number != self.number:
            raise self._damaged(f"says that it is number {number}: frames were left out, put in or moved")
        if length > LARGEST:
            raise self._damaged(f"says that it has {length} bytes, more than any")
        if self.end + HEAD + length + HASH > self.size:
            return
        if crc32(body) == checksum:
            raise self._damaged("does not follow from the one before it: one of them was changed, or is of another log")
        if not _only_zeros(file):
            raise self._damaged("does not match its checksum")

    def _damaged(self, what: str) -> DamagedFile:
        return DamagedFile(
            f"{self.path}: frame {self.number} at byte {self.end} {what}; everything before it is whole. Restore the "
            "file from a copy, or `episafe repair` the folder; nothing was changed"
        )


def read(path: Path, genesis: str, since: Position | None = None) -> Iterator[Frame]:
    """Frames of a log that may be open in another process; an unfinished one at its end is not there yet."""
    return iter(Reader(path, genesis, since))


def remains(data: bytes) -> tuple[list[Frame], int]:
    """What can be read of the end of a file, from where it is damaged, though nobody can prove that it was written.

    Returns:
        The frames that are whole by themselves, and how many others there were at most behind the last of these.
    """
    frames: list[Frame] = []
    place, end, num_unread = data.find(MARKER), 0, 0
    while place >= 0:
        head = data[place : place + HEAD]
        if len(head) == HEAD and CHECK.unpack(head[HEADER.size :])[0] == crc32(head[: HEADER.size]):
            _, kind, length, number, checksum = HEADER.unpack(head[: HEADER.size])
            body = data[place + HEAD : place + HEAD + length + HASH]
            num_unread += _at_most(place - end) + 1
            if crc32(body) == checksum:
                with suppress(*UNREADABLE):
                    frames.append(Frame(number, kind, *decode(body[:length]), place))
                    num_unread = 0
            end = place + HEAD + length + HASH
        place = data.find(MARKER, max(place + 1, end))
    return frames, num_unread + _at_most(len(data) - end)


def _at_most(num_bytes: int) -> int:
    """How many frames so many bytes may have been."""
    return max(0, -(-num_bytes // SMALLEST))


def _only_zeros(file: IO[bytes]) -> bool:
    """Whether nothing else follows, and no more of it than a frame is long; the file is read on."""
    for _ in range(LARGEST // CHUNK + 1):
        chunk = file.read(CHUNK)
        if not chunk:
            return True
        if chunk != bytes(len(chunk)):
            return False
    return False

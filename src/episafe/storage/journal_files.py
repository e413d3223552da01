"""The files of a journal that are appended to, never rewritten, by one writer: the log, format 2, and the trail.

    file:    MAGIC, then frames without a gap
    frame:   header (24): marker (3), kind (1), length of the payload (4), number (8), CRC32 of payload and hash (4),
             CRC32 of the 20 bytes before (4);  payload;  hash (32)
    payload: length of the text (4), text: JSON of [notes, [[name, type, shape], …]], then the arrays' bytes in order
    hash:    SHA-256 of: hash of the frame before (32), of frame 0 the genesis, number (8), kind (1), payload

All numbers are little-endian. The header has a CRC of its own: a flipped bit in a length would otherwise make the rest
of the file look like an unfinished write. The other CRC tells a frame that was not written as it should have been from
one that was, and is not the next one of this chain: moved, put in, left out, or of another journal.
"""

import hashlib
import json
import os
import struct
import threading
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.storage.atomic_files import lock
from episafe.storage.regular_files import refuse_irregular

MAGIC = b"episafe journal 2\n"
MARKER = b"eF2"
HEADER = struct.Struct("<3sBIQI")
CHECK = struct.Struct("<I")
HEAD, HASH = HEADER.size + CHECK.size, 32
LARGEST = 1 << 28  # bytes of a payload, so that a reader knows beforehand what it may have to hold
LENGTH = struct.Struct("<I")
PLACE = struct.Struct("<QB")
TYPES = frozenset(["|b1", "|i1", "|u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"])
NOBODY = 0  # no thread has this number

Arrays = Mapping[str, NDArray[Any]]
Position = tuple[int, int, str]  # number and offset of the next frame, hash of the last one


def encode(
    number: int, kind: int, previous: bytes, notes: Mapping[str, Any], arrays: Arrays | None
) -> tuple[bytes, bytes]:
    """A whole frame as bytes, and its hash."""
    payload = _payload(notes, arrays or {})
    own = link(previous, number, kind, payload)
    header = HEADER.pack(MARKER, kind, len(payload), number, zlib.crc32(own, zlib.crc32(payload)))
    return b"".join([header, CHECK.pack(zlib.crc32(header)), payload, own]), own


def _payload(notes: Mapping[str, Any], arrays: Arrays) -> bytes:
    listed = []
    for name, array in arrays.items():
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


def link(previous: bytes, number: int, kind: int, payload: bytes) -> bytes:
    """The hash of a frame."""
    return hashlib.sha256(previous + PLACE.pack(number, kind) + payload).digest()


def as_hash(text: str) -> bytes:
    """A SHA-256 as bytes."""
    found = bytes.fromhex(text)
    if len(found) != 32:
        raise ValueError(f"{text!r} is no SHA-256")
    return found


class CutShort(DamagedFile):
    """A log that is shorter than it was known to be."""

    def __init__(self, path: Path, number: int, end: int) -> None:
        super().__init__(
            f"{path} has {path.stat().st_size} bytes, and had {end} when its frame {number - 1} was known to be kept: "
            "it was cut short, or the checkpoint that knows is of a copy. Restore it, or `episafe repair` the folder"
        )


class Changed(OSError):
    """A file that somebody else has changed while it was open."""


class Gone(Changed):
    """Bytes that were there are no longer: the file was cut short, deleted, moved or replaced."""


class HeldFile:
    """A file that is held open, and that nobody else may change meanwhile. While it is, no other can have its number.

    Args:
        path: the file.
        mode: as `os.open` takes it.

    Attributes:
        file: what the system calls it.
        at: bytes that it should have, and lines where they are counted: one value, so that an interruption cannot
            change half.
    """

    def __init__(self, path: Path, mode: int = os.O_RDONLY) -> None:
        self._path, self.file = os.fspath(path), os.open(path, mode | os.O_CLOEXEC)
        held = os.fstat(self.file)
        self._number, self._device = held.st_ino, held.st_dev
        self.at = (held.st_size, 0)

    def look(self, size: int | None = None) -> None:
        """It is still the file in its place, and has as many bytes as it should, or `size`."""
        size = self.at[0] if size is None else size
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(f"{self._path} was deleted or moved while it was open") from None
        if there.st_ino != self._number or there.st_dev != self._device:
            raise Gone(f"{self._path} was replaced while it was open")
        if there.st_size != size:
            kind = Gone if there.st_size < size else Changed
            raise kind(f"{self._path} has {there.st_size} bytes instead of {size}: somebody else has changed it")

    def write(self, data: bytes) -> None:
        """Add all of it at the end."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.file, view) :]

    def close(self) -> None:
        """Give the file back."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)


def read_from_disk(file: int) -> None:
    """Have the file read from the disk, not from memory: after an fsync that failed, memory may hold what is lost."""
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


class TrailFile(HeldFile):
    """Lines of the audit trail, appended after the frames that they say the same as; `begin` before anything else.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        refuse_irregular(path)
        try:
            super().__init__(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise DamagedFile(
                f"{path} is missing: restore it from a copy, or `episafe repair` the folder; nothing was changed"
            ) from None
        read_from_disk(self.file)

    def begin(self, size: int, count: int) -> None:
        """Go on after so many bytes, which are so many whole lines; the rest is cut off."""
        os.ftruncate(self.file, size)
        self.at = (size, count)

    def append(self, lines: Sequence[str]) -> None:
        """Add lines, all or none."""
        self.look()
        data = "".join(f"{line}\n" for line in lines).encode()
        size, count = self.at
        try:
            self.write(data)
            self.at = (size + len(data), count + len(lines))
        except BaseException:  # whole or not at all
            with suppress(OSError):
                os.ftruncate(self.file, size)
            raise

    def sync(self) -> None:
        """Return when they are on the disk."""
        os.fsync(self.file)


class Log:
    """A log that is locked against every other process; `begin` and `cut` before anything else.

    `append_all` and `sync` may be called from any thread: those that wait for the disk together share one fsync.

    Args:
        path: the file, with its first frame.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._process = path, os.getpid()
        self._changed, self._failure, self._syncing, self._synced = threading.Condition(), "", NOBODY, 0
        self._torn = 0
        self._at: Position = (0, 0, "")  # one value, so that an interruption cannot leave half of it changed
        refuse_irregular(path)
        try:
            self._held = HeldFile(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise DamagedFile(f"{path} is missing: restore it from a copy; nothing was changed") from None
        try:
            lock(self._held.file, path)
            read_from_disk(self._held.file)
        except BaseException:
            self._held.close()
            raise

    def holds(self, position: Position) -> bool:
        """Whether a `position` from after a `sync` is one of this log; `CutShort` where it ends before."""
        number, end, last = position
        if end > os.fstat(self._held.file).st_size:
            raise CutShort(self.path, number, end)
        return number == 0 or os.pread(self._held.file, HASH, end - HASH) == as_hash(last)

    def begin(self, position: Position, torn: int) -> None:
        """Go on from where the frames that were read end.

        Args:
            position: of the next frame, as the reader says it.
            torn: the bytes of an unfinished frame behind them, which nobody was told is kept. `cut` it off.
        """
        if position[0] == 0:
            raise DamagedFile(f"{self.path} lacks even its first frame: restore it from a copy; nothing was changed")
        self._at, self._torn = position, torn

    def cut(self) -> None:
        """Go on behind the last whole frame: from here on it is acted on what a killed process wrote."""
        self._held.look(self._at[1] + self._torn)
        if self._torn:
            os.ftruncate(self._held.file, self._at[1])
        os.fsync(self._held.file)
        self._synced = self._at[0]
        self._look()

    @property
    def position(self) -> Position:
        """Number and offset of the next frame, hash of the last one. Keep it only after a `sync`."""
        return self._at

    def append_all(self, frames: Sequence[tuple[int, Mapping[str, Any], Arrays | None]]) -> int:
        """Add frames, all or none, and say the number of the last. From now on they survive this process."""
        self._same_process()
        with self._changed:
            self._usable()
            self._look()
            number, end, last = self._at
            own, parts = bytes.fromhex(last), []
            for kind, notes, arrays in frames:
                part, own = encode(number, kind, own, notes, arrays)
                parts.append(part)
                number += 1
            data = b"".join(parts)
            try:
                self._held.write(data)
                self._at = (number, end + len(data), own.hex())
            except BaseException as error:
                self._undo(error)
                raise
            return number - 1

    def sync(self, number: int | None = None) -> None:
        """Return when frame `number`, or all that was appended, is on the disk, in a file that is still in its place.
        One thread waits for the disk, the others for it; what was appended meanwhile is for the next round."""
        self._same_process()
        wanted = self._at[0] if number is None else number + 1
        if wanted > self._at[0]:
            raise ValueError(f"frame {number} was not appended")
        try:
            try:
                self._bring(wanted)
            finally:
                self._let_go_on()
        finally:  # once more, if an interruption came just there: the others would wait for ever
            self._let_go_on()

    def _bring(self, wanted: int) -> None:
        """Bring the first `wanted` frames to the disk, unless another thread does."""
        me = threading.get_ident()
        with self._changed:
            while self._synced < wanted and self._syncing not in (NOBODY, me):
                self._changed.wait()
            if self._synced >= wanted:
                return
            self._usable()
            self._syncing = me
            reached = self._at[0]
        try:
            os.fsync(self._held.file)
        except OSError as error:  # the system may forget what it could not write, and call the next one a success
            self._failure = self._failure or f"it could not be brought to the disk ({error})"
            raise
        with self._changed:
            self._look()
            self._synced = reached

    def _let_go_on(self) -> None:
        """Those who wait for this thread need wait no more."""
        if self._syncing == threading.get_ident():
            with self._changed:
                self._syncing = NOBODY
                self._changed.notify_all()

    def close(self) -> None:
        """Bring the rest to the disk, and give the file and its lock back."""
        if os.getpid() != self._process:
            return  # the file is the other process's
        try:
            if self._held.file >= 0 and not self._failure:
                self.sync()
        finally:
            with self._changed:
                while self._syncing not in (NOBODY, threading.get_ident()):
                    self._changed.wait()
                self._held.close()

    def _same_process(self) -> None:  # before any lock is waited for: a fork copies locks that nobody gives back
        if os.getpid() != self._process:
            raise OSError(f"{self.path} was opened before this process was forked: open it in one process, after that")

    def _usable(self) -> None:
        if self._held.file < 0:
            raise OSError(f"{self.path} was closed")
        if self._failure:
            raise OSError(f"{self.path}: {self._failure}; what is not acknowledged may be lost. Open it again")

    def _look(self) -> None:
        try:
            self._held.look(self._at[1])
        except Changed as error:
            self._failure = str(error)
            raise

    def _undo(self, error: BaseException) -> None:
        """Cut off what was written of a frame that was not appended."""
        try:
            os.ftruncate(self._held.file, self._at[1])
        except OSError:  # a half frame is there, and is cut off when the log is opened next
            self._failure = f"it could not be written ({error})"

"""The journal's file, format 2: numbered frames, each with the hash of the one before it in its own; one writer.

    file:   MAGIC, then frames without a gap
    frame:  header (24): marker (3), kind (1), length of the payload (4), number (8), CRC32 of payload and hash (4),
            CRC32 of the 20 bytes before (4);  payload;  hash (32)

Why both CRCs and a hash. The header has a CRC of its own: a flipped bit in a length would otherwise make the rest of
the file look like an unfinished write. The other CRC tells a frame that was not written as it should have been from
one that was, and is not the next one of this chain: moved, put in, left out, or of another journal.

What is cut off when a log is opened, and reported in `cut`: a tail that can be a write that never ended. That is

- fewer bytes than the last frame says, or less than a header;
- a last frame whose CRC is wrong, with nothing but zeros, or nothing at all, behind it: a file system may grow a file
  before it fills it. It may also be an acknowledged frame that the disk spoiled; from the file alone nobody can tell.
  Therefore end a log that is closed with a frame that says nothing else (then only that one can be cut), and hand in
  `since`: a log that ends before it is refused.

Everything else is damage, and refused with its place: a wrong CRC with frames after it, a wrong number, a hash that
does not follow, and bytes that are no frame.
"""

import os
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from episafe.errors import DamagedFile
from episafe.storage.atomic_files import lock, sync_folder
from episafe.storage.frames import LARGEST, UNREADABLE, Arrays, Frame, Position, as_hash, decode, encode, link

MAGIC = b"episafe journal 2\n"
MARKER = b"eF2"
HEADER = struct.Struct("<3sBIQI")
CHECK = struct.Struct("<I")
HEAD, HASH = HEADER.size + CHECK.size, 32
CHUNK = 1 << 20


class Reader:
    """The frames of a file in order, from `since` on. When they are used up, `position` is where the next one would
    begin, and `torn` says how many bytes of an unfinished one are there."""

    def __init__(self, path: Path, genesis: str, since: Position | None = None) -> None:
        self.path, self.torn = path, 0
        self.number, self.end, previous = since or (0, len(MAGIC), genesis)
        self._begins, self._previous = since is None or since[0] == 0, as_hash(previous)

    @property
    def position(self) -> Position:
        """Number and offset of the next frame, hash of the last one."""
        return self.number, self.end, self._previous.hex()

    def __iter__(self) -> Iterator[Frame]:
        """Frames; `DamagedFile` at the first one that is not what was written."""
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not self._starts(file, size):
                return
            while self.end < size:
                frame, length = self._next(file, size)
                if frame is None:
                    self.torn = size - self.end
                    return
                self.number, self.end, self._previous = frame.number + 1, self.end + length, as_hash(frame.hash)
                yield frame

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
            raise DamagedFile(
                f"{self.path} has {size} bytes, and had {self.end} when its frame {self.number - 1} was known to be "
                "kept: it was cut short. Restore it from a copy"
            )
        file.seek(self.end - HASH)
        if file.read(HASH) != self._previous:
            raise self._damaged("does not follow the one that was before it when a checkpoint was written")
        return True

    def _next(self, file: IO[bytes], size: int) -> tuple[Frame | None, int]:
        head = file.read(HEAD)
        if len(head) < HEAD:
            if MARKER.startswith(head[: len(MARKER)].rstrip(b"\0")):
                return None, 0
            raise self._damaged("has no frame")
        marker, kind, length, number, checksum = HEADER.unpack(head[: HEADER.size])
        if marker != MARKER or CHECK.unpack(head[HEADER.size :])[0] != zlib.crc32(head[: HEADER.size]):
            if MARKER.startswith(marker.rstrip(b"\0")) and _only_zeros(file):
                return None, 0  # no whole frame: those do not end in zeros
            raise self._damaged("has a damaged header")
        if number != self.number:
            raise self._damaged(f"says that it is number {number}: frames were left out, put in or moved")
        if length > LARGEST:
            raise self._damaged(f"says that it has {length} bytes, more than any")
        if self.end + HEAD + length + HASH > size:
            return None, 0
        body = file.read(length + HASH)
        if zlib.crc32(body) != checksum:
            if _only_zeros(file):
                return None, 0
            raise self._damaged("does not match its checksum")
        payload, own = body[:length], body[length:]
        if link(self._previous, number, kind, payload) != own:
            raise self._damaged("does not follow from the one before it: one of them was changed, or is of another log")
        try:
            return Frame(number, kind, *decode(payload), self.end, own.hex()), HEAD + length + HASH
        except UNREADABLE as error:
            raise self._damaged(f"cannot be read ({error})") from error

    def _damaged(self, what: str) -> DamagedFile:
        return DamagedFile(
            f"{self.path}: frame {self.number} at byte {self.end} {what}; everything before it is whole. Restore the "
            "file from a copy; nothing was changed"
        )


def read(path: Path, genesis: str, since: Position | None = None) -> Iterator[Frame]:
    """Frames of a log that may be open in another process; an unfinished one at its end is not there yet."""
    return iter(Reader(path, genesis, since))


class Log:
    """A log that is locked against every other process; `begin` before anything else.

    `append` and `sync` may be called from any thread: those that wait for the disk at the same time share one fsync.

    Args:
        path: the file; it is made if it is missing.
        genesis: SHA-256 that frame 0 follows from.
    """

    def __init__(self, path: Path, genesis: str) -> None:
        self.path, self._genesis, self._process = path, genesis, os.getpid()
        self._changed, self._failure, self._syncing, self._synced = threading.Condition(), "", False, 0
        self._at: Position = (0, 0, genesis)  # one value, so that an interruption cannot leave half of it changed
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            lock(self._file, path)
            _read_from_disk(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def begin(self, since: Position | None = None) -> tuple[list[Frame], int]:
        """Read the frames from `since` on, a `position` from after a `sync`; an unfinished last one is cut off.

        Returns:
            The frames, and how many bytes were cut off, which nobody was told are kept.
        """
        reader = Reader(self.path, self._genesis, since)
        frames = list(reader)
        if reader.torn:
            os.ftruncate(self._file, reader.end)
        self._at = reader.position
        if reader.end == 0:
            self._write(MAGIC, 0)
            self._at = (0, len(MAGIC), self._genesis)
            sync_folder(self.path.parent)
        os.fsync(self._file)  # what a killed process wrote is acted on from here on
        self._synced = self._at[0]
        self._look()
        return frames, reader.torn

    @property
    def position(self) -> Position:
        """Number and offset of the next frame, hash of the last one. Keep it only after a `sync`."""
        return self._at

    def append(self, kind: int, notes: Mapping[str, Any], arrays: Arrays | None = None) -> int:
        """Add a frame, whole or not at all, and say its number. From now on it survives this process."""
        payload = encode(notes, arrays)
        self._same_process()
        with self._changed:
            self._usable()
            self._look()
            number, end, last = self._at
            own = link(as_hash(last), number, kind, payload)
            header = HEADER.pack(MARKER, kind, len(payload), number, zlib.crc32(own, zlib.crc32(payload)))
            data = b"".join([header, CHECK.pack(zlib.crc32(header)), payload, own])
            self._write(data, end)
            self._at = (number + 1, end + len(data), own.hex())
            return number

    def sync(self, number: int | None = None) -> None:
        """Return when frame `number`, or all that was appended, is on the disk, in a file that is still in its place.
        One thread waits for the disk, the others for it; what was appended meanwhile is for the next round."""
        self._same_process()
        with self._changed:
            self._usable()
            wanted = self._at[0] if number is None else number + 1
            if wanted > self._at[0]:
                raise ValueError(f"frame {number} was not appended")
            while self._synced < wanted and self._syncing:
                self._changed.wait()
                self._usable()
            if self._synced >= wanted:
                return
            self._syncing, reached = True, self._at[0]
        kept, reason = False, ""
        try:
            os.fsync(self._file)
            kept = True
        except OSError as error:  # the system may forget what it could not write, and call the next fsync a success
            reason = f"it could not be brought to the disk ({error})"
            raise
        finally:
            with self._changed:
                self._syncing, self._failure = False, self._failure or reason
                self._changed.notify_all()
                if kept:
                    self._look()
                    self._synced = reached

    def close(self) -> None:
        """Bring the rest to the disk, and give the file and its lock back."""
        if os.getpid() != self._process:
            return  # the file is the other process's
        try:
            if self._file >= 0 and not self._failure:
                self.sync()
        finally:
            with self._changed:
                while self._syncing:
                    self._changed.wait()
                file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def _same_process(self) -> None:  # before any lock is waited for: a fork copies locks that nobody gives back
        if os.getpid() != self._process:
            raise OSError(f"{self.path} was opened before this process was forked: open it in one process, after that")

    def _usable(self) -> None:
        if self._file < 0:
            raise OSError(f"{self.path} was closed")
        if self._failure:
            raise OSError(f"{self.path}: {self._failure}; what is not acknowledged may be lost. Open it again")

    def _look(self) -> None:
        """The file is still the one that was opened, and as long as it should be."""
        found = os.fstat(self._file)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            there = None
        if there is None or (there.st_ino, there.st_dev) != (found.st_ino, found.st_dev):
            self._failure = "it was deleted, moved or replaced while it was open"
        elif found.st_size != self._at[1]:
            self._failure = f"it has {found.st_size} bytes instead of {self._at[1]}: somebody else has changed it"
        if self._failure:
            self._usable()

    def _write(self, data: bytes, end: int) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except BaseException as error:
            try:
                os.ftruncate(self._file, end)
            except OSError:  # a half frame is there, and is cut off when the log is opened next
                self._failure = f"it could not be written ({error})"
            raise


def _only_zeros(file: IO[bytes]) -> bool:
    """Whether nothing else follows; the file is read on."""
    while chunk := file.read(CHUNK):
        if any(chunk):
            return False
    return True


def _read_from_disk(file: int) -> None:
    """Have the file read from the disk, not from memory: after an fsync that failed, memory may hold what is lost."""
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

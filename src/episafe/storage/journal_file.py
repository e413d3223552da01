"""The journal's file: one writer, appended to, never rewritten. Threads that wait for the disk share one fsync."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from episafe.storage.atomic_files import lock, sync_folder
from episafe.storage.frames import MAGIC, Arrays, Frame, Position, Reader, encode


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
        self._same_process()
        with self._changed:
            self._usable()
            self._look()
            number, end, last = self._at
            data, own = encode(number, kind, bytes.fromhex(last), notes, arrays)
            self._write(data, end)
            self._at = (number + 1, end + len(data), own.hex())
            return number

    def sync(self, number: int | None = None) -> None:
        """Return when frame `number`, or all that was appended, is on the disk, in a file that is still in its place.
        One thread waits for the disk, the others for it; what was appended meanwhile is for the next round."""
        self._same_process()
        mine, kept, reason = False, False, ""
        try:
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
                mine, reached = True, self._at[0]
                self._syncing = True
            os.fsync(self._file)
            kept = True
        except OSError as error:  # the system may forget what it could not write, and call the next fsync a success
            reason = f"it could not be brought to the disk ({error})" if mine else ""
            raise
        finally:
            if mine:
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


def _read_from_disk(file: int) -> None:
    """Have the file read from the disk, not from memory: after an fsync that failed, memory may hold what is lost."""
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

"""The journal's file: one writer, appended to, never rewritten."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from episafe.errors import InUse
from episafe.storage.atomic_files import sync_folder
from episafe.storage.frames import MAGIC, Arrays, Frame, Kind, Reader, encode


class Log:
    """An open journal, locked against every other process.

    Args:
        path: the file; it is made if it is missing.

    Attributes:
        frames: what was in it, in order.
        cut: how many bytes of an unfinished last frame were cut off; nobody was told that it is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._process = path, os.getpid()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            lock(self._file, path)
            reader = Reader(path)
            self.frames: list[Frame] = list(reader)
            self.cut, self._end = reader.torn, reader.end
            if self.cut:
                os.ftruncate(self._file, self._end)
            if self._end == 0:
                self._write(MAGIC)
                sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    @property
    def size(self) -> int:
        """Bytes up to the end of the last whole frame."""
        return self._end

    def append(self, kind: Kind, notes: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        """Add a frame, whole or not at all."""
        self._write(encode(kind, notes, arrays))

    def sync(self) -> None:
        """Return when all that was appended is on the disk, in a file that can still be found there."""
        if os.fstat(self._file).st_nlink == 0:
            raise OSError(f"{self.path} was deleted")
        os.fsync(self._file)

    def close(self) -> None:
        """Give the file and its lock back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        if os.getpid() != self._process:  # it has the file and the lock, and knows nothing of what the other one does
            raise OSError(f"{self.path} was opened before this process was forked: open it in one process, after that")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except BaseException:
            with suppress(OSError):  # then the half frame is cut off when the journal is opened next
                os.ftruncate(self._file, self._end)
            raise
        self._end += len(data)


def lock(file: int, path: Path) -> None:
    """Lock an open file or folder against every other process, until it is closed."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise OSError("journals need file locks of Linux or macOS: run without a folder here") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InUse(f"{path} is open in another process, or was not closed in this one: close it first") from error

"""A file that is held open: whether it is still the one in its place, and as long as it should be."""

import os
from pathlib import Path


class Changed(OSError):
    """A file that somebody else has changed while it was open."""


class Gone(Changed):
    """Bytes that were there are no longer: the file was cut short, deleted, moved or replaced."""


class Watch:
    """Whether an open file is still the one at its path. While it is open, no other file can have its number.

    Args:
        path: where it was opened.
        file: the open file.
    """

    def __init__(self, path: Path, file: int) -> None:
        self._path, held = os.fspath(path), os.fstat(file)
        self._number, self._device = held.st_ino, held.st_dev

    def look(self, size: int) -> None:
        """It is, and has `size` bytes."""
        try:
            there = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(f"{self._path} was deleted or moved while it was open") from None
        if there.st_ino != self._number or there.st_dev != self._device:
            raise Gone(f"{self._path} was replaced while it was open")
        if there.st_size != size:
            kind = Gone if there.st_size < size else Changed
            raise kind(f"{self._path} has {there.st_size} bytes instead of {size}: somebody else has changed it")


class HeldFile:
    """A file that nobody else may change while it is held.

    Args:
        path: the file.
        mode: as `os.open` takes it.
    """

    def __init__(self, path: Path, mode: int = os.O_RDONLY) -> None:
        self._file = os.open(path, mode | os.O_CLOEXEC)
        # bytes, and lines where they are counted: one value, so that an interruption cannot change half
        self._watch, self._at = Watch(path, self._file), (os.fstat(self._file).st_size, 0)

    @property
    def size(self) -> int:
        """Bytes of it, as it should have them."""
        return self._at[0]

    def look(self) -> None:
        """It is still the file that was opened, and as long as it should be."""
        self._watch.look(self._at[0])

    def close(self) -> None:
        """Give the file back."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def read_from_disk(file: int) -> None:
    """Have the file read from the disk, not from memory: after an fsync that failed, memory may hold what is lost."""
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

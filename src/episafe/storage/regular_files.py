"""Files that are read: opened in this one place, and only regular ones, of at most so many bytes.

A pipe would be waited for, a device never ends, and anything may stand where a small file is expected. So opening
waits for nothing, and the file is looked at before a byte of it is read.
"""

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from episafe.errors import DamagedFile

REMEDY = "restore it from a copy, or delete it"
AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_FILES = (errno.ENXIO, errno.EOPNOTSUPP, errno.ENODEV)  # how a system says that sockets and devices are not opened
BUFFER = 1 << 16  # bytes that are read at once


def open_regular(path: Path, most: int | None = None, remedy: str = REMEDY) -> BufferedReader:
    """A regular file of at most `most` bytes, open for reading; anything else is a DamagedFile with the remedy.

    What is not there, or may not be read, is the OSError of the system, which names the file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | AT_ONCE)
    except OSError as error:
        if error.errno in NO_FILES:
            raise _irregular(path, remedy) from error
        raise
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise _irregular(path, remedy)
        if most is not None and found.st_size > most:
            raise DamagedFile(f"{path} has {found.st_size} bytes, more than the {most} that are read: {remedy}")
        return BufferedReader(FileIO(handle, "rb"), BUFFER)
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, most: int, remedy: str = REMEDY) -> bytes:
    """All of a regular file of at most `most` bytes; of one that grows meanwhile, as many."""
    with open_regular(path, most, remedy) as file:
        return file.read(most)


def refuse_irregular(path: Path, remedy: str = REMEDY) -> None:
    """A DamagedFile where something stands that is no regular file; nothing need be there."""
    if path.exists() and not path.is_file():
        raise _irregular(path, remedy)


def _irregular(path: Path, remedy: str) -> DamagedFile:
    return DamagedFile(f"{path} is no regular file, but a folder, a pipe or a device: {remedy}")

"""A log in a folder: `log.jsonl`, one event per line, written under the lock on `log.lock`.

Threads that wait for durability share one fsync. A torn last line, left by a kill or a full disk, is cut off under the
lock and kept in `log.torn-<position>`. After a failed fsync nothing more is written until the log is reopened, because
the system may have dropped the data.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from episafe.core.errors import DamagedLog

LOCK_TIMEOUT = 30.0  # seconds; the incumbent acts if another process holds the lock for longer

if sys.platform == "win32":
    from filelock import FileLock

    def exclusive(path: Path) -> FileLock:
        """Return a context in which this process alone holds the lock on a file."""
        return FileLock(path, LOCK_TIMEOUT)

else:
    import fcntl

    @contextmanager
    def exclusive(path: Path) -> Iterator[None]:
        """Return a context in which this process alone holds the lock on a file.

        It is the lock that `filelock` takes, which needs as much CPU for it as all the rest of a report together.
        """
        file, deadline, pause = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), time.monotonic() + LOCK_TIMEOUT, 0.0001
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"{path} is locked by another process for {LOCK_TIMEOUT:g} s") from None
                    time.sleep(pause)
                    pause = min(2 * pause, 0.01)
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
            os.close(file)


class FileLog:
    """A log in a folder.

    Args:
        folder: where `log.jsonl` is; created if missing.
        fsync: makes a file descriptor durable; for tests and benchmarks.

    Attributes:
        torn: the files that hold torn lines, cut off since this log was opened.
    """

    def __init__(self, folder: str | Path, fsync: Callable[[int], None] = os.fsync) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "log.jsonl"
        self.torn: list[Path] = []
        self._fsync, self._failed = fsync, ""
        self._mutex, self._lock_path = threading.RLock(), self.folder / "log.lock"
        self._syncing = threading.Lock()  # held during fsync: those that wait for it find their lines durable
        self._written = self._durable = 0
        self._end = 0, 0  # lines and bytes that were read
        new = not self.path.exists()
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        if new and os.name == "posix":  # the name of a new file is durable once its folder is
            folder_file = os.open(self.folder, os.O_RDONLY)
            os.fsync(folder_file)
            os.close(folder_file)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Return a context in which this thread of this process alone writes."""
        with self._mutex, exclusive(self._lock_path):
            self._check()
            self._cut_torn_line()
            yield

    def read(self, since: int = 0) -> Iterator[bytes]:
        """Return the complete lines from number `since` on; needs no lock."""
        number, position = self._end if since >= self._end[0] else (0, 0)
        size = os.fstat(self._file).st_size
        if size < position:
            raise DamagedLog(f"{self.path} has become shorter: its end was cut off; restore it from a backup")
        if size == position:
            return
        with open(self.path, "rb") as file:
            file.seek(position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                number, position = number + 1, position + len(line)
                if number > since:
                    yield line[:-1]
        self._end, self._written = (number, position), max(self._written, position)

    def append(self, lines: Sequence[bytes], number: int) -> None:
        """Append lines in one write. If it fails, complete lines stay, since a reader may have applied them."""
        data, size, written = b"\n".join(lines) + b"\n", os.fstat(self._file).st_size, 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, size + data.rfind(b"\n", 0, written) + 1)
            raise
        self._written = size + len(data)
        if self._end == (number, size):
            self._end = number + len(lines), self._written  # need not be read again

    def sync(self) -> None:
        """Return once everything appended or read before the call is durable; one thread calls fsync for all."""
        wanted = self._written
        with self._syncing:
            if self._durable >= wanted:
                return
            self._check()
            reached = self._written
            try:
                self._fsync(self._file)
            except OSError as error:
                self._failed = f"fsync of {self.path} failed ({error}): reopen the session once the disk works"
                self._check()
            self._durable = reached

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._failed = -1, "the session is closed: open it again"

    def _check(self) -> None:
        if self._failed:
            raise OSError(self._failed)

    def _cut_torn_line(self) -> None:
        """Cut off an incomplete last line and keep it in a file beside the log."""
        size = os.fstat(self._file).st_size
        if size in (0, self._end[1]) or _read_at(self._file, 1, size - 1) == b"\n":
            return
        tail = b""
        while b"\n" not in tail and len(tail) < size:
            length = min(size, 2 * len(tail) + 4096)
            tail = _read_at(self._file, length, size - length)
        torn = tail[tail.rfind(b"\n") + 1 :]
        kept = self.folder / f"log.torn-{size - len(torn)}"
        kept.write_bytes(torn)
        self.torn.append(kept)
        os.ftruncate(self._file, size - len(torn))


def _read_at(file: int, length: int, position: int) -> bytes:
    """Return bytes of a file at a position; the file is opened for appending, so that seeking changes nothing."""
    os.lseek(file, position, os.SEEK_SET)
    return os.read(file, length)

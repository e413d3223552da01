"""The journal's file: one writer, appended to, never rewritten. Threads that wait for the disk share one fsync."""

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from episafe.errors import DamagedFile
from episafe.storage.atomic_files import lock
from episafe.storage.frames import HASH, Arrays, CutShort, Frame, Position, Reader, as_hash, encode
from episafe.storage.regular_files import refuse_irregular
from episafe.storage.watched_file import Changed, Watch, read_from_disk

NOBODY = 0  # no thread has this number


class Log:
    """A log that is locked against every other process; `begin` and `cut` before anything else.

    `append` and `sync` may be called from any thread: those that wait for the disk at the same time share one fsync.

    Args:
        path: the file, with its first frame.
        genesis: SHA-256 that frame 0 follows from.
    """

    def __init__(self, path: Path, genesis: str) -> None:
        self.path, self._genesis, self._process = path, genesis, os.getpid()
        self._changed, self._failure, self._syncing, self._synced = threading.Condition(), "", NOBODY, 0
        self._torn = 0
        self._at: Position = (0, 0, genesis)  # one value, so that an interruption cannot leave half of it changed
        refuse_irregular(path)
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            lock(self._file, path)
            self._watch = Watch(path, self._file)
            read_from_disk(self._file)
        except FileNotFoundError:
            raise DamagedFile(f"{path} is missing: restore it from a copy; nothing was changed") from None
        except BaseException:
            self._give_back()
            raise

    def holds(self, position: Position) -> bool:
        """Whether a `position` from after a `sync` is one of this log; `CutShort` where it ends before."""
        number, end, last = position
        if end > os.fstat(self._file).st_size:
            raise CutShort(self.path, number, end)
        return number == 0 or os.pread(self._file, HASH, end - HASH) == as_hash(last)

    def begin(self, since: Position | None = None) -> tuple[list[Frame], int]:
        """Read the frames from `since` on, a `position` that it `holds`.

        Returns:
            The frames, and the bytes of an unfinished one behind them, which nobody was told is kept. `cut` it off.
        """
        reader = Reader(self.path, self._genesis, since)
        frames = list(reader)
        if reader.number == 0:
            raise DamagedFile(f"{self.path} lacks even its first frame: restore it from a copy; nothing was changed")
        self._at, self._torn = reader.position, reader.torn
        return frames, reader.torn

    def cut(self) -> None:
        """Go on behind the last whole frame: from here on it is acted on what a killed process wrote."""
        self._watch.look(self._at[1] + self._torn)
        if self._torn:
            os.ftruncate(self._file, self._at[1])
        os.fsync(self._file)
        self._synced = self._at[0]
        self._look()

    @property
    def position(self) -> Position:
        """Number and offset of the next frame, hash of the last one. Keep it only after a `sync`."""
        return self._at

    def append(self, kind: int, notes: Mapping[str, Any], arrays: Arrays | None = None) -> int:
        """`append_all` of one."""
        return self.append_all([(kind, notes, arrays)])

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
                self._write(data)
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
            os.fsync(self._file)
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
            if self._file >= 0 and not self._failure:
                self.sync()
        finally:
            with self._changed:
                while self._syncing not in (NOBODY, threading.get_ident()):
                    self._changed.wait()
                self._give_back()

    def _give_back(self) -> None:
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
        try:
            self._watch.look(self._at[1])
        except Changed as error:
            self._failure = str(error)
            raise

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _undo(self, error: BaseException) -> None:
        """Cut off what was written of a frame that was not appended."""
        try:
            os.ftruncate(self._file, self._at[1])
        except OSError:  # a half frame is there, and is cut off when the log is opened next
            self._failure = f"it could not be written ({error})"

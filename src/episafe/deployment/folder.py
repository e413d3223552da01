"""The folder of a journal: which files, and how it begins and is opened."""

import hashlib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from episafe.errors import DamagedFile
from episafe.storage import checkpoint
from episafe.storage.atomic_files import remove_unfinished, write_text
from episafe.storage.audit_trail import TRAIL, Trail, TrailFile, broken_at, hash_of, read_trail
from episafe.storage.frames import Frame, Kind
from episafe.storage.log import Log, lock
from episafe.storage.toml_settings import to_toml

HEAD, LOG, PROBLEM, TOLD = "journal.toml", "journal.log", "problem.npz", "told.npz"
FORMAT = 1


def holds_journal(folder: Path) -> bool:
    """Whether a journal was begun here."""
    return (folder / HEAD).is_file()


@contextmanager
def beginning(folder: Path) -> Iterator[None]:
    """Where the files of a new journal are written: by one process at a time, and never over those of another one."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, folder)
        if holds_journal(folder):
            raise ValueError(f"{folder} holds a journal already: resume it, choose another folder, or delete it")
        if (folder / LOG).exists():
            raise DamagedFile(f"{folder} has a {LOG} without its {HEAD}: restore it from a copy, or delete both")
        yield
    finally:
        os.close(handle)


def write_head(folder: Path, settings: Mapping[str, str | int | float]) -> None:
    """Begin a journal; the other files that belong to it are there already. It is never changed afterwards."""
    write_text(folder / HEAD, to_toml({"format": FORMAT, **settings}))


def read_head(folder: Path) -> dict[str, Any]:
    """What `write_head` wrote, and its hash as `genesis`."""
    path = folder / HEAD
    try:
        data = path.read_bytes()
        found = tomllib.loads(data.decode())
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']}, and this version of episafe reads {FORMAT}")
        for name in ("kind", "fingerprint"):
            found[name]
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no journal: there is no {HEAD}") from None
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged or of another version ({error}): restore it from a copy") from error
    return {**found, "genesis": hashlib.sha256(data).hexdigest()}


def check_file(folder: Path, name: str, head: Mapping[str, Any]) -> Path:
    """The path of a file of the journal, if it is the one that it was begun with."""
    path = folder / name
    if not path.is_file() or file_hash(path) != head.get(f"{name.partition('.')[0]}_sha256"):
        raise DamagedFile(f"{path} is not the file that this journal was begun with: restore it from a copy")
    return path


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def refuse_used(agent: Any) -> None:
    """A journal begins with an agent that knows nothing: what it learned elsewhere could not be learned again."""
    if agent.is_used:
        raise ValueError(
            "the agent has planned or learned already: open a journal with a new agent, built as it was; logs are "
            "learned afterwards, by es.learn_log(live, …)"
        )


class Journal:
    """An open journal: its head, its log, and its trail, which says the same as the log's plans.

    Frames go to the log first. A line of the trail is written when its frame is on the disk, so that the trail never
    says more than the log.

    Args:
        folder: where it was begun.
        settings: of the agent, as its trail says them.
        threshold: b.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], threshold: float) -> None:
        self.folder, self.head = folder, read_head(folder)
        self.log = Log(folder / LOG)
        self.trail = Trail(threshold, settings, self.head["genesis"])
        self._file: TrailFile | None = None
        self._pending: list[str] = []
        try:
            check_begin(self.log.frames, self.head, folder)
            for name in (HEAD, PROBLEM, TOLD, *checkpoint.NAMES):
                remove_unfinished(folder / name)
            if not self.log.frames:
                self.log.append(Kind.BEGIN, {"genesis": self.head["genesis"]})
        except BaseException:
            self.log.close()
            raise

    def continue_trail(self, lines: Iterable[str]) -> None:
        """Open the trail, which must be the first of `lines`, those of the log; what it lacks of them is added."""
        due = list(lines)
        path = self.folder / TRAIL
        found, torn = read_trail(path)
        if found != due[: len(found)]:
            n = next((n for n, (a, b) in enumerate(zip(found, due, strict=False)) if a != b), len(due))
            if n < len(found) and n == broken_at(found, self.head["genesis"]):
                raise DamagedFile(f"{path}: line {n} was changed; restore it from a copy, or audit the folder")
            raise DamagedFile(f"{path}: line {n} is not what {LOG} says: one of them was cut short or changed")
        missing = due[len(found) :]
        self._file = TrailFile(path, sum(len(line.encode()) + 1 for line in found))
        if missing or torn:
            self._file.append(missing)
        if self.log.cut:
            self.fault(f"cut off {self.log.cut} bytes of an unfinished frame, which nobody was told is kept")
        if missing or torn:
            self.fault(f"completed the audit trail by {len(missing)} lines that the journal has")
        self.sync()

    def fault(self, reason: str) -> None:
        """Record what went wrong."""
        self.log.append(Kind.FAULT, {"reason": reason})

    def add_lines(self, lines: Iterable[str]) -> None:
        """Lines of frames that were appended; they are written with the next `sync`."""
        self._pending += lines

    def sync(self) -> None:
        """Return when frames, then lines, are on the disk."""
        self.log.sync()
        if self._file is not None and self._pending:
            self._file.append(self._pending)
            self._pending = []
            self._file.sync()

    def close(self) -> None:
        """Give files and lock back; what was not synced is."""
        try:
            self.sync()
        finally:
            self.release()

    def release(self) -> None:
        """Give files and lock back as they are."""
        self.log.close()
        if self._file is not None:
            self._file.close()


def check_begin(frames: list[Frame], head: Mapping[str, Any], folder: Path) -> None:
    """The log belongs to this head."""
    if frames and (frames[0].kind != Kind.BEGIN or frames[0].notes.get("genesis") != head["genesis"]):
        raise DamagedFile(f"{folder / LOG} does not belong to {folder / HEAD}: restore both from one copy")


def head_of(lines: list[str], genesis: str) -> str:
    """The hash of the last line."""
    return hash_of(lines[-1]) if lines else genesis

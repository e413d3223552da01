"""Files: written whole or not at all, read without executing anything."""

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from episafe.errors import DamagedFile, InUse
from episafe.storage import sealed_npz
from episafe.storage.regular_files import refuse_irregular

NOTES = "notes"  # the .npz member that holds plain values as JSON
HEADS = ("journal.toml", "run.toml")  # that folders of journals and of records are known by
PARTS = (
    "journal.log",
    "audit.jsonl",
    "problem.npz",
    "told.npz",
    "checkpoint-0.npz",
    "checkpoint-1.npz",
    "episodes.npz",
)


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` only when the block ends without error."""
    refuse_irregular(path, "choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            umask = os.umask(0o077)  # which can only be read by setting it
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def as_output(path: str | Path) -> Path:
    """A name that a user gives for a file to be written; refused where a journal or a record has its own file there."""
    path = Path(path)
    if path.name in (*HEADS, *PARTS) and path.exists() and any((path.parent / head).exists() for head in HEADS):
        raise ValueError(f"{path} is a file of the folder {path.parent}, which it would destroy: choose another name")
    return path


def remove_unfinished(path: Path) -> None:
    """Delete what writers of `path` that were killed have left; nobody else may be writing it."""
    for left in path.parent.glob(f".{path.name}.*"):
        left.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk: a file that was renamed is only then safe from a loss of power."""
    if os.name != "posix":  # elsewhere folders cannot be opened, and renaming is safe by itself
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def lock(file: int, path: Path) -> None:
    """Lock an open file or folder against every other process, until it is closed."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise OSError("journals need file locks of Linux or macOS: run without a folder here") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise InUse(f"{path} is open in another process, or was not closed in this one: close it first") from error
    except OSError as error:
        raise OSError(f"{path} cannot be locked ({error}): keep journals on a file system with locks") from error


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""
    with atomic(path) as file:
        file.write(content)


def sealed_bytes(arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> bytes:
    """What `write_arrays` would write, as bytes."""
    file = io.BytesIO()
    sealed_npz.write(file, {NOTES: np.array(json.dumps(notes)), **arrays}, compress=True)
    return file.getvalue()


def write_arrays(path: Path, arrays: Mapping[str, Any], notes: Mapping[str, Any], *, compress: bool = True) -> None:
    """Write arrays and JSON-like notes to one sealed .npz file, atomically."""
    with atomic(path) as file:
        sealed_npz.write(file, {NOTES: np.array(json.dumps(notes)), **arrays}, compress=compress)


def read_arrays(path: Path, names: set[str] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and notes of a file that `write_arrays` wrote; anything else is a DamagedFile. `names`: those allowed."""
    arrays: dict[str, Any] = sealed_npz.read(path, None if names is None else names | {NOTES})
    try:
        notes = json.loads(str(arrays.pop(NOTES)))
        if not isinstance(notes, dict):
            raise ValueError("its notes are not a mapping")
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFile(
            f"{path} is damaged or no file of episafe ({type(error).__name__}: {error}): delete it and make it again"
        ) from error
    return arrays, notes

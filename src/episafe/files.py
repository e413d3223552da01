"""Files: written whole or not at all, read without executing anything."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from episafe.errors import DamagedFile

NOTES = "notes"  # the .npz member that holds plain values as JSON


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` only when the block ends without error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            os.chmod(name, 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, atomically."""
    with atomic(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """Write arrays and JSON-like notes to one compressed .npz file."""
    with atomic(path) as file:
        members: dict[str, Any] = {NOTES: np.array(json.dumps(notes)), **arrays}
        np.savez_compressed(file, allow_pickle=False, **members)


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and notes of a file that `write_arrays` wrote; anything else is a DamagedFile."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        notes = json.loads(str(arrays.pop(NOTES)))
        if not isinstance(notes, dict):
            raise ValueError("its notes are not a mapping")
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # a torn or foreign file fails in any layer: zip, zlib, the array header, JSON
        raise DamagedFile(
            f"{path} is damaged or no file of episafe ({type(error).__name__}: {error}): delete it and make it again"
        ) from error
    return arrays, notes

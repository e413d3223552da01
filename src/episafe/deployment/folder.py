"""The folder of a journal: which files belong to it, how it begins, and whether they are still those it began with."""

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from episafe.errors import DamagedFile
from episafe.storage import checkpoint
from episafe.storage.atomic_files import lock, write_text
from episafe.storage.audit_trail import TRAIL
from episafe.storage.toml_settings import to_toml

HEAD, LOG, PROBLEM, TOLD = "journal.toml", "journal.log", "problem.npz", "told.npz"
FORMAT = 2


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
        head = tomllib.loads(data.decode())
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {head['format']}, and this version of episafe reads {FORMAT}")
        for name in ("kind", "fingerprint"):
            head[name]
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no journal: there is no {HEAD}") from None
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged or of another version ({error}): restore it from a copy") from error
    return {**head, "genesis": hashlib.sha256(data).hexdigest()}


def check_file(folder: Path, name: str, head: Mapping[str, Any]) -> Path:
    """The path of a file of the journal, if it is the one that it was begun with."""
    path = folder / name
    if not path.is_file() or file_hash(path) != head.get(f"{name.partition('.')[0]}_sha256"):
        raise DamagedFile(f"{path} is not the file that this journal was begun with: restore it from a copy")
    return path


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove_journal(folder: Path) -> None:
    """Delete a journal and what belongs to it, its head last; a record stays."""
    for name in (LOG, TRAIL, PROBLEM, TOLD, *checkpoint.NAMES, HEAD):
        (folder / name).unlink(missing_ok=True)

"""The folder of a journal: which files belong to it, how it begins, and whether they are still those it began with."""

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from episafe.deployment.frame_kinds import Kind
from episafe.errors import DamagedFile
from episafe.storage import sealed_npz
from episafe.storage.atomic_files import lock, write_text
from episafe.storage.audit_trail import TRAIL
from episafe.storage.journal_files import HASH, MAGIC, as_hash, encode
from episafe.storage.regular_files import open_regular, read_regular
from episafe.storage.toml_settings import to_toml

HEAD, LOG, PROBLEM, TOLD = "journal.toml", "journal.log", "problem.npz", "told.npz"
FORMAT, AUDITED = 2, (1, 2)  # what is written and gone on with, and what can be audited
LARGEST_HEAD = 1 << 20  # bytes


def holds_journal(folder: Path) -> bool:
    """Whether a journal was begun here, as far as its name says."""
    return (folder / HEAD).exists()


def require_no_file(folder: Path) -> None:
    """Refuse what is there and is no folder."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder: name the folder of a journal, or a new one")


@contextmanager
def beginning(folder: Path) -> Iterator[None]:
    """Where the files of a new journal are written: by one process at a time, and never over those of another one."""
    require_no_file(folder)
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        lock(handle, folder)
        if holds_journal(folder):
            raise ValueError(f"{folder} holds a journal already: resume it, choose another folder, or delete it")
        unfinished = {LOG: len(_first_bytes("00" * HASH)), TRAIL: 0}  # at most, if somebody was stopped while he began
        if any(_size(folder / name) > most for name, most in unfinished.items()):
            raise DamagedFile(f"{folder} has a {LOG} without its {HEAD}: restore it from a copy, or delete both")
        yield
    finally:
        os.close(handle)


def write_head(folder: Path, settings: Mapping[str, str | int | float]) -> None:
    """Begin a journal: log and trail, and its head last. It is never changed afterwards, and like no other one's."""
    text = to_toml({"format": FORMAT, "id": token_hex(16), **settings})
    genesis = hashlib.sha256(text.encode()).hexdigest()
    (folder / TRAIL).write_bytes(b"")
    with (folder / LOG).open("wb") as file:
        file.write(_first_bytes(genesis))
        file.flush()
        os.fsync(file.fileno())
    write_text(folder / HEAD, text)


def read_head(folder: Path, formats: tuple[int, ...] = (FORMAT,)) -> dict[str, Any]:
    """What `write_head` wrote, of one of these formats, and its hash as `genesis`."""
    path = folder / HEAD
    require_no_file(folder)
    try:
        data = read_regular(path, LARGEST_HEAD)
        head = tomllib.loads(data.decode())
        if head["format"] not in formats:
            is_newer = type(head["format"]) is int and head["format"] > FORMAT
            raise DamagedFile(
                f"{path} has format {head['format']}, and this version of episafe goes on with {FORMAT}: "
                f"{'update episafe' if is_newer else 'begin a new folder'}. `episafe audit` reads formats {AUDITED[0]} "
                f"to {AUDITED[-1]}, es.Record.load and `episafe report` the record of a finished run"
            )
        for name in ("kind", "fingerprint"):
            head[name]
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no journal: there is no {HEAD}") from None
    except DamagedFile:
        raise
    except (KeyError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged or of another version ({error}): restore it from a copy") from error
    return {**head, "genesis": hashlib.sha256(data).hexdigest()}


def agent_settings(head: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent said of itself when the journal was begun."""
    return json.loads(head.get("agent_settings", "{}"))


def settings_of(head: Mapping[str, Any]) -> dict[str, Any]:
    """The same: those settings that are numbers or words."""
    return {name: value for name, value in agent_settings(head).items() if isinstance(value, str | int | float)}


def constraint_names(head: Mapping[str, Any], m: int) -> tuple[str, ...]:
    """What people call each of several constraints; () of one. Journals of before do not say it."""
    said = json.loads(head.get("constraint_names", "[]"))
    names = said if len(said) == m else [f"constraint {c}" for c in range(m)]
    return tuple(map(str, names)) if m > 1 else ()


def check_file(folder: Path, name: str, head: Mapping[str, Any]) -> Path:
    """The path of a file of the journal, if it is the one that it was begun with."""
    path = folder / name
    known = head.get(f"{name.partition('.')[0]}_sha256")
    if not sealed_npz.is_archive(path) or file_hash(path) != known:  # what is none may be long
        raise DamagedFile(f"{path} is not the file that this journal was begun with: restore it from a copy")
    return path


def stored_problem(folder: Path, head: Mapping[str, Any]) -> Any:
    """The problem of a journal, a LinearCMDP; None where it holds none."""
    if "problem_sha256" not in head:
        return None
    from episafe.problems.cmdp import LinearCMDP  # and the compiler, for which who reads a head need not wait

    return LinearCMDP.load(check_file(folder, PROBLEM, head))


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_bytes(genesis: str) -> bytes:
    """A log of one frame."""
    return MAGIC + encode(0, Kind.BEGIN, as_hash(genesis), {"genesis": genesis}, None)[0]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

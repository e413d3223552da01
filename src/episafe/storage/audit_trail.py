"""The audit trail: a line of JSON for each plan that was deployed and each halt, with the hash of the line before it.

A line is `{…,"previous":"HASH","hash":"HASH"}`; its own hash is the SHA-256 of all that stands before `,"hash"`. Lines
are compared as text, so that nothing in them can be changed unseen, not even a space.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from episafe.errors import DamagedFile
from episafe.storage.atomic_files import sync_folder

TRAIL = "audit.jsonl"
END = '"}\n'  # of every line, after its hash
NOT_CONSTANTS = ("agent", "level", "delta", "statement", "replan", "search")


class Deployed(NamedTuple):
    """What a line says of one plan.

    Attributes:
        plan, episode: number of the plan, and of the first episode it was deployed for.
        source, lam, bound: as in the plan.
        learned: episodes that were learned from before it was made.
        log_dets: ln det Λ_h − d ln ρ then; for agents that count, Σ ln(n ∨ 1) of each step.
        state: SHA-256 of the agent's fingerprint and all it had learned from, which decide its state.
        besides: time, reason or weights of a mixture, where there are some.
    """

    plan: int
    episode: int
    source: str
    lam: float
    bound: float
    learned: int
    log_dets: Sequence[float]
    state: str
    besides: Mapping[str, Any] = {}


class Trail:
    """Writes lines, and remembers the last hash.

    Args:
        threshold: b.
        settings: of the agent: level, delta and constants are said in each line.
        genesis: what the first line calls the one before it: the hash of journal.toml.
    """

    def __init__(self, threshold: float, settings: Mapping[str, Any], genesis: str) -> None:
        self._threshold, self.head, self.count = float(threshold), genesis, 0
        numbers = {k: v for k, v in settings.items() if k not in NOT_CONSTANTS and isinstance(v, int | float)}
        constants = ",".join(f'"{name}":{_number(float(value))}' for name, value in numbers.items())
        delta = settings.get("delta")
        self._said = (
            f'"level":{json.dumps(settings.get("level", "heuristic"))},'
            f'"delta":{_number(float(delta)) if isinstance(delta, int | float) else "null"},"constants":{{{constants}}}'
        )

    def line(self, deployed: Deployed) -> str:
        """The next line: a plan that was deployed."""
        besides = "".join(f',"{name}":{json.dumps(value)}' for name, value in deployed.besides.items())
        text = (
            f'{{"line":{self.count},"plan":{deployed.plan},"episode":{deployed.episode},"source":"{deployed.source}",'
            f'"lam":{_number(deployed.lam)},"bound":{_number(deployed.bound)},"threshold":{_number(self._threshold)},'
            f'"margin":{_number(deployed.bound - self._threshold)},{self._said},"learned":{deployed.learned},'
            f'"log_dets":[{",".join(map(_number, deployed.log_dets))}]{besides},"state":"{deployed.state}"'
        )
        return self._chained(text)

    def event(self, what: str, **said: str) -> str:
        """The next line: something that is no plan, such as a halt."""
        besides = "".join(f',"{name}":{json.dumps(value)}' for name, value in said.items())
        return self._chained(f'{{"line":{self.count},"event":"{what}"{besides}')

    def _chained(self, text: str) -> str:
        text = f'{text},"previous":"{self.head}"'
        self.head, self.count = _hash(text), self.count + 1
        return f'{text},"hash":"{self.head}"}}'


def read_trail(path: Path, start: int = 0, head: str = "") -> tuple[list[str], bool]:
    """The lines of a trail, and whether an unfinished one was at its end.

    Args:
        path: the file.
        start: the byte to begin at, where a line ends whose hash is `head`; 0 for all lines.
        head: that hash.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(start - len(END) - len(head), 0))
            before, text = file.read(min(start, len(END) + len(head))), file.read().decode()
    except FileNotFoundError:
        before, text = b"", ""
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path} is no text ({error}): restore it from a copy") from error
    if start and before != f"{head}{END}".encode():
        raise DamagedFile(f"{path} was changed or cut short before byte {start}: restore it from a copy")
    *lines, rest = text.split("\n")
    return lines, bool(rest)


def broken_at(lines: Sequence[str], genesis: str) -> int | None:
    """The first line that does not follow from the one before it, or whose own hash is wrong; None if all is well."""
    previous = genesis
    for n, line in enumerate(lines):
        text, mark, end = line.rpartition(',"hash":"')
        own = _hash(text)
        if not mark or end != f'{own}"}}' or not text.endswith(f',"previous":"{previous}"'):
            return n
        if not text.startswith(f'{{"line":{n},'):
            return n
        previous = own
    return None


def hash_of(line: str) -> str:
    """The hash that a line says of itself."""
    return line.rpartition(',"hash":"')[2][:-2]


class TrailFile:
    """Lines on disk, appended to after the frames that they say the same as.

    Args:
        path: the file.
        keep: how many bytes of it are whole lines; the rest is cut off.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.size = keep
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        os.ftruncate(self._file, keep)
        sync_folder(path.parent)

    def append(self, lines: Sequence[str]) -> None:
        """Add lines, all or none."""
        if os.fstat(self._file).st_size != self.size:
            raise OSError("the audit trail was changed by somebody else while it was open")
        data = "".join(f"{line}\n" for line in lines).encode()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except BaseException:  # whole or not at all
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Return when they are on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        """Give the file back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _number(value: float) -> str:
    """A float as JSON, exactly; what is no number as null."""
    return repr(float(value)) if math.isfinite(value) else "null"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

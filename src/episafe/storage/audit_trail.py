"""The audit trail: a line of JSON for each plan that was deployed and each event, with the hash of the line before it.

A line is `{…,"previous":"HASH","hash":"HASH"}`; its own hash is the SHA-256 of all that stands before `,"hash"`. Lines
are compared as text, so that nothing in them can be changed unseen, not even a space.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from episafe.errors import DamagedFile
from episafe.storage.regular_files import open_regular
from episafe.types import Amount, Array, amount, amounts

TRAIL = "audit.jsonl"
END = '"}\n'  # of every line, after its hash
LARGEST_LINE = 1 << 24  # bytes
BESIDES = ("time", "reason", "weights", "names")  # of a plan, where its frame says them
NOT_CONSTANTS = ("agent", "level", "delta", "statement", "replan", "search")


class Trail:
    """Writes lines, and remembers the last hash.

    Args:
        threshold: b, or one a constraint, (m,); the lines then have lists.
        settings: of the agent: level, delta and constants are said in each line.
        genesis: what the first line calls the one before it: the hash of journal.toml.
    """

    def __init__(self, threshold: Amount, settings: Mapping[str, Any], genesis: str) -> None:
        self.head, self.count = genesis, 0
        self.restate(threshold, settings)

    def restate(self, threshold: Amount, settings: Mapping[str, Any]) -> None:
        """Say this threshold and these settings of the agent from the next line on."""
        self._thresholds = amounts(threshold)
        numbers = {k: v for k, v in settings.items() if k not in NOT_CONSTANTS and isinstance(v, int | float)}
        constants = ",".join(f'"{name}":{_number(float(value))}' for name, value in numbers.items())
        delta = settings.get("delta")
        self._said = (
            f'"level":{json.dumps(settings.get("level", "heuristic"))},'
            f'"delta":{_number(float(delta)) if isinstance(delta, int | float) else "null"},"constants":{{{constants}}}'
        )

    def line(self, notes: Mapping[str, Any], episode: int, learned: int, state: str) -> str:
        """The next line: a plan that was deployed.

        Args:
            notes: what its frame says: number, source, λ, one bound for each constraint, and ln det Λ_h − d ln ρ then,
                for agents that count Σ ln(n ∨ 1) of each step; time, reason, weights and names, where there are some.
            episode: the first that it was deployed for.
            learned: episodes that were learned from before it was made.
            state: SHA-256 of the agent's fingerprint and all it had learned from, which decide its state.
        """
        besides = "".join(f',"{name}":{json.dumps(notes[name])}' for name in BESIDES if name in notes)
        margins = np.subtract(notes["bounds"], self._thresholds)
        text = (
            f'{{"line":{self.count},"plan":{notes["plan"]},"episode":{episode},"source":"{notes["source"]}",'
            f'"lam":{_number(notes["lam"])},"bound":{_shown(notes["bounds"])},"threshold":{_shown(self._thresholds)},'
            f'"margin":{_shown(margins)},{self._said},"learned":{learned},'
            f'"log_dets":[{",".join(map(_number, notes["log_dets"]))}]{besides},"state":"{state}"'
        )
        return self._chained(text)

    def event(self, what: str, said: Mapping[str, Any]) -> str:
        """The next line: something that is no plan, such as a halt."""
        besides = "".join(f',"{name}":{json.dumps(value)}' for name, value in said.items())
        return self._chained(f'{{"line":{self.count},"event":"{what}"{besides}')

    def _chained(self, text: str) -> str:
        text = f'{text},"previous":"{self.head}"'
        self.head, self.count = _hash(text), self.count + 1
        return f'{text},"hash":"{self.head}"}}'


def _shown(values: Sequence[float] | Array) -> str:
    """The one number, or a list of several."""
    return _number(values[0]) if len(values) == 1 else f"[{','.join(map(_number, values))}]"


def read_trail(path: Path, start: int, head: str) -> tuple[list[str], str]:
    """The lines of a trail, and what there is of an unfinished one at its end.

    The first line that does not follow from the one before it is the last that is read: what is after it may be
    anything, of any length.

    Args:
        path: the file.
        start: the byte to begin at, where a line ends whose hash is `head`; 0 for all lines.
        head: that hash, or the genesis.
    """
    try:
        with open_regular(path) as file:
            _check_before(path, file, start, head)
            return _read_lines(path, file, head)
    except FileNotFoundError:
        if start:
            raise _cut(path, start) from None
        return [], ""


def stated_threshold(lines: Iterable[str]) -> Amount:
    """b, as the lines of a trail say it first, or one a constraint; NaN where they do not."""
    try:
        said = (json.loads(line) for line in lines if '"threshold":' in line)
        return amount(amounts(next((line["threshold"] for line in said), math.nan)))
    except (LookupError, TypeError, ValueError, RecursionError):
        return math.nan


def _check_before(path: Path, file: IO[bytes], start: int, head: str) -> None:
    """The line before byte `start` has this hash; the file is read up to there."""
    last = f"{head}{END}".encode()
    file.seek(max(start - len(last), 0))
    if start and file.read(len(last)) != last:
        raise _cut(path, start)


def _cut(path: Path, start: int) -> DamagedFile:
    return DamagedFile(f"{path} was changed or cut short before byte {start}: restore it from a copy")


def _read_lines(path: Path, file: IO[bytes], head: str) -> tuple[list[str], str]:
    lines: list[str] = []
    while data := file.readline(LARGEST_LINE):
        if not data.endswith(b"\n"):
            if len(data) == LARGEST_LINE:
                raise DamagedFile(f"{path}: line {len(lines) + 1} of what is read has no end: restore it from a copy")
            return lines, _decoded(path, data)
        lines.append(_decoded(path, data[:-1]))
        if not _follows(lines[-1], head):
            break
        head = hash_of(lines[-1])
    return lines, ""


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path} is no text ({error}): restore it from a copy") from error


def broken_at(lines: Sequence[str], genesis: str) -> int | None:
    """The first line that does not follow from the one before it, or whose own hash is wrong; None if all is well."""
    previous = genesis
    for n, line in enumerate(lines):
        if not _follows(line, previous) or not line.startswith(f'{{"line":{n},'):
            return n
        previous = hash_of(line)
    return None


def _follows(line: str, previous: str) -> bool:
    """Whether a line names the hash of the one before it, and its own rightly."""
    text, mark, end = line.rpartition(',"hash":"')
    return bool(mark) and end == f'{_hash(text)}"}}' and text.endswith(f',"previous":"{previous}"')


def hash_of(line: str) -> str:
    """The hash that a line says of itself."""
    return line.rpartition(',"hash":"')[2][:-2]


def _number(value: float) -> str:
    """A float as JSON, exactly; what is no number as null."""
    return repr(float(value)) if math.isfinite(value) else "null"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""An audit: is the trail whole, does it say what the journal says, and do the certificates come out again?"""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from episafe.deployment.agent_recipe import agent_of
from episafe.deployment.batch_frames import fill, num_episodes
from episafe.deployment.folder import LOG, PROBLEM, check_file, read_head
from episafe.deployment.journal import Kind, check_begin
from episafe.deployment.replay import Replay
from episafe.deployment.session_book import Book
from episafe.errors import DamagedFile
from episafe.problems.cmdp import LinearCMDP
from episafe.runs.columns import Columns
from episafe.runs.record import EPISODES, Record, is_complete
from episafe.storage import checkpoint
from episafe.storage.audit_trail import TRAIL, Trail, broken_at, hash_of, read_trail
from episafe.storage.frames import Frame, Reader
from episafe.types import SOURCES


@dataclass
class Audit:
    """What an audit found.

    Attributes:
        folder, kind, fingerprint, head: of the journal; `head` is the hash of the last line.
        damage: what is wrong, in words; empty if nothing is.
        lines: of the trail, in order.
        recomputed: how many certificates came out again to the last bit; None if nobody could build the agent.
        episodes, missing: reported, and deployed but never reported.
        faults: what went wrong while it ran, as recorded.
        settings: of the agent.
        versions: that wrote the journal.
        head_at: the line whose hash was kept elsewhere; None if none was given.
    """

    folder: str
    kind: str = ""
    fingerprint: str = ""
    head: str = ""
    damage: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    recomputed: int | None = None
    episodes: int = 0
    missing: dict[int, int] = field(default_factory=dict)
    oldest_missing: str = ""
    faults: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    head_at: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage

    def as_dict(self) -> dict[str, Any]:
        """As plain values; of the lines only their number."""
        return {**asdict(self), "lines": len(self.lines), "whole": self.is_whole}


def audit(folder: str | Path, agent: Any = None, head: str | None = None) -> Audit:
    """Verify the audit trail of a journal, and recompute every certificate from what was recorded.

    Args:
        folder: of a journal; nothing in it is changed.
        agent: a new one, built as the first was; needed only where the journal cannot build it: tasks by functions,
            agents of your own.
        head: the hash of the last line as it was kept elsewhere; it must still be in the trail.
    """
    folder = Path(folder)
    result = Audit(str(folder))
    told = read_head(folder)
    result.kind, result.fingerprint = told["kind"], told["fingerprint"]
    result.versions = {name: value for name, value in told.items() if name.endswith("_version")}
    _guarded(result, lambda: _read_chain(folder, told, result))
    _check_kept(result, head)
    frames = _guarded(result, lambda: _frames(folder, told))
    if frames is None:
        return result
    _guarded(result, lambda: _count(frames, result))
    if agent is None:
        agent = _guarded(result, lambda: _agent(folder, told))
    if agent is not None:
        if agent.is_used:
            raise ValueError("the agent has planned or learned already: hand over a new one, built as it was")
        result.settings = agent.settings()
        _guarded(result, lambda: _recompute(folder, told, frames, agent, result))
    return result


def _guarded(result: Audit, step: Callable[[], Any]) -> Any:
    """A step of the audit; damage is noted, and None returned."""
    try:
        return step()
    except DamagedFile as error:
        result.damage.append(str(error))
    return None


def _read_chain(folder: Path, told: dict[str, Any], result: Audit) -> None:
    result.lines, torn = read_trail(folder / TRAIL)
    result.head = hash_of(result.lines[-1]) if result.lines else told["genesis"]
    broken = broken_at(result.lines, told["genesis"])
    if broken is not None:
        raise DamagedFile(
            f"{TRAIL}: line {broken + 1} does not follow from the one before it: it, or a line around it, was edited, "
            "deleted, inserted or moved"
        )
    if torn:
        raise DamagedFile(f"{TRAIL}: the last line is cut short")


def _check_kept(result: Audit, head: str | None) -> None:
    if head is None:
        return
    hashes = [hash_of(line) for line in result.lines]
    if head in hashes:
        result.head_at = hashes.index(head)
    else:
        result.damage.append(
            f"{TRAIL}: the hash that was kept elsewhere, {head}, is not in the trail: it was written anew or cut short"
        )


def _frames(folder: Path, told: dict[str, Any]) -> list[Frame]:
    reader = Reader(folder / LOG, told["genesis"])
    try:
        frames = list(reader)
    except FileNotFoundError:
        raise DamagedFile(f"{folder / LOG} is missing") from None
    if reader.torn:
        raise DamagedFile(
            f"{LOG}: its last {reader.torn} bytes are no whole frame: the process was stopped while it wrote, or the "
            "file was cut; open or resume the folder once, which records that, and audit again"
        )
    check_begin(frames, told["genesis"], folder / LOG)
    if not frames:
        raise DamagedFile(f"{LOG} is empty")
    known = _checkpointed_frames(folder, told["genesis"])
    if known > len(frames):
        raise DamagedFile(f"{LOG} has {len(frames)} frames, and a checkpoint was made after {known}: it was cut short")
    return frames


def _checkpointed_frames(folder: Path, genesis: str) -> int:
    """How many frames the newest checkpoint knows of; 0 where there is none that can be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, notes = checkpoint.read(folder)
    except (FileNotFoundError, DamagedFile):
        return 0
    return int(notes["frames"]) if notes.get("genesis") == genesis and "frames" in notes else 0


def _count(frames: list[Frame], result: Audit) -> None:
    """Deployments and reports, as the journal has them: nobody need build the agent for that."""
    book = Book("")
    for frame in frames:
        notes = frame.notes
        try:
            if frame.kind == Kind.DEPLOY:
                book.deploy(notes["plan"], notes["component"], notes["time"])
            elif frame.kind == Kind.REPORT:
                book.report(notes["deployment"], notes["id"], "")
            elif frame.kind == Kind.ABANDON:
                book.abandon(notes["deployment"])
            elif frame.kind == Kind.BATCH:
                book.reported += num_episodes(frame.arrays)
            elif frame.kind in (Kind.FAULT, Kind.HALT):
                book.faults.append(str(notes.get("reason", "")))
        except (LookupError, TypeError, ValueError) as error:
            raise DamagedFile(f"{LOG}: frame {frame.number} says what cannot have happened ({error!r})") from error
    result.episodes, result.missing, result.oldest_missing = book.reported, book.missing, book.oldest
    result.faults = book.faults


def _agent(folder: Path, told: dict[str, Any]) -> Any:
    """The agent, if the journal can build it."""
    own = LinearCMDP.load(check_file(folder, PROBLEM, told)).task if "problem_sha256" in told else None
    return agent_of(folder, told, own) if "recipe" in told else None


def _recompute(folder: Path, told: dict[str, Any], frames: list[Frame], agent: Any, result: Audit) -> None:
    if agent.fingerprint() != told["fingerprint"]:
        raise DamagedFile(
            "journal.toml names another agent or problem than the files beside it, or than was handed over"
        )
    trail = Trail(agent.task.threshold, agent.settings(), told["genesis"])
    book = Book(told["fingerprint"])
    known = {"kind": told["kind"], "path": folder / LOG, "num_parallel": told.get("num_parallel", 1)}
    replay = Replay(agent, book, trail, **known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # who built the agent was warned
        lines = replay.take(frames)
    _compare(result, lines)
    result.recomputed = sum('"event":' not in line for line in lines)
    _compare_record(folder, result, frames)


def _compare(result: Audit, lines: list[str]) -> None:
    if result.lines == lines or result.damage:
        return
    n = next((n for n, (a, b) in enumerate(zip(result.lines, lines, strict=False)) if a != b), None)
    if n is not None:
        raise DamagedFile(f"{TRAIL}: line {n + 1} is not what {LOG} says")
    short = TRAIL if len(result.lines) < len(lines) else LOG
    remedy = "; if the process was stopped just then, opening or resuming the folder completes it"
    raise DamagedFile(
        f"{TRAIL} has {len(result.lines)} lines and {LOG} those of {len(lines)}: {short} was cut short"
        + (remedy if short == TRAIL else "")
    )


def _compare_record(folder: Path, result: Audit, frames: list[Frame]) -> None:
    """The record of a finished run says the same as its log; the log may have more, if the run was made longer."""
    played = [frame for frame in frames if frame.kind == Kind.BATCH]
    if not played or not is_complete(folder):
        return
    record = Record.load(folder)
    K = len(record.plan_ids)
    if K > result.episodes:
        raise DamagedFile(f"{EPISODES} has {K} episodes, and {LOG} has {result.episodes}: it was cut short")
    first = played[0].arrays
    columns = Columns(result.episodes, totals="totals" in first, changing="optima" in first, mixes=False)
    for frame in played:
        fill(columns, frame.arrays, frame.notes["episode"], frame.notes["names"])
    facts, coins, totals = columns.facts, columns.coins, columns.totals
    expected = {
        "plan_ids": facts.plan_ids, "sources": np.array(SOURCES)[facts.sources],
        "lams": facts.bounds[:, 0], "utility_bounds": facts.bounds[:, 1],
        "reward_values": facts.values[:, 0], "utility_values": facts.values[:, 1],
        "components": None if coins is None else coins.components, "weights": None if coins is None else coins.weights,
        "acting_numbers": None if coins is None else coins.acting, "optima": columns.optima,
        "reward_totals": None if totals is None else totals[:, 0],
        "utility_totals": None if totals is None else totals[:, 1],
    }  # fmt: skip
    for name, column in expected.items():
        found = getattr(record, name)
        same = found is None if column is None else _same_column(found, column[:K])
        if not same:
            raise DamagedFile(f"{EPISODES}: {name} are not what {LOG} says: delete the record, and resume the run")


def _same_column(found: Any, column: Any) -> bool:
    return found is not None and np.array_equal(found, column, equal_nan=column.dtype.kind == "f")

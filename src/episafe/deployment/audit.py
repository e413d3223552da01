"""An audit: is the trail whole, does it say what the journal says, and do the certificates come out again?"""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from episafe.deployment.agent_recipe import agent_of
from episafe.deployment.batches import deployments
from episafe.deployment.folder import LOG, PROBLEM, check_begin, check_file, head_of, read_head
from episafe.deployment.journalled import batches, problem_of
from episafe.deployment.replay import replay
from episafe.deployment.session import HELD, Opened
from episafe.deployment.tally import Tally
from episafe.errors import DamagedFile
from episafe.runs.record import EPISODES, Record, is_complete
from episafe.runs.run import SOURCES
from episafe.runs.tape import StateHash
from episafe.storage.audit_trail import TRAIL, Trail, broken_at, hash_of, read_trail
from episafe.storage.frames import Frame, Kind, Reader

MADE = ("plans", "sources", "bounds", "values")  # what a batch says of each plan


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


def audit(folder: str | Path, agent: Any = None, head: str | None = None, *, opened: type[Opened] = Opened) -> Audit:
    """Verify a journal's audit trail, and recompute every certificate from the recorded episodes.

    Args:
        folder: of a journal; nothing in it is changed.
        agent: a new one, built as the first was; only needed where the journal cannot build it.
        head: the hash of the last line as it was kept elsewhere; it must still be in the trail.
        opened: what takes up the frames of a live journal.
    """
    folder = Path(folder)
    found = Audit(str(folder))
    told = read_head(folder)
    found.kind, found.fingerprint = told["kind"], told["fingerprint"]
    found.versions = {name: value for name, value in told.items() if name.endswith("_version")}
    _guarded(found, lambda: _chain(folder, told, found))
    _check_kept(found, head)
    frames = _guarded(found, lambda: _frames(folder, told))
    if frames is None:
        return found
    found.faults = [frame.notes.get("reason", "") for frame in frames if frame.kind in (Kind.FAULT, Kind.HALT)]
    _count(frames, found)
    if agent is None:
        agent = _guarded(found, lambda: _agent(folder, told))
    if agent is not None:
        if agent.is_used:
            raise ValueError("the agent has planned or learned already: hand over a new one, built as it was")
        found.settings = agent.settings()
        _guarded(found, lambda: _recompute(folder, told, frames, agent, found, opened))
    return found


def _count(frames: list[Frame], found: Audit) -> None:
    """Deployments and reports, as the journal has them: nobody need build the agent for that."""
    tally = Tally()
    for frame in frames:
        if frame.kind in (Kind.PLAN, Kind.START):
            tally.start(frame.notes.get("plan", HELD), frame.notes.get("time", ""))
        elif frame.kind == Kind.REPORT:
            tally.report(frame.notes.get("plan"), frame.notes.get("id"))
        elif frame.kind == Kind.BATCH:
            tally.reported += len(frame.arrays.get("rows", frame.arrays.get("ends", ())))
    found.episodes, found.missing, found.oldest_missing = tally.reported, tally.missing, tally.oldest


def _guarded(found: Audit, step: Callable[[], Any]) -> Any:
    """A step of the audit; damage is noted, and None returned."""
    try:
        return step()
    except DamagedFile as error:
        found.damage.append(str(error))
    return None


def _chain(folder: Path, told: dict[str, Any], found: Audit) -> None:
    found.lines, torn = read_trail(folder / TRAIL)
    found.head = head_of(found.lines, told["genesis"])
    broken = broken_at(found.lines, told["genesis"])
    if broken is not None:
        raise DamagedFile(
            f"{TRAIL}: line {broken + 1} does not follow from the one before it: it, or a line around it, was edited, "
            "deleted, inserted or moved"
        )
    if torn:
        raise DamagedFile(f"{TRAIL}: the last line is cut short")


def _check_kept(found: Audit, head: str | None) -> None:
    if head is None:
        return
    hashes = [hash_of(line) for line in found.lines]
    if head in hashes:
        found.head_at = hashes.index(head)
    else:
        found.damage.append(
            f"{TRAIL}: the hash that was kept elsewhere, {head}, is not in the trail: it was written anew or cut short"
        )


def _frames(folder: Path, told: dict[str, Any]) -> list[Frame]:
    reader = Reader(folder / LOG)
    try:
        frames = list(reader)
    except FileNotFoundError:
        raise DamagedFile(f"{folder / LOG} is missing") from None
    if reader.torn:
        raise DamagedFile(
            f"{LOG}: its last {reader.torn} bytes are no whole frame: the process was stopped while it wrote, or the "
            "file was cut; open or resume the folder once, which records that, and audit again"
        )
    check_begin(frames, told, folder)
    if not frames:
        raise DamagedFile(f"{LOG} is empty")
    return frames


def _agent(folder: Path, told: dict[str, Any]) -> Any:
    """The agent, if the journal can build it."""
    if "problem_sha256" in told:
        check_file(folder, PROBLEM, told)
    if "recipe" not in told:
        return None
    own = problem_of(folder, told).task if "problem_sha256" in told else None
    return agent_of(folder, told, own)


def _recompute(
    folder: Path, told: dict[str, Any], frames: list[Frame], agent: Any, found: Audit, opened: type[Opened]
) -> None:
    if agent.fingerprint() != told["fingerprint"]:
        raise DamagedFile(
            "journal.toml names another agent or problem than the files beside it, or than was handed over"
        )
    trail = Trail(agent.task.threshold, agent.settings(), told["genesis"])
    if told["kind"].startswith("live"):
        replayed = opened.for_audit(folder / LOG, agent, trail)
        lines = [line for frame in frames for line in replayed.taken_up(frame)]
        _compare(found, lines)
        found.recomputed = len(lines)
        return
    lines = _run_lines(folder, told, frames, trail)
    _compare(found, lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.recomputed = replay(agent, frames, told.get("num_envs", 1))
    _compare_record(folder, found, frames)


def _run_lines(folder: Path, told: dict[str, Any], frames: list[Frame], trail: Trail) -> list[str]:
    state, lines = StateHash(told["fingerprint"]), []
    for frame in batches(frames, folder):
        lines += [trail.line(one) for one in deployments(frame.arrays, frame.notes["episode"], state)]
        if [trail.count, trail.head] != frame.notes["trail"]:
            raise DamagedFile(f"{LOG}: the batch at byte {frame.offset} does not match the hash that it carries")
    return lines


def _compare(found: Audit, lines: list[str]) -> None:
    if found.lines == lines or found.damage:
        return
    n = next((n for n, (a, b) in enumerate(zip(found.lines, lines, strict=False)) if a != b), None)
    if n is not None:
        raise DamagedFile(f"{TRAIL}: line {n + 1} is not what {LOG} says")
    short = TRAIL if len(found.lines) < len(lines) else LOG
    raise DamagedFile(
        f"{TRAIL} has {len(found.lines)} lines and {LOG} the plans of {len(lines)}: {short} was cut short"
        + ("; if the process was stopped just then, opening or resuming the folder completes it" * (short == TRAIL))
    )


def _compare_record(folder: Path, found: Audit, frames: list[Frame]) -> None:
    """The record of a finished run says the same as its log; the log may have more, if the run was made longer."""
    if not is_complete(folder):
        return
    record = Record.load(folder)
    K = len(record.plan_ids)
    if K > found.episodes:
        raise DamagedFile(f"{EPISODES} has {K} episodes, and {LOG} has {found.episodes}: it was cut short")
    played = [frame for frame in frames if frame.kind == Kind.BATCH]
    begins = np.concatenate([frame.notes["episode"] + frame.arrays["begins"] for frame in played])
    which = np.searchsorted(begins, np.arange(K), side="right") - 1
    made = {name: np.concatenate([frame.arrays[name] for frame in played])[which] for name in MADE}
    columns = {
        "plan_ids": made["plans"], "sources": np.array(SOURCES)[made["sources"]],
        "lams": made["bounds"][:, 0], "utility_bounds": made["bounds"][:, 1],
        "reward_values": made["values"][:, 0], "utility_values": made["values"][:, 1],
    }  # fmt: skip
    for name, column in columns.items():
        if not np.array_equal(getattr(record, name), column, equal_nan=column.dtype.kind == "f"):
            raise DamagedFile(f"{EPISODES}: {name} are not what {LOG} says: delete the record, and resume the run")

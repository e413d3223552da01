"""An audit: is the trail whole, does it say what the journal says, did all that was deployed pass the check, and do the
certificates come out again?

A version that plans otherwise than the one that wrote a folder has found no damage: what was deployed must have passed
the check, whatever proposed it. The verdict says which of both was done.
"""

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from episafe.deployment.agent_recipe import agent_of, is_certified
from episafe.deployment.batch_frames import sampled_reports, unfinished_record
from episafe.deployment.frame_kinds import Kind, change_of, marks
from episafe.deployment.incumbent_identity import IncumbentIdentity
from episafe.deployment.journal import check_begin
from episafe.deployment.journal_folder import AUDITED, FORMAT, LOG, agent_settings, read_head, stored_problem
from episafe.deployment.recorded_plans import (
    CHECKED,
    Recorded,
    Unbuilt,
    learned_before,
    since_incumbent,
)
from episafe.deployment.replay import Replay, require_candidates
from episafe.deployment.session_book import Book
from episafe.errors import DamagedFile, UnlistedChance
from episafe.kernels.mixing import admits_all
from episafe.runs.record import COLUMNS, EPISODES, OPTIONAL, Record, is_complete
from episafe.storage import checkpoint
from episafe.storage.audit_trail import TRAIL, Trail, broken_at, hash_of, read_trail, stated_threshold
from episafe.storage.frames import UNREADABLE, Frame, Reader
from episafe.storage.json_values import from_text
from episafe.storage.toml_settings import said_versions, versions

DOUBTS_SHOWN = 10
UNLISTED = "chance brought what the folder does not know how to replay; hand the agent over with --agent MODULE:NAME"
FOREIGN = (
    "the agent that was handed over is not the one that journal.toml names: its settings or its problem differ; build "
    "it as it was, and hand that one over with --agent MODULE:NAME"
)
Progress = Callable[[float], None] | None


@dataclass
class Audit:
    """What an audit found.

    Attributes:
        folder, kind, format, fingerprint, head: of the journal; `head` is the hash of the last line.
        damage: what is wrong, in words; empty if nothing is.
        lines: of the trail, in order.
        checked: how many plans are the incumbent, or have a recorded bound that reaches the threshold.
        recomputed: how many certificates came out again to the last bit; None if nobody could build the agent, the one
            that the folder builds cannot replay all that chance brought, or the one handed over is of something else.
        otherwise: what this version does otherwise than the one that wrote the folder, or what is wrong with the agent,
            so that certificates were not all recomputed; "" where they were, or nobody built an agent.
        confirmed: how many bounds of learned policies this version computed anew then, and found to reach the threshold
            up to rounding; None where it cannot without the policies themselves.
        doubts: bounds that it found below the threshold, in words.
        episodes, missing: reported, and deployed but never reported.
        faults: what went wrong while it ran, as recorded.
        settings: of the agent.
        constraints: what people call each of several; none of one, and where an older journal does not say it.
        incumbent: what its user called it when the journal was begun; "" if it is known by what it does.
        replaced: why the incumbent was replaced, each time.
        changes: what people promoted, withdrew and changed, and why, in order.
        versions: that began the journal.
        later_versions: that went on with it, where they are others.
        head_at: the line whose hash was kept elsewhere; None if none was given.
    """

    folder: str
    kind: str = ""
    format: int = FORMAT
    fingerprint: str = ""
    head: str = ""
    damage: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    checked: int = 0
    recomputed: int | None = None
    otherwise: str = ""
    confirmed: int | None = None
    doubts: list[str] = field(default_factory=list)
    episodes: int = 0
    missing: dict[int, int] = field(default_factory=dict)
    oldest_missing: str = ""
    faults: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    constraints: list[str] = field(default_factory=list)
    incumbent: str = ""
    replaced: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    versions: dict[str, Any] = field(default_factory=dict)
    later_versions: list[dict[str, Any]] = field(default_factory=list)
    head_at: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage

    @property
    def num_plans(self) -> int:
        """How many of the lines are of plans; the others are of events."""
        return sum('"event":' not in line for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """As plain values; of the lines only their number."""
        return {**asdict(self), "lines": len(self.lines), "plans": self.num_plans, "whole": self.is_whole}


def audit(folder: str | Path, agent: Any = None, head: str | None = None, on_progress: Progress = None) -> Audit:
    """Verify a journal, hold every deployed plan against its check, and recompute the certificates from what was
    recorded. Of a journal of format 1 the chain of its trail is verified, and nothing else.

    Args:
        folder: of a journal; nothing in it is changed.
        agent: a new one, built as the first was; needed only where the journal cannot build it: tasks by functions,
            agents of your own.
        head: the hash of the last line as it was kept elsewhere; it must still be in the trail.
        on_progress: called now and then with the share of the journal whose certificates were made again.
    """
    if agent is not None and agent.is_used:
        raise ValueError("the agent has planned or learned already: hand over a new one, built as it was")
    folder = Path(folder)
    told = read_head(folder, AUDITED)
    result = Audit(str(folder), told["kind"], told["format"], told["fingerprint"])
    result.versions, result.incumbent = said_versions(told), told.get("incumbent", "")
    result.constraints = list(map(str, json.loads(told.get("constraint_names", "[]"))))
    _guarded(result, lambda: _read_chain(folder, told, result))
    _check_kept(result, head)
    if told["format"] != FORMAT:
        _guarded(result, lambda: _check_lines(is_certified(told), result))
        return result
    built = _guarded(result, lambda: _agent(folder, told)) if agent is None else agent
    frames = _guarded(result, lambda: _go_through(folder, told, built, result))
    if frames is None:
        return result
    _guarded(result, lambda: _compare_record(folder, frames, result))
    if agent is None and not result.replaced:  # the folder knows how to build it with its first incumbent
        agent = built
    if agent is not None:
        result.settings = agent.settings()
        _guarded(result, lambda: _recompute(folder, told, frames, agent, result, on_progress))
    if result.recomputed is None:
        _guarded(result, lambda: _compare_marks(frames, told["genesis"], result))
    return result


def _followed(frames: list[Frame], on_progress: Progress) -> Iterable[Frame]:
    """The frames, one after another; it is told how far in the log that is."""
    for frame in frames:
        yield frame
        if on_progress is not None:
            on_progress(frame.offset / frames[-1].offset if frames[-1].offset else 1.0)


def _guarded(result: Audit, step: Callable[[], Any]) -> Any:
    """A step of the audit; damage is noted, and None returned."""
    try:
        return step()
    except DamagedFile as error:
        result.damage.append(str(error))
    return None


def _read_chain(folder: Path, told: dict[str, Any], result: Audit) -> None:
    result.lines, torn = read_trail(folder / TRAIL, 0, told["genesis"])
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
        raise DamagedFile(f"{folder / LOG} is missing: restore it from a copy") from None
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
    known = notes.get("frames")
    return known if notes.get("genesis") == genesis and isinstance(known, int) else 0


def _agent(folder: Path, told: dict[str, Any]) -> Any:
    """The agent, if the journal can build it."""
    problem = stored_problem(folder, told)
    return agent_of(folder, told, problem and problem.task) if "recipe" in told else None


def _check_lines(certified: bool | None, result: Audit) -> None:
    """Every plan of a trail passed the check, by what the trail says."""
    for n, line in enumerate(result.lines, 1):
        try:
            said = json.loads(line)
            bound, threshold = (
                np.array(said[name], dtype=np.float64) for name in ("bound", "threshold")
            )  # null is NaN
            passes = said["source"] == "safe" or (said["source"] in CHECKED and admits_all(bound, threshold))
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise DamagedFile(f"{TRAIL}: line {n} does not say what a line of a plan says ({error!r})") from error
        if certified and not passes:
            raise DamagedFile(f"{TRAIL}: line {n}: the plan did not pass the check, {bound} is below {threshold}")
        result.checked += passes


def _go_through(folder: Path, told: dict[str, Any], agent: Any, result: Audit) -> list[Frame]:
    """All that can be told without planning: what is deployed and reported, halts, the check, and that trail and log
    say the same."""
    frames = _frames(folder, told)
    changes = [frame.notes for frame in frames if frame.kind == Kind.CHANGE]
    result.later_versions = [said_versions(notes) for notes in changes if notes.get("what") == "versions"]
    result.replaced = [notes.get("reason", "") for notes in changes if notes.get("what") == "incumbent"]
    result.changes = [said for frame in frames if (said := change_of(frame.kind, frame.notes))]
    certified = is_certified(told) if agent is None else agent.certified
    walk = _walk(folder, told, result, Unbuilt(), certified=certified)
    try:
        _compare(result, walk.take(frames))
    finally:
        book = walk.book
        result.episodes, result.missing, result.oldest_missing = book.reported, book.missing, book.oldest
        halts = [str(frame.notes.get("reason", "")) for frame in frames if frame.kind == Kind.HALT]
        result.faults, result.checked = [*book.faults, *halts], walk.checked
    return frames


def _walk(folder: Path, told: dict[str, Any], result: Audit, agent: Unbuilt, **known: Any) -> Recorded:
    """A history that is to be gone through as it was recorded."""
    threshold = stated_threshold(result.lines)
    trail = Trail(threshold, agent_settings(told), told["genesis"])
    known |= {"threshold": threshold, "folder": folder, "head": told}
    return Recorded(agent, Book(told["fingerprint"]), trail, **known)


def _known_incumbent(told: dict[str, Any], frames: list[Frame], agent: Any) -> str:
    """The fingerprint of the agent with the incumbent that the folder ends with, if the agent has that one: it does
    what it did wherever it was seen."""
    incumbent, differs = IncumbentIdentity(agent.task, told), ""
    for frame in frames:
        try:
            if frame.kind == Kind.CHANGE and frame.notes["what"] == "incumbent":
                incumbent.replace(frame.notes)
                differs = ""
            for report, said in _sightings(frame, agent.task):
                differs = differs or incumbent.otherwise(report, said)
        except UNREADABLE as error:
            raise DamagedFile(f"{LOG}: frame {frame.number} says nothing of the incumbent ({error!r})") from error
    if differs:
        raise DamagedFile(f"the incumbent of the agent is not the one that was recorded: {differs}")
    return str(incumbent.fingerprint)


def _sightings(frame: Frame, task: Any) -> Iterable[tuple[tuple[Any, ...], list[float | None]]]:
    """Reports of a frame, and what it says that the incumbent would have done in them."""
    notes = frame.notes
    if frame.kind == Kind.REPORT and "incumbent" in notes:
        return [(task.report_from(from_text(notes["values"])), notes["incumbent"])]
    if frame.kind == Kind.BATCH and "incumbent" in notes:
        return zip(sampled_reports(frame.arrays, task), notes["incumbent"], strict=True)
    return ()


def _recompute(
    folder: Path, told: dict[str, Any], frames: list[Frame], agent: Any, result: Audit, on_progress: Progress
) -> None:
    """Every plan made again; where another version wrote some of them and this one makes others, their bounds. An agent
    of something else finds nothing out of a folder that is whole so far."""
    others = any(said != versions() for said in (result.versions, *result.later_versions))
    mine = agent.fingerprint_but_incumbent()
    foreign = result.is_whole and told.get("fingerprint_but_incumbent", mine) != mine
    try:
        fingerprint = _known_incumbent(told, frames, agent)
    except DamagedFile:
        if not foreign:
            raise
        fingerprint = ""
    if foreign and not (others and fingerprint):
        result.otherwise = FOREIGN
        return
    blank = agent.state() if others and agent.rechecks else {}
    try:
        _make_again(folder, told, frames, agent, fingerprint, result, on_progress)
    except DamagedFile as error:
        if isinstance(error.__cause__, UnlistedChance):
            result.recomputed, result.otherwise = None, f"{UNLISTED} ({error.__cause__})"
            return
        if not others:
            raise
        result.otherwise = str(error)
        if agent.rechecks:
            agent.restore(blank)
            _recheck(folder, told, frames, agent, result)


def _make_again(
    folder: Path,
    told: dict[str, Any],
    frames: list[Frame],
    agent: Any,
    fingerprint: str,
    result: Audit,
    on_progress: Progress,
) -> None:
    """The plans since the incumbent was last replaced; of those before, somebody else would be the agent."""
    result.recomputed = 0
    if agent.fingerprint() != fingerprint:
        raise DamagedFile(
            "journal.toml names another agent or problem than the files beside it, or than was handed over"
        )
    trail = Trail(agent.task.limits, agent.settings(), told["genesis"])
    book = Book(told["fingerprint"])
    if told["kind"] == "live":
        require_candidates(agent, book, frames[since_incumbent(frames) :])
        agent.hold_candidates()
    replay = Replay(agent, book, trail, folder=folder, head=told)
    before = since_incumbent(frames)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who built the agent was warned
            lines = learned_before(replay, frames[:before])
            _compare(result, lines + replay.take(_followed(frames[before:], on_progress)))
    finally:
        result.recomputed = replay.compared


def _recheck(folder: Path, told: dict[str, Any], frames: list[Frame], agent: Any, result: Audit) -> None:
    """The bounds of what was deployed, computed anew from what was reported."""
    walk = _walk(folder, told, result, Unbuilt(agent.task), certified=agent.certified, anew=agent)
    if not np.array_equal(agent.task.limits, stated_threshold(result.lines)):
        raise DamagedFile(f"the agent has the threshold {agent.task.limits}, and {TRAIL} another: build it as it was")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        walk.take(frames)
    result.confirmed = walk.confirmed
    more = len(walk.doubts) - DOUBTS_SHOWN
    result.doubts = walk.doubts[:DOUBTS_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _compare_marks(frames: list[Frame], genesis: str, result: Audit) -> None:
    """The trail has the lines whose hashes the frames know, and no others."""
    if result.damage:
        return
    found, n = [genesis, *map(hash_of, result.lines)], 0
    for _, n, head in marks(frames, genesis):
        if n >= len(found) or found[n] != head:
            raise DamagedFile(f"{TRAIL}: line {n} is not what {LOG} says, or is missing")
    if n < len(result.lines):
        raise DamagedFile(f"{TRAIL} has {len(result.lines)} lines and {LOG} those of {n}: {LOG} was cut short")


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


def _compare_record(folder: Path, frames: list[Frame], result: Audit) -> None:
    """The record of a finished run says the same as its log; the log may have more, if the run was made longer."""
    played = [frame for frame in frames if frame.kind == Kind.BATCH]
    if not played or not is_complete(folder):
        return
    record = Record.load(folder)
    K = len(record.plan_ids)
    if K > result.episodes:
        raise DamagedFile(f"{EPISODES} has {K} episodes, and {LOG} has {result.episodes}: it was cut short")
    made = unfinished_record(played, {}, record.optimum, record.threshold)
    for name in (*COLUMNS, *OPTIONAL):
        found, said = (getattr(one, name) if name in one.columns() else None for one in (record, made))
        same = found is None if said is None else _same_column(found, said[:K])
        if not same:
            raise DamagedFile(f"{EPISODES}: {name} are not what {LOG} says: delete the record, and resume the run")


def _same_column(found: Any, column: Any) -> bool:
    return found is not None and np.array_equal(found, column, equal_nan=column.dtype.kind == "f")

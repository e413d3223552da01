"""Kinds of frames, and which of them are lines of the audit trail too. docs/journal.md has what each of them holds."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any

from episafe.errors import DamagedFile
from episafe.storage.audit_trail import Trail
from episafe.storage.frames import Frame


class Kind(IntEnum):
    """What a frame says."""

    BEGIN = 1  # which folder this is the journal of
    PLAN = 2  # a plan, before anybody acts on it
    DEPLOY = 3  # one deployment of the plan in force: its id, and its coin if the session tossed it
    REPORT = 4  # one episode, as reported
    BATCH = 5  # episodes of a simulation with their plans
    FAULT = 6  # what went wrong, and what was done
    AIM = 7  # how many episodes a simulation is to have, from here on
    CLOSE = 8  # closed in good order, over so many reports
    HALT = 9  # only the incumbent is deployed from here on
    RESUME = 10  # a person lets the agent explore again
    ABANDON = 11  # a deployment that will never be reported
    CANDIDATE = 12  # a policy that is on trial from here on, by its name
    PROMOTE = 13  # what acts from here on when nothing else may, by its name
    CHANGE = 14  # other versions write from here on, or a person has changed settings or replaced the incumbent
    WITHDRAW = 15  # a policy whose trial ends here, by its name
    LOST = 16  # what a repair dropped: numbers up to here were given, and only the incumbent is deployed


NO_EVENTS = (Kind.BEGIN, Kind.PLAN, Kind.DEPLOY, Kind.REPORT, Kind.BATCH, Kind.AIM)
# what the trail calls the others; their line says all that the frame says
EVENTS = {kind: kind.name.lower() for kind in Kind if kind not in NO_EVENTS}
KINDS = {
    "live": set(Kind) - {Kind.BATCH, Kind.AIM},
    "run": {Kind.BEGIN, Kind.BATCH, Kind.AIM, Kind.FAULT, Kind.CLOSE, Kind.CHANGE},
}  # what may be in a journal of which kind


class Newer(DamagedFile):
    """A frame of a kind that came with a later version: it is whole, and nobody here can say what it means."""


def require_frame_kind(frame: Frame, journal: str) -> None:
    """A frame of a kind that a journal of kind "live" or "run" may have."""
    if frame.kind > max(Kind):
        raise Newer(
            f"frame {frame.number} is of kind {frame.kind}, which a later version of episafe wrote: update episafe, "
            "and repair nothing with this one; nothing was changed"
        )
    if frame.kind not in KINDS[journal]:
        raise ValueError(f"a journal of kind {journal!r} has no frame of kind {frame.kind}")


def change_of(kind: int, notes: Mapping[str, Any]) -> str:
    """What a person promoted, withdrew or changed, in words; "" for all other frames."""
    name, reason = notes.get("name"), notes.get("reason", "")
    if kind == Kind.PROMOTE:
        return f"promoted {name}: {reason}"
    if kind == Kind.WITHDRAW:
        return f"withdrew {name}: {reason}"
    if kind == Kind.CHANGE and notes.get("what") == "settings":
        said = {"thresholds": notes.get("thresholds"), "slacks": notes.get("slacks"), **(notes.get("constants") or {})}
        return f"changed to {', '.join(f'{name} {value}' for name, value in said.items())}: {reason}"
    return ""


def marks(frames: Iterable[Frame], genesis: str) -> Iterator[tuple[int, int, str]]:
    """What the frames of a log say of the trail beside it: the number of the frame, how many lines there must be, and
    the hash of the last of them. Nobody need build the agent for that."""
    trail = Trail(0.0, {}, genesis)
    for frame in frames:
        if frame.kind == Kind.PLAN:
            trail.count, trail.head = trail.count + 1, frame.notes["trail"]
        elif frame.kind == Kind.BATCH:
            trail.count, trail.head = frame.notes["trail"]
        elif frame.kind in EVENTS:
            trail.event(EVENTS[Kind(frame.kind)], frame.notes)
        else:
            continue
        yield frame.number, trail.count, trail.head

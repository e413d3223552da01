"""How a session starts: a journal is begun, or the session catches up with the one that is there."""

import json
from pathlib import Path
from typing import Any

from episafe.deployment.agent_recipe import recipe, write_recipe
from episafe.deployment.frame_kinds import Kind
from episafe.deployment.journal import Journal
from episafe.deployment.journal_folder import (
    PROBLEM,
    agent_settings,
    beginning,
    file_hash,
    write_head,
)
from episafe.deployment.recorded_plans import learned_before, since_incumbent
from episafe.deployment.replay import Replay, require_candidates
from episafe.deployment.session import Session
from episafe.deployment.session_book import now
from episafe.errors import DamagedFile
from episafe.storage import checkpoint
from episafe.storage.frames import Frame
from episafe.storage.toml_settings import other_versions, said_versions, versions
from episafe.types import HELD


def catch_up(session: Session, journal: Journal, version: str = "", new_incumbent: str = "") -> list[Frame]:
    """Bring a new session to where its journal ends; the frames that were lived through again.

    Args:
        session: new.
        journal: of it.
        version: of the incumbent, as its user calls it.
        new_incumbent: why it was replaced just now; "" if it was not.
    """
    frames = journal.begin({} if new_incumbent else session.parts)  # those are of an agent that this one succeeds
    journal.trail.restate(session.agent.task.limits, session.agent.settings())
    if new_incumbent:
        _require_unchanged(journal.folder, frames)
    before = len(frames) if new_incumbent else since_incumbent(frames)
    require_candidates(session.agent, session.book, frames[before:])
    known = {"folder": journal.folder, "head": journal.head, "incumbent": session.incumbent}
    replay = Replay(session.agent, session.book, journal.trail, session.monitors, **known)
    lines = learned_before(replay, frames[:before])
    try:
        lines += replay.take(frames[before:])
    except DamagedFile as error:
        _require_same_incumbent(session, journal.folder, version, new_incumbent)  # which would be the cause
        raise type(error)(f"{error}{other_versions(session.book.versions or journal.head)}") from error
    _require_same_incumbent(session, journal.folder, version, new_incumbent)
    session.first_plan = max((plan.id for plan in session.agent.recent_plans()), default=HELD)
    journal.continue_trail(lines)
    session.book.faults += journal.noted
    if new_incumbent:
        _replace_incumbent(session, journal, version, new_incumbent)
    incumbent, name = session.incumbent, session.agent.task.incumbent_name
    if said_versions(session.book.versions or journal.head) != versions() or (name and not incumbent.name):
        session.book.versions, incumbent.name = versions(), name
        journal.append(Kind.CHANGE, {"what": "versions", **versions(), "time": now(), "incumbent_name": name})
    session.distrust(session.book.distrusted)  # the process may have ended between an alarm and what follows from it
    session.demote(replay.demoted)
    return frames


def _require_same_incumbent(session: Session, folder: Path, version: str, new: str) -> None:
    """Refuse another incumbent than the one that is recorded, unless it is said why; and a reason without another."""
    differs = session.incumbent.differing(session.agent.fingerprint(), version)
    if differs and not new:
        raise ValueError(
            f"{folder} was kept with another incumbent: {differs}. Everything certified stands on it: hand over the "
            "one that it was kept with, or, if a person has replaced it, say so once, es.open(…, new_incumbent="
            '"who and why"); if it is the same and cannot say the same twice, give incumbent_version="…" too'
        )
    if new and not differs and session.incumbent.is_known:
        raise ValueError(
            f"the incumbent is the one that {folder} was kept with: leave out new_incumbent, or a later change would "
            "pass unseen"
        )


def _require_unchanged(folder: Path, frames: list[Frame]) -> None:
    """Refuse another incumbent where threshold, slack or constants were changed: that was beside the old one."""
    if any(frame.kind == Kind.CHANGE and frame.notes.get("what") == "settings" for frame in frames):
        raise ValueError(
            f"the settings of {folder} were changed beside its incumbent: begin a new folder with the new one and the "
            "settings of today, and let it learn the episodes, es.export_episodes and es.learn_log"
        )


def _replace_incumbent(session: Session, journal: Journal, version: str, reason: str) -> None:
    """Write down that a person has replaced the incumbent; it is on the disk when this returns. Nothing was refused, so
    the checkpoints of before go: of another agent, they would be of no use."""
    checkpoint.remove(journal.folder)
    notes = {"what": "incumbent", "reason": reason, "time": now(), "version": version}
    notes |= {"fingerprint": session.agent.fingerprint(), "name": session.agent.task.incumbent_name}
    journal.append(Kind.CHANGE, notes)
    journal.sync_trail()
    session.incumbent.replace(notes)
    session.book.candidates = []  # all are put on trial anew, beside the new one
    session.book.begin_anew()


def begin_journal(folder: Path, agent: Any, settings: dict[str, str | int | float], problem: Any = None) -> None:
    """Write what a journal begins with; a problem that can be saved is kept beside it."""
    said = {**settings, "fingerprint": agent.fingerprint(), "agent_settings": json.dumps(agent.settings())}
    said["fingerprint_but_incumbent"] = agent.fingerprint_but_incumbent()
    if agent.task.incumbent_name:
        said["incumbent_name"] = agent.task.incumbent_name
    if agent.task.num_constraints > 1:
        said["constraint_names"] = json.dumps(agent.task.constraint_names)
    own = None
    with beginning(folder):
        if hasattr(problem, "save"):
            problem.save(folder / PROBLEM)
            said["problem_sha256"], own = file_hash(folder / PROBLEM), problem.task
        write_head(folder, {**said, **versions(), **write_recipe(folder, recipe(agent, own))})


def require_agent(agent: Any) -> None:
    """An error that says what to pass in place of what is no agent."""
    if isinstance(agent, type) or not hasattr(agent, "incumbent_plan"):
        hint = ": build it first" if isinstance(agent, type) else ""
        raise TypeError(f"open needs an agent, got {agent!r}{hint}")


def require_unused(agent: Any) -> None:
    """A journal begins with an agent that knows nothing: what it learned elsewhere could not be learned again."""
    if agent.is_used:
        raise ValueError(
            "the agent has planned or learned already: open a journal with a new agent, built as it was; logs are "
            "learned afterwards, by es.learn_log(session, …)"
        )


def require_kind(folder: Path, head: dict[str, Any], kind: str) -> None:
    """A live journal is opened, that of a run is resumed."""
    if head["kind"] != kind:
        raise ValueError(f"{folder} is a journal of kind {head['kind']!r}, not {kind!r}: choose another folder")


def require_same_agent(folder: Path, head: dict[str, Any], agent: Any) -> None:
    """The agent is built as the one that the journal was begun with."""
    if head["fingerprint"] != agent.fingerprint():
        was, now = agent_settings(head), agent.settings()
        names = ", ".join(name for name in now if was.get(name) != now[name]) or "what the task tells"
        raise ValueError(
            f"{folder} was begun with another agent or task ({names}): build both as they were, or begin a new folder"
            + other_versions(head)
        )

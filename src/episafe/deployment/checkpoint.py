"""Checkpoints of a journal: with them only what came later is learned again. They are a short cut, never the source."""

import warnings
from contextlib import suppress
from typing import Any

from episafe.deployment.folder import Journal
from episafe.errors import DamagedFile
from episafe.monitors.base import Watch
from episafe.storage import checkpoint
from episafe.storage.state_reader import State, under

MONITORS = "monitors"


def write_checkpoint(journal: Journal, agent: Any, monitors: Watch | None = None) -> None:
    """Keep the state of the agent and of its monitors after all frames on the disk; the journal must be synced.

    What cannot be stored, or finds no room, is learned again instead: that costs time and loses nothing.
    """
    if not agent.is_stored:
        return
    with suppress(OSError, ValueError, TypeError, NotImplementedError):
        notes = {"log": journal.log.size, "genesis": journal.head["genesis"]}
        checkpoint.write(journal.folder, agent.state() | under(MONITORS, _state(monitors)), notes)


def _state(monitors: Watch | None) -> State:
    return {} if monitors is None else monitors.state()


def restore_newest(journal: Journal, agent: Any, monitors: Watch | None = None) -> int:
    """Bring a new agent and new monitors to the newest whole checkpoint.

    Returns the byte of the log from which on they know nothing.

    Without a whole checkpoint that is 0: everything is learned again, and nothing is lost. A checkpoint that saw more
    of the log than there is shows that the log was cut short.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state, notes = checkpoint.read(journal.folder)
    except FileNotFoundError:
        return 0
    except DamagedFile as error:
        journal.fault(f"no checkpoint could be read, so everything is learned again: {error}")
        return 0
    for warning in caught:
        journal.fault(str(warning.message))
    if notes.get("genesis") != journal.head["genesis"]:
        raise DamagedFile(f"{journal.folder}: the checkpoints are of another journal: delete them, or restore a copy")
    seen = notes["log"]
    if seen > journal.log.size:
        raise DamagedFile(
            f"{journal.log.path} has {journal.log.size} bytes, and a checkpoint was made at {seen}: the journal was "
            "cut short; restore it from a copy"
        )
    watched = {name: array for name, array in state.items() if name.startswith(f"{MONITORS}.")}
    blank = _state(monitors)
    try:
        if monitors is not None:
            monitors.restore({name.removeprefix(f"{MONITORS}."): array for name, array in watched.items()})
        agent.restore({name: array for name, array in state.items() if name not in watched})
    except (DamagedFile, NotImplementedError, ValueError) as error:
        if monitors is not None:
            monitors.restore(blank)
        journal.fault(f"a checkpoint could not be used, so everything is learned again: {error}")
        return 0
    return int(seen)

"""Checkpoints of a simulated bandit run: its columns so far and the agent, so that a killed run goes on bit for bit.

The luck of a round depends on the seed and the round alone. So a run needs no journal to go on: rounds since the last
checkpoint are simply played again.
"""

import os
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from episafe.agents.bandits.base import BanditAgent
from episafe.errors import DamagedFile, InUse
from episafe.runs.columns import Facts
from episafe.storage import checkpoint
from episafe.types import Array, IntArray

KEEP_EVERY = 5.0  # seconds


class Tally(NamedTuple):
    """What a run fills: the columns of its record, how often each reason was given, and the optimum of each round."""

    facts: Facts
    reasons: IntArray
    best: Array


class Keeper:
    """Writes the checkpoints of a run, and takes up the newest.

    Args:
        folder: of the run.
        agent: new, or taken up as it is where there is no checkpoint.
        tally: what the run fills.
        told: seed and first round, by which a run is recognised.
    """

    def __init__(self, folder: Path, agent: BanditAgent, tally: Tally, told: tuple[int, int]) -> None:
        self.folder, self._agent, self._tally, self._told = folder, agent, tally, list(told)
        self._last = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)

    def take_up(self) -> int:
        """Restore agent and columns; how many rounds they have."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", checkpoint.DamagedCheckpoint)
                state, notes = checkpoint.read(self.folder)
        except (FileNotFoundError, DamagedFile):
            return 0  # every round is played again, to the same record
        if notes.get("told") != self._told:
            raise ValueError(f"{self.folder} holds another run: seed or first round differ; choose another folder")
        if notes["done"] > len(self._tally.best):
            raise ValueError(f"{self.folder} has {notes['done']} rounds already: ask for at least as many")
        columns = self._columns(notes["done"])
        kept = {name: state.pop(f"run.{name}") for name in columns}
        self._agent.restore(state)
        for name, column in columns.items():
            column[...] = kept[name]
        return int(notes["done"])

    def keep(self, done: int) -> None:
        """A checkpoint after `done` rounds, if the last one is old or the run is over."""
        now = time.monotonic()
        if now - self._last < KEEP_EVERY and done < len(self._tally.best):
            return
        columns = {f"run.{name}": column.copy() for name, column in self._columns(done).items()}
        checkpoint.write(self.folder, self._agent.state() | columns, {"told": self._told, "done": done})
        self._last = now

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)  # and with it the lock

    def _columns(self, done: int) -> dict[str, Array | IntArray]:
        facts, reasons, best = self._tally
        named = {name: column[:done] for name, column in facts._asdict().items()}
        return {**named, "best": best[:done], "reasons": reasons}


def _locked(folder: Path) -> int:
    import fcntl

    file = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise InUse(f"{folder} is used by another process: wait for it, or choose another folder") from error
    return file

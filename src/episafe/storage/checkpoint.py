"""Checkpoints: the state of an agent in a folder, in two generations, so that a damaged one has a predecessor."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.errors import DamagedFile
from episafe.storage import sealed_npz
from episafe.storage.atomic_files import read_arrays, sync_folder, write_arrays
from episafe.storage.state_reader import State

NAMES = ("checkpoint-0.npz", "checkpoint-1.npz")
SEQUENCE = "sequence"  # counts the checkpoints of a folder


class DamagedCheckpoint(UserWarning):
    """The newest checkpoint could not be read, and the one before it was taken."""


def write(folder: str | Path, state: Mapping[str, Any], notes: Mapping[str, Any]) -> Path:
    """Write a state, and what else there is to say of it, in place of the older of two generations.

    The file is on disk when this returns. Until then the newer generation is untouched, and the older one whole.

    Args:
        folder: where; made if it is not there.
        state: as `agent.state()` gives it.
        notes: plain values, as JSON has them.
    """
    paths = [Path(folder) / name for name in NAMES]
    sequences = [_glance(path) for path in paths]
    path = paths[int(sequences[1] < sequences[0])]
    write_arrays(path, {**state, SEQUENCE: np.array(max(*sequences, 0) + 1)}, notes, compress=False)
    return path


def read(folder: str | Path, unfit: Callable[[dict[str, Any]], str] = lambda _: "") -> tuple[State, dict[str, Any]]:
    """State and notes of the newest checkpoint that is whole; a `DamagedCheckpoint` warning says if it is not the last.

    FileNotFoundError where there is none, DamagedFile where there is none that is whole.

    Args:
        folder: where.
        unfit: says by the notes of a checkpoint why it is not to be taken; "" where it is.
    """
    present = [path for name in NAMES if (path := Path(folder) / name).exists()]
    if not present:
        raise FileNotFoundError(f"{folder} has no checkpoint")
    ranked = sorted(present, key=lambda path: _glance(path) % 2**63, reverse=True)  # the unreadable, −1, first
    damaged = []
    for path in ranked:
        try:
            state, notes = read_arrays(path)
            sequence = _number(state.pop(SEQUENCE, None))
            if sequence < 0:
                raise DamagedFile(f"{path} is no checkpoint: it has no number; delete it")
        except DamagedFile as error:
            damaged.append(str(error))
            continue
        if why := unfit(notes):
            damaged.append(f"{path} {why}")
            continue
        if damaged:
            warnings.warn(f"checkpoint {sequence} is used, because {damaged[0]}", DamagedCheckpoint, stacklevel=2)
        return state, notes
    raise DamagedFile(f"{folder} has no whole checkpoint: {'; '.join(damaged)}")


def remove(folder: str | Path) -> None:
    """Delete the checkpoints of a folder: what they hold has to be learned again."""
    for name in NAMES:
        (Path(folder) / name).unlink(missing_ok=True)
    sync_folder(Path(folder))


def _glance(path: Path) -> int:
    """The number of a checkpoint, whose seal is not checked; −1 where there is none."""
    return _number(sealed_npz.read_one(path, SEQUENCE))


def _number(found: NDArray[Any] | None) -> int:
    if found is None or found.dtype != np.int64 or found.shape != () or not 0 < found < 2**62:
        return -1
    return int(found)

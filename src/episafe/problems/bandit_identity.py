"""Whether two tasks are one problem: the same actions and the same incumbent."""

import hashlib
from collections.abc import Iterable

import numpy as np

from episafe.problems.bandit_actions import Ball, Ellipsoid
from episafe.problems.bandit_task import BanditTask
from episafe.types import Array

ROUNDS = 16  # by which a function of the round is recognised in a saved state


def digests(task: BanditTask) -> dict[str, str]:
    """Short names of the actions and of the incumbent; arms that change are known by their first rounds."""
    rounds = range(ROUNDS) if task.changes else range(1)
    return {
        "actions": _digest(_actions(task, k) for k in rounds),
        "safe_policy": _digest(task.incumbent(k) for k in rounds),
    }


def differing(ours: BanditTask, theirs: BanditTask, rounds: Iterable[int]) -> str:
    """The name of what the tasks do not share, "" where they agree in all the rounds."""
    if ours.changes != theirs.changes or type(ours.actions) is not type(theirs.actions):
        return "actions"
    if ours.actions is theirs.actions and ours.safe_policy is theirs.safe_policy:
        return ""
    for k in rounds if ours.changes else range(1):
        if not np.array_equal(_actions(ours, k), _actions(theirs, k)):
            return "actions"
        if not np.array_equal(ours.incumbent(k), theirs.incumbent(k)):
            return "safe_policy"
    return ""


def _actions(task: BanditTask, round: int) -> Array:
    """The actions of a round as numbers."""
    if isinstance(task.actions, Ellipsoid):
        return task.actions.M
    if isinstance(task.actions, Ball):
        return np.array([task.actions.radius])
    return task.arms(round)


def _digest(arrays: Iterable[Array]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]

"""Whether two tasks are one problem: the same actions and the same incumbent."""

from collections.abc import Iterable

import numpy as np

from episafe.problems.bandit_task import BanditTask


def differing(ours: BanditTask, theirs: BanditTask, rounds: Iterable[int]) -> str:
    """The name of what the tasks do not share, "" where they agree in all the rounds."""
    if ours.changes != theirs.changes or type(ours.actions) is not type(theirs.actions):
        return "actions"
    if ours.actions is theirs.actions and ours.safe_policy is theirs.safe_policy:
        return ""
    for k in rounds if ours.changes else range(1):
        if not np.array_equal(ours.action_numbers(k), theirs.action_numbers(k)):
            return "actions"
        if not np.array_equal(ours.incumbent(k), theirs.incumbent(k)):
            return "safe_policy"
    return ""

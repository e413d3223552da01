"""A logged episode as the task counts it: a dummy first step before a random start, ENDED after an early end."""

from collections.abc import Sequence
from typing import Any

from episafe.errors import DamagedFile
from episafe.problems.sampled_problem import AnyTask
from episafe.problems.states import ENDED, START
from episafe.types import Episode


def whole_episode(
    task: AnyTask, states: list[Any], actions: list[int], seen: Sequence[list[Any] | None], ended: bool, place: str
) -> Episode:
    """The steps of the environment, T + 1 states and T actions, as H of the task; refused if some are missing.

    `seen` are its rewards and utilities, None where the log has none.
    `ended` says whether the environment terminated the episode with its last step. One that was cut short by anything
    else is not whole, and what is learned from it would be biased if that had to do with how it went.
    """
    absorbing = ended and task.may_end
    H, T = steps_of(task), len(actions)
    if T > H or (T < H and not absorbing):
        remedy = "mark where it terminated, or leave out what the recording itself cut, and no other episode"
        raise DamagedFile(f"{place} has {T} steps, not 0 to {H - 1}, each once, and did not terminate: {remedy}")
    before, after = [START] * (task.horizon - H), [ENDED] * (H - T)
    if absorbing:
        states = [*states[:-1], ENDED]
    m = task.num_constraints
    columns = {state: (told[0], told[1] if m == 1 else list(told[1:])) for state, told in task.outside.items()}
    signals = [
        None if values is None else [columns[o][g] for o in before] + values + [columns[o][g] for o in after]
        for g, values in enumerate(seen)
    ]
    padded = [0] * len(before) + actions + [0] * len(after)
    return Episode([*before, *states, *after], padded, signals[0], signals[1])


def steps_of(task: AnyTask) -> int:
    """How many steps an episode of the environment has at most: those of the task, without the dummy one."""
    return task.horizon - int(task.random_start)

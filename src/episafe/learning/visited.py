"""The visited states of each step, numbered in order of first sight. Memory follows them, not the state space."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.arrays import Array, IntArray
from episafe.problems.task import Task

Entry = TypeVar("Entry", bound=np.generic)


def enlarged(array: NDArray[Entry], capacity: int) -> NDArray[Entry]:
    """`array` with its second axis extended by zeros to `capacity`."""
    padding = [(0, 0)] * array.ndim
    padding[1] = (0, capacity - array.shape[1])
    return np.pad(array, padding)


class Visited:
    """Slots of the states seen at each step, with what the task says of them.

    Attributes:
        size: (H,), how many slots each step has.
        reward, utility: (H, n, A) at the slots.
        phi: (H, n, A, d) at the slots; d = 0 for one-hot features, which need none.
        states: per step, the state of each slot.
    """

    def __init__(self, task: Task) -> None:
        H, A = task.horizon, task.num_actions
        self._task = task
        self._slot: list[dict[int, int]] = [{} for _ in range(H)]
        self.states: list[list[int]] = [[] for _ in range(H)]
        self.size: IntArray = np.zeros(H, dtype=np.int64)
        self.reward: Array = np.zeros((H, 8, A))
        self.utility: Array = np.zeros((H, 8, A))
        self.phi: Array = np.zeros((H, 8, A, 0 if task.one_hot else task.dim))
        self._add(0, task.initial_state)

    @property
    def capacity(self) -> int:
        """n, the slots that the arrays have room for at each step."""
        return int(self.reward.shape[1])

    def find(self, h: int, state: int, size: int) -> int | None:
        """Slot of `state` among the first `size` of step h, or None if it came later or never."""
        slot = self._slot[h].get(state)
        return slot if slot is not None and slot < size else None

    def slots(self, states: Sequence[int]) -> IntArray:
        """Slots (H,) of the states of one episode, new ones added."""
        found = np.empty(len(self._slot), dtype=np.int64)
        for h, known in enumerate(self._slot):
            slot = known.get(states[h])
            found[h] = self._add(h, states[h]) if slot is None else slot
        return found

    def _add(self, h: int, state: int) -> int:
        slot = int(self.size[h])
        if slot == self.capacity:
            self.reward, self.utility, self.phi = (
                enlarged(array, 2 * slot) for array in (self.reward, self.utility, self.phi)
            )
        self.reward[h, slot] = self._task.reward_at(h, state)
        self.utility[h, slot] = self._task.utility_at(h, state)
        if not self._task.one_hot:
            self.phi[h, slot] = self._task.features(state)
        self._slot[h][state] = slot
        self.states[h].append(state)
        self.size[h] += 1
        return slot
